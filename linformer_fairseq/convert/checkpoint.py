"""From the checkpoint of a Transformer to that of a model with another attention."""

import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fairseq import quantization_utils
from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    BaseFairseqModel,
)
from torch import Tensor, nn

from linformer_fairseq.checkpoints import model_settings, plain_cfg
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import AttentionConfig, default_flags
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.models.swap import FAST_PATH_PARAMETERS
from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.trained import plain_encoder

from .families import LANGUAGE_MODEL, Family, architecture_of

_ADAPTIVE_BAND = re.compile(r"decoder\.embed_tokens\.embeddings\.\d+\.0\.weight")
"""The words of one band of `--adaptive-input`."""
_EMBEDDED = ("encoder", "encoder.sentence_encoder", "decoder.sentence_encoder", "decoder")
"""Where the words of a source, or of a language model, may be embedded; RoBERTa's once were in a decoder."""


def convert_state(state: dict[str, Any], family: Family, config: AttentionConfig) -> dict[str, Any]:
    """Returns the state of a checkpoint converted to another kind of attention, whose own parameters are fresh.

    Args:
        state: a checkpoint of fairseq's; it is left unchanged.
        family: what `family_of` finds it to be.
        config: the new model's attention.

    Raises:
        UserError: settings of which no model can be built.
    """
    args = model_settings(state)
    trained = architecture_of(args) or family.base
    if state.get("cfg") is None:  # of fairseq before 0.10, whose flags mean what they mean to their architecture
        ARCH_CONFIG_REGISTRY[trained](args)
    args._name = family.model
    args.arch = family.architecture(getattr(args, "arch", None) or trained, config.linformer_projection)
    for flag in default_flags(config.linformer_projection):
        setattr(args, flag, getattr(config, flag))
    if not all(config.kind_of(place).attention.drops_probabilities for place in config.places):
        args.attention_dropout = 0.0  # which matters in training alone, whose command line says it anew
    weights = {key: tensor for key, tensor in state["model"].items() if not _is_fast_path(key)}
    settings: Any = args
    if family is LANGUAGE_MODEL and state.get("cfg") is not None:  # whose flags fairseq keeps as a configuration
        settings = {name: value for name, value in vars(args).items() if name != "arch"}
    new = {**_with_settings(state, settings), "model": weights}
    model = build_model(new)
    start_as_identity(model)
    if weights.keys() - model.state_dict().keys():  # older names, such as RoBERTa's in fairseq before 0.10
        model.upgrade_state_dict(weights)
    weights |= projection_weights(model.state_dict())
    return new


def start_as_identity(model: nn.Module) -> None:
    """Lets slot c begin as token c where E and F are learned: if empty slots are masked, as full attention of up to k
    tokens."""
    for module in model.modules():
        if isinstance(module, LinearProjection):
            module.init = "identity"
            module.reset_parameters()


def build_model(state: dict[str, Any]) -> BaseFairseqModel:
    """Returns the model of a checkpoint in evaluation mode; projections that are not in it are fresh.

    Raises:
        UserError: settings that do not go together.
    """
    args = _all_settings(state)
    args.encoder_embed_path = args.decoder_embed_path = None  # the embeddings of a trained model are in its state
    args.load_checkpoint_heads = True  # for classification, which RoBERTa leaves out otherwise
    weights: dict[str, Tensor] = state["model"]
    sizes = vocabulary_sizes(weights)
    task = Namespace(source_dictionary=_words(sizes[0]), target_dictionary=_words(sizes[1]))
    try:
        model = ARCH_MODEL_REGISTRY[architecture_of(args)].build_model(args, task)
        model = quantization_utils.quantize_model_scalar(model, args)  # as fairseq's tasks do
        own = model.state_dict()
        weights = {key: tensor for key, tensor in weights.items() if key in own or not _is_fast_path(key)}
        model.load_state_dict({**projection_weights(own), **weights}, model_cfg=args)
    except SystemExit as error:
        raise UserError(f"{str(error).removeprefix('error: ')}.") from None
    except RuntimeError as error:  # torch's, on names and sizes
        raise UserError(f"the checkpoint's tensors are not those of its model ({error}): save it again.") from None
    return model.eval()


def build_original(state: dict[str, Any]) -> BaseFairseqModel:
    """Returns fairseq's model of a checkpoint in evaluation mode, with attention that no fused kernel computes."""
    settings = model_settings(state)
    vars(settings).update(plain_encoder())
    return build_model(_with_settings(state, settings))


def _with_settings(state: dict[str, Any], settings: Any) -> dict[str, Any]:
    """Returns the state of a checkpoint with other settings of its model."""
    if state.get("cfg") is None:
        return {**state, "args": settings}
    return {**state, "cfg": {**plain_cfg(state["cfg"]), "model": settings}}


def vocabulary_sizes(weights: Mapping[str, Tensor]) -> tuple[int, int]:
    """Returns the number of words of the source and of the target; of a language model, which reads its own words.

    Raises:
        UserError: no tensor tells it.
    """
    outputs = weights.get("decoder.output_projection.weight")
    for side in _EMBEDDED:
        if f"{side}.embed_tokens.weight" in weights:
            source = len(weights[f"{side}.embed_tokens.weight"])
            break
    else:
        source = sum(len(band) for name, band in weights.items() if _ADAPTIVE_BAND.fullmatch(name))
        source = source or (0 if outputs is None else len(outputs))
    if not source:
        raise UserError("the checkpoint has neither embeddings nor an output layer of its words: save it again.")
    words = weights.get("decoder.embed_tokens.weight") if outputs is None else outputs
    return source, source if words is None else len(words)


def _all_settings(state: dict[str, Any]) -> Namespace:
    """Returns a copy of the flags of a checkpoint's model, with those that an older fairseq did not know."""
    args = model_settings(state)
    arch = architecture_of(args)
    ARCH_CONFIG_REGISTRY[arch](args)
    known = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY[arch])
    for flag in () if known is None else fields(known):
        if not hasattr(args, flag.name):
            is_elsewhere = str(flag.default).startswith("${")  # in another part of fairseq's configuration
            setattr(args, flag.name, None if is_elsewhere else flag.default)
    return args


def _is_fast_path(key: str) -> bool:
    module, _, name = key.rpartition(".")
    return name in FAST_PATH_PARAMETERS and not module.endswith("_attn")  # whose own are of fairseq before 0.8


def _words(size: int) -> Dictionary:
    """Returns a dictionary of this size."""
    words = Dictionary()
    for index in range(size - len(words)):
        words.add_symbol(str(index))
    return words
