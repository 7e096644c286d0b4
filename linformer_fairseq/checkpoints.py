"""Reads fairseq's checkpoints with torch's safe loader, and writes them whole or not at all."""

import argparse
import collections
import copy
import pickle
import re
import typing
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.logging.meters import AverageMeter, StopwatchMeter, TimeMeter
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.nodes import AnyNode
from torch import Tensor

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing

CHECKPOINT_TYPES = (
    # what a checkpoint's file holds beyond tensors and plain containers: the parsed command line
    argparse.Namespace,
    # what the first process of a resumed training sends to the others once it has read that file: the configuration
    # as an object, and a placeholder for each tensor
    *(DictConfig, ListConfig, AnyNode, ContainerMetadata, Metadata, typing.Any),
    *(_TensorPlaceholder, collections.defaultdict, dict, list, int),
    # the counts that --eval-bleu keeps as arrays of numbers, and what numpy makes arrays and numbers with
    *(numpy.ndarray, numpy.dtype, numpy.zeros(0).__reduce__()[0], numpy.float64(0).__reduce__()[0]),
    *(type(numpy.dtype(name)) for name in ("int32", "int64", "float32", "float64")),
    # the averages of a training with fairseq before 0.10
    *(AverageMeter, StopwatchMeter, TimeMeter),
)
OLD_NAMES = {"fairseq.logging.": "fairseq.", "numpy._core.": "numpy.core."}
"""Modules of such types, and what they were called when older checkpoints were written."""
MAGIC = pickle.dumps(torch.serialization.MAGIC_NUMBER, protocol=2)
"""How files of torch before 1.6 begin, and no text does."""


def admit_checkpoint_types() -> None:
    """Admits `CHECKPOINT_TYPES` to `torch.load(weights_only=True)`, torch's default from 2.6 on.

    A checkpoint that holds anything else, such as code to run, is still refused.
    """
    if hasattr(torch.serialization, "add_safe_globals"):  # older torch has no such list, and its default no need
        torch.serialization.add_safe_globals(list(CHECKPOINT_TYPES))
    if hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):  # from 2.6 on it takes other names
        names = [(kind, f"{kind.__module__}.{kind.__name__}") for kind in CHECKPOINT_TYPES]
        old: list[Any] = [
            (kind, name.replace(*pair)) for kind, name in names for pair in OLD_NAMES.items() if pair[0] in name
        ]
        torch.serialization.add_safe_globals(old)


def check_torch(what: str) -> None:
    """Refuses a torch whose safe loader cannot read fairseq's checkpoints, for `what`, such as "Averaging"."""
    if not hasattr(torch.serialization, "add_safe_globals"):
        raise UserError(
            f"{what} needs torch 2.4 or newer, as the safe loader of torch {torch.__version__} cannot read fairseq's "
            "checkpoints."
        )


def check_checkpoint(path: Path) -> None:
    """Refuses a checkpoint that does not exist."""
    if not path.is_file():
        raise UserError(f"{path} is missing: name a checkpoint that fairseq-train saved.")


def read_checkpoint(path: Path, mmap: bool = False) -> dict[str, Any]:
    """Returns a checkpoint without its optimiser's state.

    Args:
        mmap: whether to leave tensors on the disk until they are used, where the file is not to be written meanwhile.

    Raises:
        UserError: a file that cannot be read, holds code or holds no model.
    """
    try:
        with open(path, "rb") as file:
            is_zip = zipfile.is_zipfile(path)
            if not is_zip and file.read(len(MAGIC)) != MAGIC:  # any other text may read as code
                raise ValueError("no file of torch's")
        state = torch.load(str(path), map_location="cpu", weights_only=True, mmap=mmap and is_zip)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except Exception as error:  # whatever a damaged file makes of the loader
        if code := re.search(r"GLOBAL (\S+)", str(error)):
            raise UserError(
                f"{path} is refused by torch's safe loader: it asks for {code[1]}, which may run code and is in no "
                "checkpoint of fairseq's (nothing was run)."
            ) from None
        raise UserError(f"{path} is not a checkpoint, or is damaged: save or copy it again.") from None
    model = state.get("model") if isinstance(state, dict) else None
    if not isinstance(model, dict) or not model or not all(isinstance(tensor, Tensor) for tensor in model.values()):
        raise UserError(f"{path} holds no model: name a checkpoint that fairseq-train saved.")
    state.pop("last_optimizer_state", None)
    return state


def model_settings(state: dict[str, Any]) -> argparse.Namespace:
    """Returns a copy of the flags that a checkpoint's model was built with, whichever fairseq wrote it."""
    cfg = state.get("cfg")
    found = state.get("args") if cfg is None else plain_cfg(cfg).get("model")
    flags = found if isinstance(found, Mapping) else vars(found or argparse.Namespace())
    return argparse.Namespace(**copy.deepcopy(dict(flags)))


def plain_cfg(cfg: Any) -> dict[str, Any]:
    """Returns the configuration in a checkpoint as plain containers, which any fairseq reads."""
    return OmegaConf.to_container(cfg) if isinstance(cfg, DictConfig) else dict(cfg)  # type: ignore[return-value]


def write_checkpoint(state: dict[str, Any], output: Path) -> None:
    """Writes a checkpoint in one move.

    Raises:
        UserError: no space is left.
    """
    with replacing(output) as part, open(part, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError:  # torch's writer closes with one of its own over the error of a full disk
            raise UserError(f"{output} could not be written whole: free some space on its disk.") from None
