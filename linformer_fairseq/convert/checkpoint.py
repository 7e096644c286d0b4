"""From the checkpoint of a Transformer to that of a Linformer."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import quantization_utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.models.transformer import TransformerModel
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import LayerProjections, LinformerConfig
from linformer_fairseq.models.layers import FAST_PATH_PARAMETERS
from linformer_fairseq.spectrum.attention_maps import PLACES

MODEL = "linformer_transformer"


def converted(state: dict[str, Any], path: Path, config: LinformerConfig) -> dict[str, Any]:
    """The state of a checkpoint as one of a Linformer, its projections as they start.

    Args:
        state: of a `transformer`; it is left as it is.
        path: where it comes from, for a refusal.
        config: the new model's projections.

    Raises:
        UserError: a checkpoint of another model, or projections that do not fit it.
    """
    args = model_settings(state)
    name = getattr(args, "_name", None) or getattr(args, "arch", None)
    arch = getattr(args, "arch", None) or name
    if (
        ARCH_MODEL_REGISTRY.get(name) is not TransformerModel
        or "encoder.layers.0.self_attn.k_proj.weight" not in state["model"]
    ):
        raise UserError(
            f"{path} holds {f'a {name}' if name else 'no model of a known name'}: name the checkpoint of a "
            "translation model of fairseq's transformer."
        )
    args._name = MODEL
    args.arch = f"linformer_{arch}" if f"linformer_{arch}" in ARCH_MODEL_REGISTRY else MODEL
    for flag, value in vars(config).items():
        if not flag.startswith("_"):
            setattr(args, flag, value)
    model = {
        key: tensor for key, tensor in state["model"].items() if key.rpartition(".")[2] not in FAST_PATH_PARAMETERS
    }
    try:
        for place in sorted(config.places):
            model |= _weights(place, projections(place, args, state["model"], config))
    except ValueError as error:
        raise UserError(f"{error}.") from None
    if state.get("cfg") is None:  # of fairseq before 0.10
        return {**state, "model": model, "args": args}
    return {**state, "model": model, "cfg": {**_plain(state["cfg"]), "model": args}}


def built(state: dict[str, Any]) -> BaseFairseqModel:
    """The model of a converted checkpoint, as fairseq builds it, in evaluation mode.

    Raises:
        UserError: settings that do not go together.
    """
    args = model_settings(state)
    ARCH_CONFIG_REGISTRY[args.arch](args)  # what an older fairseq did not know yet
    args.encoder_embed_path = args.decoder_embed_path = None  # the words of a trained model are in its state
    words = {side: _words(len(state["model"][f"{side}.embed_tokens.weight"])) for side in ("encoder", "decoder")}
    task = Namespace(source_dictionary=words["encoder"], target_dictionary=words["decoder"])
    try:
        model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
        model = quantization_utils.quantize_model_scalar(model, args)  # as fairseq's tasks do
        model.load_state_dict(state["model"], model_cfg=args)
    except SystemExit as error:
        raise UserError(f"{str(error).removeprefix('error: ')}.") from None
    except RuntimeError as error:  # torch's, on names and sizes
        raise UserError(f"the checkpoint's tensors are not those of its model ({error}): save it again.") from None
    return model.eval()


def _words(size: int) -> Dictionary:
    """A dictionary of so many entries: a model asks for no more of it."""
    words = Dictionary()
    for index in range(size - len(words)):
        words.add_symbol(str(index))
    return words


def model_settings(state: dict[str, Any]) -> Namespace:
    """A copy of the flags that a checkpoint's model was built with, however old fairseq was that wrote it."""
    cfg = state.get("cfg")
    found = _plain(cfg).get("model") if cfg is not None else state.get("args")
    if isinstance(found, Mapping):
        return Namespace(**copy.deepcopy(dict(found)))
    return Namespace(**copy.deepcopy(vars(found))) if isinstance(found, Namespace) else Namespace()


def projections(
    place: str, args: Namespace, model: dict[str, Tensor], config: LinformerConfig
) -> list[LayerProjections]:
    """E and F of every layer of a place, as they start."""
    side = "encoder" if place == "encoder" else "decoder"
    layers = 1 + max(int(key.split(".")[2]) for key in model if key.startswith(f"{side}.layers."))
    longest = "max_target_positions" if place == "decoder" else "max_source_positions"
    heads, kept = getattr(args, f"{side}_attention_heads"), getattr(args, f"{side}_layers_to_keep", None)
    return config.projections(place, layers, heads, int(getattr(args, longest, None) or 1024), kept)


def _weights(place: str, layers: list[LayerProjections]) -> dict[str, Tensor]:
    """The entries of E and F in a model's state."""
    side, attention = PLACES[place]
    return {
        f"{side}.layers.{layer}.{attention}.{name}.weight": projection.weight.detach()
        for layer, pair in enumerate(layers)
        for name, projection in (("key_projection", pair.key), ("value_projection", pair.value))
        if hasattr(projection, "weight")
    }


def _plain(cfg: Any) -> dict[str, Any]:
    """A configuration as containers that any fairseq reads."""
    return OmegaConf.to_container(cfg) if isinstance(cfg, DictConfig) else dict(cfg or {})
