"""`python -m linformer_fairseq.average`: averages checkpoints.

Vaswani et al. (2017, section 6.1) translate with the mean of the last checkpoints of a training; fairseq's clone has
scripts/average_checkpoints.py for it, which its package leaves out.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linformer_fairseq.checkpoints import check_torch, model_settings, read_checkpoint, write_checkpoint
from linformer_fairseq.cli.arguments import Parser, count
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import check_output
from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.cli.progress import say

_SETTINGS = re.compile(
    r"arch|_name|linformer_\w+|(en|de)coder_attention_heads|(en|de)coder_normalize_before|activation_fn"
    r"|no_scale_embedding"
)
"""Flags that change what a model computes with the same tensors. Others, such as the learning rate, may differ."""


def average(checkpoints: Sequence[Path], output: Path) -> None:
    """Writes the mean of several checkpoints of one model as a checkpoint that all of fairseq's commands take.

    The model's floating-point tensors are averaged and keep their types. Sums are in float64, in which half precision
    neither overflows nor loses bits and the mean of equal checkpoints is that checkpoint. Everything else, such as
    counters, the configuration and the task's state, comes from the last checkpoint, but for the optimiser's state,
    which is left out. One checkpoint is in memory at a time.

    Raises:
        UserError: there are no checkpoints, one cannot be read or holds code, they are of different models, the output
            cannot be written or is one of them, or torch is older than 2.4.
    """
    check_torch("Averaging")
    _check_paths(checkpoints, output)
    sums: dict[str, Tensor] = {}
    first: dict[str, Any] = {}
    for path in checkpoints:
        say(f"  adding {path}")
        state: dict[str, Any] = {}  # frees the one before
        state = read_checkpoint(path)
        description = _description(state)
        first = first or description
        for name in first | description:
            there, here = first.get(name, "absent"), description.get(name, "absent")
            if here != there:
                raise UserError(
                    f"{path} is of another model than {checkpoints[0]}: {name} is {here}, not {there}; average "
                    "checkpoints of one training."
                )
        for name, tensor in state["model"].items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0) + tensor.double()
    _put_means(state["model"], sums, len(checkpoints))
    write_checkpoint(state, output)


def newest(folder: Path, number: int) -> list[Path]:
    """Returns the paths of the last `number` checkpoints in a --save-dir of fairseq's, oldest first.

    They are those of --save-interval-updates (`checkpoint_EPOCH_UPDATE.pt`), or, if there are none, those of whole
    epochs (`checkpointEPOCH.pt`).

    Raises:
        UserError: the folder does not exist, or has fewer checkpoints.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: name the --save-dir of a training.")
    found: list[Path] = []
    for pattern in (r"checkpoint_\d+_(\d+)\.pt", r"checkpoint(\d+)\.pt"):
        matches = [(re.fullmatch(pattern, path.name), path) for path in folder.iterdir()]
        found = found or [path for _, path in sorted((int(match[1]), path) for match, path in matches if match)]
    if not found:
        raise UserError(
            f"{folder} has no checkpoints of epochs or of updates (checkpoint3.pt, checkpoint_3_1000.pt): name the "
            "--save-dir of a training that saved some."
        )
    if len(found) < number:
        names = " to ".join(dict.fromkeys([found[0].name, found[-1].name]))
        raise UserError(
            f"{folder} has {len(found)} of the {number} checkpoints to be averaged ({names}): ask for fewer with "
            "--last."
        )
    return found[-number:]


def _check_paths(checkpoints: Sequence[Path], output: Path) -> None:
    """Refuses wrong paths before the first of many large files is read."""
    if not checkpoints:
        raise UserError("There is nothing to average: name checkpoints, or --folder and --last.")
    for path in checkpoints:
        if not path.is_file():
            raise UserError(f"{path} is {'not a file' if path.exists() else 'missing'}: name fairseq's checkpoints.")
        if path.resolve() == output.resolve():
            raise UserError(f"{path} is to be averaged and cannot be the output too: name another --output.")
    check_output(output, "--output")


def _description(state: dict[str, Any]) -> dict[str, Any]:
    """Returns all that must be equal in two checkpoints of one model, by the name that a refusal gives it."""
    found = {name: value for name, value in vars(model_settings(state)).items() if _SETTINGS.fullmatch(name)}
    for name, tensor in state["model"].items():
        kind = "" if tensor.is_floating_point() else f" of {tensor.dtype}"  # what is averaged may differ in precision
        found[f"parameter {name}"] = f"{tuple(tensor.shape)}{kind}"
    return found


def _put_means(model: dict[str, Tensor], sums: dict[str, Tensor], number: int) -> None:
    """Replaces a model's tensors by their means; tensors that share storage, such as tied embeddings, still do."""
    shared: dict[tuple[Any, ...], Tensor] = {}
    for name, tensor in model.items():
        if name in sums:
            mean = sums.pop(name).div_(number).to(tensor.dtype)
            storage = tensor.untyped_storage().data_ptr()
            place = (storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
            kept = shared.setdefault(place, mean)
            model[name] = kept if torch.equal(kept, mean) else mean


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="average",
        description="Write one checkpoint whose parameters are the means of those of several.",
    )
    parser.add_argument(
        "checkpoints", nargs="*", type=Path, metavar="CHECKPOINT", help="what is not averaged comes from the last one"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="instead of CHECKPOINT: where a training saved them")
    parser.add_argument("--last", type=count, metavar="N", help="how many of them, the last in updates or epochs")
    parser.add_argument("--output", type=Path, metavar="FILE", required=True, help="where the mean goes")
    return parser


def _run(argv: Sequence[str]) -> None:
    args = build_parser().parse_args(argv)
    checkpoints = args.checkpoints
    if args.folder or args.last:
        if checkpoints or not (args.folder and args.last):
            raise UserError("Name either checkpoints, or both --folder and --last.")
        checkpoints = newest(args.folder, args.last)
    average(checkpoints, args.output)
    say(f"The mean of {len(checkpoints)} checkpoint{'s' * (len(checkpoints) > 1)} is in {args.output}.")


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    return exit_status(lambda: _run(argv), interrupted="nothing was written")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
