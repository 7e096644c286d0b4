"""Builds the model of a checkpoint, with its task or without the data that a task reads."""

import re
import textwrap
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fairseq import models, quantization_utils
from fairseq.data import Dictionary
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from omegaconf import OmegaConf
from torch import Tensor

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.trained import Trained, plain_encoder

from .checkpoint import OWN, architecture_of, is_converted, model_of, start_as_identity, task_of

_SOURCE = (
    r"encoder\.(sentence_encoder\.)?embed_tokens\.weight",
    r"decoder\.(sentence_encoder\.)?embed_tokens\.weight",  # RoBERTa's once were in a decoder
    r"decoder\.embed_tokens\.embeddings\.\d+\.0\.weight",  # of --adaptive-input, in bands
)
"""Tensors that have a row for each word that a model reads; the first there are count."""
_TARGET = (r"decoder\.output_projection\.weight", r"decoder\.embed_tokens\.weight", r"w2v_encoder\.proj\.weight")
"""Tensors that have one for each word that it predicts, where these are others."""


def build_model(state: dict[str, Any], task: FairseqTask) -> models.BaseFairseqModel:
    """Returns the model of a checkpoint in evaluation mode, and gives the checkpoint what it lacks: the names of today,
    which RoBERTa's had not in fairseq before 0.10, and projections, which start as the identity."""
    settings: Any = model_settings(state)
    if OWN + model_of(architecture_of(state)) in models.MODEL_DATACLASS_REGISTRY:  # its flags may be other parts'
        settings = OmegaConf.create({part: x for part, x in state["cfg"].items() if isinstance(x, Mapping)})["model"]
    else:
        settings.encoder_embed_path = settings.decoder_embed_path = None  # trained embeddings are in the state
        settings.load_checkpoint_heads = True  # for classification, which RoBERTa leaves out otherwise
    try:
        model = models.build_model(settings, task, True)
        model = quantization_utils.quantize_model_scalar(model, settings)  # as fairseq's tasks do
        start_as_identity(model)
        weights, own = state["model"], model.state_dict()
        weights |= {key: tensor for key, tensor in projection_weights(own).items() if key not in weights}
        model.load_state_dict(dict(weights), model_cfg=settings)
    except SystemExit as error:
        raise UserError(f"{str(error).removeprefix('error: ')}.") from None
    except RuntimeError as error:  # torch's, on names and sizes
        reason = textwrap.shorten(str(error), 300)
        raise UserError(f"the checkpoint's tensors are not those of its model ({reason}): save it again.") from None
    if weights.keys() - own.keys():
        model.upgrade_state_dict(weights)
    return model.eval()


def build_original(state: dict[str, Any]) -> Trained:
    """Returns the model of a checkpoint, whose attention fairseq's layers compute, and a task without data."""
    task, settings = _task_without_data(state), state["cfg"]["model"]
    if isinstance(settings, Namespace) and not is_converted(state):
        state = {**state, "cfg": {**state["cfg"], "model": Namespace(**{**vars(settings), **plain_encoder()})}}
    try:
        return Trained(build_model(state, task), task)
    except UserError:
        raise
    except Exception as error:  # whatever the lack of data makes of a model
        what = f"{architecture_of(state)} ({textwrap.shorten(f'{type(error).__name__}: {error}', 300)})"
        raise UserError(f"fairseq needs more than a checkpoint to build a {what}: name its --data.") from None


def _task_without_data(state: dict[str, Any]) -> FairseqTask:
    """Returns the task that a checkpoint's model was trained for, as far as its settings and the sizes of its tensors
    tell: without data, and with dictionaries of made-up words."""
    weights, settings = state["model"], state["cfg"].get("task")
    pairs = list(dict.fromkeys(key.split(".")[1] for key in weights if key.startswith("models.")))
    dictionaries = {
        language: _words(weights, rf"models\.{re.escape(pair)}\.{side}\.embed_tokens\.weight")
        for pair in pairs
        for language, side in zip(pair.split("-"), ("encoder", "decoder"), strict=True)
    }
    members = {
        **dict.fromkeys(("source_dictionary", "src_dict", "dictionary"), _words(weights, *_SOURCE)),
        **dict.fromkeys(("target_dictionary", "tgt_dict"), _words(weights, *_TARGET, *_SOURCE)),
        **{"dictionaries": [_words(weights, "label_embs_concat")]},  # of HuBERT
        **{"model_lang_pairs": pairs, "dicts": dictionaries, "langs": list(dictionaries)},
        **dict.fromkeys(("cfg", "args"), Namespace(**settings) if isinstance(settings, Mapping) else settings),
    }
    return object.__new__(type("TaskWithoutData", (TASK_REGISTRY.get(task_of(state), FairseqTask),), members))


def _words(weights: Mapping[str, Tensor], *names: str) -> Dictionary:
    """Returns a dictionary with a word for each row of the tensors that the first of these patterns has."""
    sizes = (sum(len(x) for key, x in weights.items() if re.fullmatch(name, key)) for name in names)
    words = Dictionary()
    for index in range(next(filter(None, sizes), 0) - len(words)):
        words.add_symbol(str(index))
    return words
