"""The flags of the Linformer architectures, and the projections that they describe."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from linformer_fairseq.modules import KINDS, LinearProjection, Projection
from linformer_fairseq.modules.projection import INITS

PLACES = ("encoder", "cross")
SHARINGS = ("none", "headwise", "key-value", "layerwise")

LayerProjections = tuple[Projection, Projection]
"""E and F of one layer."""


@dataclass
class LinformerConfig(FairseqDataclass):
    """Settings of the projections; the defaults are the paper's model at k = 64.

    The values come as a user typed them; `from_namespace` refuses what no model can be built from.
    """

    linformer_k: str = field(
        default="64",
        metadata={"help": "projected dimension k, one value or one a layer, e.g. 128,64,64,32,32,32"},
    )
    linformer_cross_k: Optional[str] = field(
        default=None,
        metadata={"help": "projected dimension of the cross-attention, given alike (default: as --linformer-k)"},
    )
    linformer_attention: str = field(
        default="encoder,cross",
        metadata={
            "help": "which attention is projected, any of encoder,cross: "
            "self-attention of the encoder, cross-attention of the decoder"
        },
    )
    linformer_sharing: ChoiceEnum(SHARINGS) = field(
        default="headwise",
        metadata={
            "help": "who shares a projection: none (E and F for every head), headwise (E and F a layer), "
            "key-value (E = F, one a layer), layerwise (one for keys and values of all layers)"
        },
    )
    linformer_projection: ChoiceEnum(tuple(KINDS)) = field(
        default="linear",
        metadata={
            "help": "kind of projection: linear (learned E and F), pooled-linear (mean of n/k neighbours plus a "
            "learned part that starts at zero), mean-pool, max-pool, conv (kernel = stride = N/k)"
        },
    )
    linformer_init: ChoiceEnum(INITS) = field(
        default="xavier",
        metadata={"help": "start of E and F of the linear projection; the other kinds have their own"},
    )
    linformer_mask_empty_slots: bool = field(
        default=False,
        metadata={
            "help": "linear projection: slot c takes part from source length c + 1 on "
            "(the pooling kinds always leave empty slots out)"
        },
    )
    linformer_freeze_projection: bool = field(
        default=False,
        metadata={"help": "keep E and F as they start, or as the checkpoint has them"},
    )

    @classmethod
    def from_namespace(cls, args: Namespace) -> "LinformerConfig":
        """Reads the flags from `args`; those that an older checkpoint lacks take their defaults.

        Raises:
            ValueError: an unknown name, or places that are not offered.
        """
        config = super().from_namespace(args)
        config.validate()
        return config

    @property
    def places(self) -> set[str]:
        """The attentions that are projected."""
        return {place.strip() for place in self.linformer_attention.split(",")}

    def validate(self) -> None:
        """Refuses settings of which no model can be built, whatever its size."""
        if "decoder" in self.places:
            raise ValueError(
                "--linformer-attention decoder is not offered: causal self-attention stays whole; use encoder,cross"
            )
        for place in sorted(self.places - set(PLACES)):
            raise ValueError(f"--linformer-attention knows {' and '.join(PLACES)}, not {place!r}")
        for flag, value, choices in (
            ("--linformer-sharing", self.linformer_sharing, SHARINGS),
            ("--linformer-projection", self.linformer_projection, tuple(KINDS)),
            ("--linformer-init", self.linformer_init, INITS),
        ):
            if value not in choices:
                raise ValueError(f"{flag} is one of {', '.join(choices)}, not {value!r}")
        if self.linformer_projection != "linear" and self.linformer_init != "xavier":
            raise ValueError(
                f"--linformer-init {self.linformer_init} needs --linformer-projection linear; "
                f"{self.linformer_projection} has a start of its own"
            )

    def projections(self, place: str, num_layers: int, num_heads: int, max_positions: int) -> list[LayerProjections]:
        """Builds E and F for every layer of a place, shared as asked for.

        Args:
            place: "encoder" or "cross".
            num_layers, num_heads: of the encoder, or of the decoder for cross-attention.
            max_positions: N, the longest source.

        Raises:
            ValueError: a k that is no number, below 1 or above N, or a list that does not fit the layers.
        """
        flag, text = "--linformer-k", self.linformer_k
        if place == "cross" and self.linformer_cross_k is not None:
            flag, text = "--linformer-cross-k", self.linformer_cross_k
        dims = _projected_dims(flag, text, num_layers, max_positions)
        heads = num_heads if self.linformer_sharing == "none" else None
        if self.linformer_sharing == "layerwise":
            if len(set(dims)) > 1:
                raise ValueError(f"--linformer-sharing layerwise needs one {flag} for all layers, not {text}")
            return [(self._projection(dims[0], max_positions, heads),) * 2] * num_layers
        layers = []
        for k in dims:
            key_projection = self._projection(k, max_positions, heads)
            shared = self.linformer_sharing == "key-value"
            layers.append((key_projection, key_projection if shared else self._projection(k, max_positions, heads)))
        return layers

    def _projection(self, k: int, max_positions: int, heads: int | None) -> Projection:
        kind = KINDS[self.linformer_projection]
        options: dict[str, Any] = {}
        if kind is LinearProjection:
            options = {"init": self.linformer_init, "mask_empty_slots": self.linformer_mask_empty_slots}
        projection = kind(k, max_positions, heads, **options)
        return projection.requires_grad_(not self.linformer_freeze_projection)


def _projected_dims(flag: str, text: str | int | list[int], num_layers: int, max_positions: int) -> list[int]:
    """The k of every layer, from "64" or "128,64,32", or as YAML gives them."""
    try:
        dims = [int(k) for k in (text if isinstance(text, list) else str(text).split(","))]
    except ValueError:
        raise ValueError(f"{flag} takes a whole number, or one for each layer (128,64,32), not {text!r}") from None
    if min(dims) < 1:
        raise ValueError(f"{flag} must be at least 1, not {min(dims)}")
    if max(dims) > max_positions:
        raise ValueError(f"{flag} {max(dims)} is larger than --max-source-positions {max_positions}; choose k <= N")
    if len(dims) == 1:
        return dims * num_layers
    if len(dims) != num_layers:
        raise ValueError(f"{flag} {text} gives {len(dims)} values for {num_layers} layers; give one, or one a layer")
    return dims
