"""From the checkpoint of a Transformer to that of a model with projected attention."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq import quantization_utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.models.transformer import TransformerModel

from linformer_fairseq.checkpoints import model_settings, plain_cfg
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import LinformerConfig
from linformer_fairseq.models.layers import FAST_PATH_PARAMETERS
from linformer_fairseq.models.linformer_transformer import PRESETS
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules.registry import DEFAULT_KIND

MODEL = "linformer_transformer"


def convert_state(state: dict[str, Any], path: Path, config: LinformerConfig) -> dict[str, Any]:
    """Returns the state of a checkpoint converted to another kind of attention, with fresh projections.

    Args:
        state: the checkpoint of a `transformer`; it is left unchanged.
        path: the checkpoint's file, for a refusal.
        config: the new model's attention.

    Raises:
        UserError: a checkpoint of another model, or settings of which no model can be built.
    """
    args = model_settings(state)
    name = getattr(args, "_name", None) or getattr(args, "arch", None)
    if (
        ARCH_MODEL_REGISTRY.get(name) is not TransformerModel
        or "encoder.layers.0.self_attn.k_proj.weight" not in state["model"]
    ):
        raise UserError(
            f"{path} holds {f'a {name}' if name else 'no model of a known name'}: name the checkpoint of a "
            "translation model of fairseq's transformer."
        )
    args._name = MODEL
    args.arch = _architecture(getattr(args, "arch", None) or name, config.linformer_projection)
    for flag, value in vars(config).items():
        if not flag.startswith("_"):
            setattr(args, flag, value)
    weights = {
        key: tensor for key, tensor in state["model"].items() if key.rpartition(".")[2] not in FAST_PATH_PARAMETERS
    }
    if state.get("cfg") is None:  # of fairseq before 0.10
        new = {**state, "model": weights, "args": args}
    else:
        new = {**state, "model": weights, "cfg": {**plain_cfg(state["cfg"]), "model": args}}
    weights |= projection_weights(build_model(new).state_dict())
    return new


def _architecture(arch: str, kind: str) -> str:
    """Returns the architecture of a converted model, for that of the Transformer and the new kind of attention."""
    prefixes = {own: prefix for prefix, own in PRESETS.items()}
    prefix = prefixes.get(kind, prefixes[DEFAULT_KIND])
    return prefix + arch if prefix + arch in ARCH_MODEL_REGISTRY else f"{prefix}transformer"


def build_model(state: dict[str, Any]) -> BaseFairseqModel:
    """Returns the model of a converted checkpoint in evaluation mode; projections that are not in it are fresh.

    Raises:
        UserError: settings that do not go together.
    """
    args = model_settings(state)
    ARCH_CONFIG_REGISTRY[args.arch](args)  # adds the settings that an older fairseq did not know
    args.encoder_embed_path = args.decoder_embed_path = None  # the embeddings of a trained model are in its state
    words = {side: _words(len(state["model"][f"{side}.embed_tokens.weight"])) for side in ("encoder", "decoder")}
    task = Namespace(source_dictionary=words["encoder"], target_dictionary=words["decoder"])
    try:
        model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
        model = quantization_utils.quantize_model_scalar(model, args)  # as fairseq's tasks do
        model.load_state_dict({**projection_weights(model.state_dict()), **state["model"]}, model_cfg=args)
    except SystemExit as error:
        raise UserError(f"{str(error).removeprefix('error: ')}.") from None
    except RuntimeError as error:  # torch's, on names and sizes
        raise UserError(f"the checkpoint's tensors are not those of its model ({error}): save it again.") from None
    return model.eval()


def _words(size: int) -> Dictionary:
    """Returns a dictionary of this size."""
    words = Dictionary()
    for index in range(size - len(words)):
        words.add_symbol(str(index))
    return words
