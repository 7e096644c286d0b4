"""Builds the model of a checkpoint, with the task that it was trained for or with a stand-in without data."""

import re
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fairseq import models, quantization_utils
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from omegaconf import OmegaConf
from torch import Tensor

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.trained import Trained, plain_encoder

from .checkpoint import architecture_of, is_converted, is_fast_path, task_of

_SOURCE = (
    r"encoder\.(sentence_encoder\.)?embed_tokens\.weight",
    r"decoder\.(sentence_encoder\.)?embed_tokens\.weight",  # RoBERTa's once were in a decoder
    r"decoder\.embed_tokens\.embeddings\.\d+\.0\.weight",  # of --adaptive-input, in bands
)
"""Tensors that have a row for each word that a model reads; the first there are count."""
_TARGET = (r"decoder\.output_projection\.weight", r"decoder\.embed_tokens\.weight", r"w2v_encoder\.proj\.weight")
"""Tensors that have one for each word that it predicts, where these are others."""


class StandIn:
    """What tells a task without data from one of fairseq's."""


def stand_in(state: dict[str, Any]) -> FairseqTask:
    """Returns a task to build the model of a checkpoint with, which has no data, and dictionaries of the sizes that the
    checkpoint's tensors say."""
    weights, settings = state["model"], state["cfg"].get("task")
    source, target = _words(weights, *_SOURCE), _words(weights, *_TARGET, *_SOURCE)
    pairs = list(dict.fromkeys(key.split(".")[1] for key in weights if key.startswith("models.")))
    dictionaries = {
        language: _words(weights, rf"models\.{re.escape(pair)}\.{side}\.embed_tokens\.weight")
        for pair in pairs
        for language, side in zip(pair.split("-"), ("encoder", "decoder"), strict=True)
    }
    settings = Namespace(**settings) if isinstance(settings, Mapping) else settings
    members = {
        **dict.fromkeys(("source_dictionary", "src_dict", "dictionary"), source),
        **dict.fromkeys(("target_dictionary", "tgt_dict"), target),
        **{"model_lang_pairs": pairs, "dicts": dictionaries, "langs": list(dictionaries)},
        **{"cfg": settings, "args": settings},
    }
    base = TASK_REGISTRY.get(task_of(settings), FairseqTask)
    return object.__new__(type("StandIn", (StandIn, base), members))


def build_model(state: dict[str, Any], task: FairseqTask) -> BaseFairseqModel:
    """Returns the model of a checkpoint in evaluation mode; projections that are not in it are fresh, and start as the
    identity: slot c begins as token c, and if empty slots are masked, as full attention of up to k tokens.

    Raises:
        UserError: settings that do not go together, or tensors that are not the model's.
    """
    settings: Any = model_settings(state)
    if isinstance(state["cfg"]["model"], Mapping):  # whose flags may be those of other parts
        settings = OmegaConf.create({part: x for part, x in state["cfg"].items() if isinstance(x, Mapping)})["model"]
    else:
        settings.encoder_embed_path = settings.decoder_embed_path = None  # trained embeddings are in the state
        settings.load_checkpoint_heads = True  # for classification, which RoBERTa leaves out otherwise
    try:
        model = models.build_model(settings, task, True)
    except SystemExit as error:
        raise UserError(f"{str(error).removeprefix('error: ')}.") from None
    model = quantization_utils.quantize_model_scalar(model, settings)  # as fairseq's tasks do
    for module in model.modules():
        if isinstance(module, LinearProjection):
            module.init = "identity"
            module.reset_parameters()
    own = model.state_dict()
    weights = {key: tensor for key, tensor in state["model"].items() if key in own or not is_fast_path(key)}
    try:
        model.load_state_dict({**projection_weights(own), **weights}, model_cfg=settings)
    except SystemExit as error:
        raise UserError(f"{str(error).removeprefix('error: ')}.") from None
    except RuntimeError as error:  # torch's, on names and sizes
        raise UserError(f"the checkpoint's tensors are not those of its model ({error}): save it again.") from None
    return model.eval()


def build_original(state: dict[str, Any]) -> Trained:
    """Returns the model of a checkpoint and a task without data, with attention that no fused kernel of 0.12.2 computes.

    Raises:
        UserError: as in `build_model`, or a model that is built from more than a checkpoint.
    """
    task, settings = stand_in(state), model_settings(state)
    if isinstance(state["cfg"]["model"], Namespace) and not is_converted(state):
        vars(settings).update(plain_encoder())
        state = {**state, "cfg": {**state["cfg"], "model": settings}}
    try:
        return Trained(build_model(state, task), task)
    except UserError:
        raise
    except Exception as error:  # whatever the lack of its task's data makes of a model
        what = f"{architecture_of(state)} ({type(error).__name__}: {error})"
        raise UserError(
            f"fairseq needs more than a checkpoint to build a {what}: name its folder with --data."
        ) from None


def complete(state: dict[str, Any], model: BaseFairseqModel) -> None:
    """Gives a converted checkpoint the parameters that its model's attention has beyond fairseq's, and the names of
    today, which RoBERTa's had not in fairseq before 0.10."""
    weights, own = state["model"], model.state_dict()
    if weights.keys() - own.keys():
        model.upgrade_state_dict(weights)
    weights |= projection_weights(own)


def _words(weights: Mapping[str, Tensor], *names: str) -> Dictionary:
    """Returns a dictionary with a word for each row of the tensors that the first of these patterns has."""
    sizes = (sum(len(x) for key, x in weights.items() if re.fullmatch(name, key)) for name in names)
    words = Dictionary()
    for index in range(next(filter(None, sizes), 0) - len(words)):
        words.add_symbol(str(index))
    return words
