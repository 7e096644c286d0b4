"""Records the attention maps that a model computes."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.models import BaseFairseqModel
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

PLACES = {
    "encoder": ("encoder", "self_attn"),
    "cross": ("decoder", "encoder_attn"),
    "decoder": ("decoder", "self_attn"),
}
"""For every place of attention in a Transformer: the side of the model and the attribute of its layers."""


@dataclass(frozen=True)
class Attention:
    """One attention module of a model; `place` is a key of `PLACES`."""

    place: str
    layer: int
    module: MultiheadAttention


def find_attentions(model: BaseFairseqModel) -> list[Attention]:
    """Returns the attention modules of a translation or language model, masked or not, place by place and layer by
    layer."""
    return [
        Attention(place, number, module)
        for place, (side, name) in PLACES.items()
        for number, layer in enumerate(_layers(getattr(model, side, None)))
        if isinstance(module := getattr(layer, name, None), MultiheadAttention)
    ]


def _layers(side: nn.Module | None) -> Iterable[nn.Module]:
    """Returns the layers of an encoder or decoder; in RoBERTa's they are those of the encoder within."""
    layers: Iterable[nn.Module] = getattr(getattr(side, "sentence_encoder", side), "layers", ())
    return layers


@contextmanager
def recorded_maps(attentions: list[Attention]) -> Iterator[dict[Attention, Tensor]]:
    """Records the attention weights of each head in every forward pass.

    Yields:
        The weights over tokens of the last pass, (H, B, T, n), by attention module; projected attention has them too.
    """
    maps: dict[Attention, Tensor] = {}
    with ExitStack() as stack:
        for attention in attentions:
            module = attention.module
            # fairseq would call torch's own attention, which returns only the mean over heads
            stack.callback(setattr, module, "skip_embed_dim_check", module.skip_embed_dim_check)
            module.skip_embed_dim_check = True
            stack.enter_context(module.register_forward_pre_hook(_ask_for_weights, with_kwargs=True))
            stack.enter_context(module.register_forward_hook(partial(_keep, maps, attention)))
        yield maps


def _ask_for_weights(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return args, {**kwargs, "need_weights": True, "need_head_weights": True}


def _keep(maps: dict[Attention, Tensor], attention: Attention, module: Any, args: Any, output: Any) -> None:
    maps[attention] = output[1].detach()
