"""Replaces fairseq's attention in a model that fairseq has built, and what its encoders and decoders do with it."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple, TypeVar

from fairseq.distributed import FullyShardedDataParallel
from fairseq.models import FairseqDecoder, FairseqEncoder, FairseqEncoderDecoderModel
from fairseq.models.nat import FairseqNATDecoder
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from linformer_fairseq.models.config import UNKNOWN_LENGTH, AttentionBuilder, AttentionConfig, one_sentence
from linformer_fairseq.modules import BaseAttention

KEPT = ("q_proj", "k_proj", "v_proj", "out_proj", "dropout_module")
"""What a replacement takes over: the very modules, with their names, tied weights, hooks and quantisation noise."""
FAST_PATH_PARAMETERS = tuple(
    f"{name}_{kind}" for name in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
)
"""Copies of an encoder layer's weights that fairseq 0.12.2 keeps for a fused kernel."""
NO_LAYER = -1
"""As `alignment_layer`: no layer's attention weights, whose (T, n) matrix per head would cost as much as full
attention."""
NO_WEIGHTS = "no weights"
"""As a key of a search's incremental state: nobody reads the weights."""

Extension = TypeVar("Extension")


class Site(NamedTuple):
    """Where a model has an attention of fairseq's."""

    layer: nn.Module
    name: str
    """By which the layer calls it."""
    side: nn.Module
    """The encoder or decoder that it belongs to, or the model itself."""
    place: str

    @property
    def attention(self) -> MultiheadAttention:
        return getattr(self.layer, self.name)


def swap(model: nn.Module, config: AttentionConfig, args: object = None) -> set[str]:
    """Replaces fairseq's attention in a model, in place, by that of another kind.

    Weights keep their names, and texts that the new kind gives full attention keep their outputs. It must be done
    before an optimiser gets the weights, as there may be new ones.

    Args:
        model: any model of fairseq's; its other modules stay as they are.
        config: the kind of attention in each place.
        args: the model's flags, for its longest source where no encoder says it.

    Returns:
        The places whose attention was replaced.

    Raises:
        ValueError: a model or an attention of it that cannot be replaced by this kind, or flags that do not fit
            together.
    """
    found, new = list(_sites(model)), dict[nn.Module, BaseAttention]()
    if not found and any(isinstance(module, BaseAttention) for module in model.modules()):
        raise ValueError(f"{type(model).__name__} has another attention already: build fairseq's own architecture")
    if not found:
        raise ValueError(f"{type(model).__name__} has no attention of fairseq's, MultiheadAttention, to replace")
    config = config.in_model({site.place for site in found})
    for place in sorted(config.places):
        for side in dict.fromkeys(site.side for site in found if site.place == place):
            # layers may share an attention, as they then share what replaces it
            own = {site.attention: site for site in found if site.place == place and site.side is side}
            kept = getattr(args, f"{'encoder' if place == 'encoder' else 'decoder'}_layers_to_keep", None)
            builders = config.attention(place, len(own), _longest(model, side, place, args), kept)
            new |= {old: _replacement(site, build) for (old, site), build in zip(own.items(), builders, strict=True)}
    owns_weights = any(name.split(".")[0] not in KEPT for x in new.values() for name, _ in x.named_parameters())
    if owns_weights and any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise ValueError(
            "--ddp-backend fully_sharded takes no attention with weights of its own: give another --ddp-backend"
        )
    replaced = [(site, new[site.attention]) for site in found if site.attention in new]
    for site, attention in replaced:
        setattr(site.layer, site.name, attention)
        if isinstance(site.layer, TransformerEncoderLayerBase):
            _close_fast_path(site.layer)
    for decoder in [module for module in model.modules() if _is_transformer_decoder(module)]:
        extend(decoder, SwappedDecoder).is_causal_by_itself = "decoder" in config.places
    for site, attention in replaced:
        attention.needs_future_mask = attention.causal and not isinstance(site.side, SwappedDecoder)
    leave_out_weights(model)
    for encoder, decoder in _pairs(model):
        # where a decoder attends to itself and the source at once, it needs a row for each of its own
        if "cross" in config.places and isinstance(decoder, SwappedDecoder) and not decoder.cross_self_attention:
            extend(encoder, SingleRows)
    return config.places


def places_of(model: nn.Module) -> set[str]:
    """The places where a model has attention of fairseq's that can be replaced, or has been."""
    replaced: set[str] = {module.place for module in model.modules() if isinstance(module, BaseAttention)}
    return replaced | {site.place for site in _sites(model)}


def leave_out_weights(model: nn.Module) -> None:
    """Leaves it to fairseq's Transformer decoders to ask for the weights of the one layer that they return, as their
    layers compute those of all in evaluation."""
    decoders = (module for module in model.modules() if isinstance(module, SwappedDecoder))
    for module in (layer for decoder in decoders for layer in decoder.modules()):
        if isinstance(getattr(module, "encoder_attn", None), BaseAttention):
            setattr(module, "need_attn", False)  # noqa: B010  which mypy takes for a module


def _sites(model: nn.Module) -> Iterator[Site]:
    """Finds every attention of fairseq's, but for the self-attention of non-autoregressive decoders, which hides no
    future and stays."""
    modules = dict(model.named_modules())
    for path, layer in modules.items():
        for name, attention in layer.named_children():
            if type(attention) is not MultiheadAttention:
                continue
            steps = path.split(".")
            above = (modules[".".join(steps[:depth])] for depth in range(len(steps), 0, -1))
            side = next((x for x in above if isinstance(x, FairseqEncoder | FairseqDecoder)), model)
            if attention.encoder_decoder_attention:
                yield Site(layer, name, side, "cross")
            elif not isinstance(side, FairseqNATDecoder) and not _is_between_channels(attention, side):
                yield Site(layer, name, side, "decoder" if isinstance(side, FairseqDecoder) else "encoder")


def _is_between_channels(attention: MultiheadAttention, side: nn.Module) -> bool:
    """Whether attention is from one channel of a dialogue to another, which stays fairseq's."""
    itself = attention.self_attention or getattr(side, "cross_self_attention", False)
    return isinstance(side, FairseqDecoder) and not itself


def _replacement(site: Site, build: AttentionBuilder) -> BaseAttention:
    """Builds the attention that stands for fairseq's at a site."""
    old, place = site.attention, site.place
    for flag, given in {
        "bias_kv": old.bias_k is not None,
        "zero_attn": old.add_zero_attn,
        "xformers_att_config": getattr(old, "use_xformers", False),
    }.items():
        if given:
            raise ValueError(
                f"{type(site.side).__name__} has attention with {flag}, which has no counterpart: leave it out"
            )
    if place == "decoder" and not old.self_attention:
        raise ValueError("--cross-self-attention does not go with decoder in --linformer-attention; leave one out")
    new = build(
        old.embed_dim,
        old.num_heads,
        kdim=old.kdim,
        vdim=old.vdim,
        dropout=old.dropout_module.p,
        bias=old.q_proj.bias is not None,
        self_attention=place != "cross",
        encoder_decoder_attention=place == "cross",
    )
    for name in KEPT:
        setattr(new, name, getattr(old, name))
    weight = old.q_proj.weight
    return new.to(weight.device, weight.dtype).train(old.training)


def _longest(model: nn.Module, side: nn.Module, place: str, args: object) -> int | None:
    """The tokens of the longest text whose keys an attention sees; None where there is no limit."""
    encoders = (encoder for encoder, decoder in _pairs(model) if decoder is side)
    said: Any = getattr(next(encoders, None) if place == "cross" else side, "max_positions", None)
    try:
        longest = said() if callable(said) else said
    except NotImplementedError:
        longest = None
    if not isinstance(longest, int) or longest >= UNKNOWN_LENGTH:
        longest = getattr(args, f"max_{'target' if place == 'decoder' else 'source'}_positions", None)
    return longest if isinstance(longest, int) and longest < UNKNOWN_LENGTH else None


def _pairs(model: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """The encoders of a model, each with its decoder."""
    return [(x.encoder, x.decoder) for x in model.modules() if isinstance(x, FairseqEncoderDecoderModel)]


def _is_transformer_decoder(module: nn.Module) -> bool:
    """Whether a module decodes as fairseq's Transformer does, from left to right and layer by layer."""
    name = "extract_features_scriptable"
    same = getattr(type(module), name, None) is getattr(TransformerDecoderBase, name)
    return same and not isinstance(module, FairseqNATDecoder)


def _close_fast_path(layer: nn.Module) -> None:
    """Keeps fairseq 0.12.2 from computing a loaded layer with a fused kernel that knows full attention only, and drops
    the copies of weights that it would use, so that checkpoints are the same on every fairseq."""
    setattr(layer, "can_use_fastpath", False)  # noqa: B010
    for name in FAST_PATH_PARAMETERS:
        if hasattr(layer, name):
            delattr(layer, name)
    layer._register_load_state_dict_pre_hook(_drop_copies)


def _drop_copies(state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in FAST_PATH_PARAMETERS:
        state_dict.pop(prefix + name, None)


def extend(module: nn.Module, extension: type[Extension]) -> Extension:
    """Makes a module, in place, one of a subclass of its class and of `extension`."""
    if not isinstance(module, extension):
        module.__class__ = _subclass((extension, type(module)))
    return module  # type: ignore[return-value]


@cache
def _subclass(bases: tuple[type, type]) -> type:
    extension, base = bases

    def reduced(module: nn.Module) -> tuple[Any, ...]:
        return _blank, (bases,), vars(module)

    return type(base.__name__, bases, {"__doc__": extension.__doc__, "__reduce__": reduced})


def _blank(bases: tuple[type, type]) -> nn.Module:
    """An object of a subclass before it has a state, for copies and pickles, which find no such class by its name."""
    subclass: Any = _subclass(bases)
    return subclass.__new__(subclass)


class SingleRows:
    """An encoder that leaves it to cross-attention to share the row of a sentence among the hypotheses of a search, as
    fairseq's BART does, instead of repeating it for each."""

    def reorder_encoder_out(self, encoder_out: Any, new_order: Tensor) -> Any:
        """Returns the output itself: cross-attention keeps the rows of the sentences that stay."""
        return encoder_out


class SwappedDecoder(TransformerDecoderBase):
    """A decoder that computes attention weights only where somebody may read them.

    Without `alignment_layer` they are left out in training unless `trains_alignments`, and in a search after
    `make_generation_fast_(need_attn=False)` or where `NO_WEIGHTS` is in its incremental state.
    """

    is_causal_by_itself = False
    """Whether self-attention hides the future without a mask."""
    trains_alignments = False
    """Whether training returns the last layer's attention weights, for a criterion that reads them."""
    needs_weights = True
    """Whether a search returns them."""
    ends_in_one_sentence = False
    """Whether a refusal ends the program, as `one_sentence` does: in fairseq's commands."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        with one_sentence() if self.ends_in_one_sentence else nullcontext():
            return super().forward(*arguments, **options)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor | None:
        """None where self-attention hides the future by itself, without a (T, T) tensor."""
        return None if self.is_causal_by_itself else super().buffered_future_mask(tensor)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]] | None]:
        if full_context_alignment and self.is_causal_by_itself:
            raise ValueError("full_context_alignment needs a decoder with full self-attention")
        if alignment_layer is None and not self._gives_weights(incremental_state):
            alignment_layer = NO_LAYER
        return super().extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )

    def _gives_weights(self, incremental_state: dict[str, Any] | None) -> bool:
        if self.training:
            return self.trains_alignments
        return incremental_state is None or (self.needs_weights and NO_WEIGHTS not in incremental_state)

    def make_generation_fast_(self, need_attn: bool = False, **options: Any) -> None:
        """Leaves the last layer's weights out of searches from now on, unless they are needed. fairseq-generate calls
        it, and needs them where it prints alignments."""
        self.needs_weights = need_attn
