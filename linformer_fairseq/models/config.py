"""The flags of the Linformer architectures, and the projections that they describe."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from linformer_fairseq.modules import KINDS, LinearProjection, Projection, TwoLevelPool
from linformer_fairseq.modules.projection import INITS, OPEN_SLOTS

PLACES = ("encoder", "cross", "decoder")
SHARINGS = ("none", "headwise", "key-value", "layerwise")


class LayerProjections(NamedTuple):
    """What one layer's attention meets instead of all tokens."""

    key: Projection
    """E."""
    value: Projection
    """F, or E again."""
    window: int = 0
    """Of causal attention: how many tokens, the last ones, a query meets one by one."""


@dataclass
class ProjectionConfig(FairseqDataclass):
    """Settings of the projections of a decoder alone, which are linear.

    The values come as a user typed them; `from_namespace` refuses what no model can be built from.
    """

    linformer_k: str = field(
        default="64",
        metadata={"help": "projected dimension k, one value or one a layer, e.g. 128,64,64,32,32,32"},
    )
    linformer_sharing: ChoiceEnum(SHARINGS) = field(
        default="headwise",
        metadata={
            "help": "who shares a projection: none (E and F for every head), headwise (E and F a layer), "
            "key-value (E = F, one a layer), layerwise (one for keys and values of all layers)"
        },
    )
    linformer_init: ChoiceEnum(INITS) = field(
        default="xavier",
        metadata={"help": "start of the E and F of linear projections"},
    )
    linformer_mask_empty_slots: bool = field(
        default=False,
        metadata={
            "help": "linear projections: slot c takes part from length c + 1 on, in causal attention once c + 1 tokens "
            "are older than the window"
        },
    )
    linformer_freeze_projection: bool = field(
        default=False,
        metadata={"help": "keep E and F as they start, or as the checkpoint has them"},
    )
    linformer_window: Optional[int] = field(
        default=None,
        metadata={
            "help": "causal attention: how many of its k are the last tokens, met one by one, and not slots of "
            "earlier ones (default: half)"
        },
    )

    @classmethod
    def from_namespace(cls, args: Namespace) -> "ProjectionConfig":
        """Reads the flags from `args`; those that an older checkpoint lacks take their defaults.

        Raises:
            ValueError: an unknown name, or flags that do not fit together.
        """
        config = super().from_namespace(args)
        config.validate()
        return config

    def validate(self) -> None:
        """Refuses settings of which no model can be built, whatever its size."""
        _check_choice("--linformer-sharing", self.linformer_sharing, SHARINGS)
        _check_choice("--linformer-init", self.linformer_init, INITS)
        if self.linformer_window is not None and self.linformer_window < 0:
            raise ValueError(f"--linformer-window must be at least 0, not {self.linformer_window}")

    def projections(
        self, place: str, num_layers: int, num_heads: int, max_positions: int, kept: str | None = None
    ) -> list[LayerProjections]:
        """Builds E and F for every layer of a place, shared as asked for.

        Args:
            place: "encoder", "cross" or "decoder".
            num_layers, num_heads: of the encoder, or of the decoder for its two attentions.
            max_positions: N, the longest source, or target for "decoder".
            kept: the layers kept of a deeper model ("0,2,4", fairseq's `--encoder-layers-to-keep`); a list with a k
                for each layer of that model is cut alike.

        Raises:
            ValueError: a k that is no number, below 1 or above N, a list that does not fit the layers, or a window
                that leaves no slot.
        """
        flag, text, advice = self._k_of(place)
        longest = "--max-target-positions" if place == "decoder" else "--max-source-positions"
        dims = _projected_dims(flag, _listed(text), advice, num_layers, longest, max_positions, kept)
        heads = num_heads if self.linformer_sharing == "none" else None
        if self.linformer_sharing == "layerwise":
            if len(set(dims)) > 1:
                raise ValueError(f"--linformer-sharing layerwise needs one {flag} for all layers, not {text}{advice}")
            window = self._window(flag, place, dims[0])
            shared_by_all = self._projection(place, dims[0] - window, max_positions, heads)
            return [LayerProjections(shared_by_all, shared_by_all, window)] * num_layers
        layers = []
        for k in dims:
            window = self._window(flag, place, k)
            key_projection = self._projection(place, k - window, max_positions, heads)
            # without parameters one projection does the work of two
            shared = self.linformer_sharing == "key-value" or not list(key_projection.parameters())
            value_projection = key_projection if shared else self._projection(place, k - window, max_positions, heads)
            layers.append(LayerProjections(key_projection, value_projection, window))
        return layers

    def _k_of(self, place: str) -> tuple[str, str, str]:
        """The flag that says the k of a place, its value, and what else can be done where it does not fit."""
        return "--linformer-k", self.linformer_k, ""

    def _kind_of(self, place: str) -> str:
        return "linear"

    def _window(self, flag: str, place: str, k: int) -> int:
        """How many of k are tokens."""
        if place != "decoder":
            return 0
        window = k // 2 if self.linformer_window is None else self.linformer_window
        if window >= k:
            raise ValueError(f"--linformer-window {window} leaves no slot of {flag} {k}; choose a smaller one")
        return window

    def _projection(self, place: str, k: int, max_positions: int, heads: int | None) -> Projection:
        kind = KINDS[self._kind_of(place)]
        options = {}
        if kind is LinearProjection:
            options = {"init": self.linformer_init, "mask_empty_slots": self.linformer_mask_empty_slots}
        if kind is TwoLevelPool:
            options = {"open_slots": self.linformer_open_slots}
        projection = kind(k, max_positions, heads, **options)
        return projection.requires_grad_(not self.linformer_freeze_projection)


@dataclass
class LinformerConfig(ProjectionConfig):
    """Settings of the projections of a translation model; the defaults are what translates best at k = 8 and 16."""

    linformer_cross_k: Optional[str] = field(
        default=None,
        metadata={"help": "projected dimension of the cross-attention, given alike (default: as --linformer-k)"},
    )
    linformer_decoder_k: Optional[str] = field(
        default=None,
        metadata={"help": "projected dimension of the decoder's self-attention (default: as --linformer-k)"},
    )
    linformer_attention: str = field(
        default="encoder,cross",
        metadata={
            "help": "which attention is projected, any of encoder,cross,decoder: self-attention of the encoder, "
            "cross-attention and causal self-attention of the decoder"
        },
    )
    linformer_projection: ChoiceEnum(tuple(KINDS)) = field(
        default="two-level",
        metadata={
            "help": "kind of projection: two-level (means of n/k neighbours, and every query meets the tokens of its "
            "best slots one by one), linear (learned E and F: the paper), pooled-linear (means of n/k neighbours plus "
            "a learned part that starts at zero), mean-pool, max-pool, conv (kernel = stride = N/k); all but linear "
            "have starts of their own and leave empty slots out; the decoder's self-attention is always linear"
        },
    )
    linformer_open_slots: int = field(
        default=OPEN_SLOTS,
        metadata={"help": "two-level: slots that a query opens, to meet their tokens one by one"},
    )

    @property
    def places(self) -> set[str]:
        """The attentions that are projected."""
        return {place.strip() for place in _listed(self.linformer_attention).split(",")}

    def validate(self) -> None:
        super().validate()
        for place in sorted(self.places - set(PLACES)):
            raise ValueError(f"--linformer-attention knows {', '.join(PLACES[:-1])} and {PLACES[-1]}, not {place!r}")
        kind = self.linformer_projection
        _check_choice("--linformer-projection", kind, tuple(KINDS))
        if self.linformer_open_slots < 1:
            raise ValueError(f"--linformer-open-slots must be at least 1, not {self.linformer_open_slots}")
        for place, k in (("cross", self.linformer_cross_k), ("decoder", self.linformer_decoder_k)):
            if k is not None and place not in self.places:
                raise ValueError(f"--linformer-{place}-k needs {place} among --linformer-attention")
        if self.linformer_window and "decoder" not in self.places:
            raise ValueError("--linformer-window needs decoder among --linformer-attention")
        if kind != "linear" and self.linformer_init != "xavier" and "decoder" not in self.places:
            raise ValueError(
                f"--linformer-init {self.linformer_init} needs --linformer-projection linear; {kind} has a start of "
                "its own"
            )

    def _k_of(self, place: str) -> tuple[str, str, str]:
        own = {"cross": self.linformer_cross_k, "decoder": self.linformer_decoder_k}
        if place not in own:
            return super()._k_of(place)
        flag = f"--linformer-{place}-k"
        if own[place] is not None:
            return flag, own[place], ""
        return "--linformer-k", self.linformer_k, f", or another {flag} for {_NAMES[place]}"

    def _kind_of(self, place: str) -> str:
        return "linear" if place == "decoder" else self.linformer_projection


_NAMES = {"cross": "cross-attention", "decoder": "the decoder's self-attention"}


def _check_choice(flag: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{flag} is one of {', '.join(choices)}, not {value!r}")


def _listed(value: str | int | list[str | int]) -> str:
    """A flag's list as text, where YAML may have given it as a list or a number."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _projected_dims(
    flag: str, text: str, advice: str, num_layers: int, longest: str, max_positions: int, kept: str | None
) -> list[int]:
    """The k of every layer, from "64" or "128,64,32"; `longest` is the flag that says N, `advice` ends a refusal."""
    try:
        dims = [int(k) for k in text.split(",")]
    except ValueError:
        raise ValueError(f"{flag} takes a whole number, or one for each layer (128,64,32), not {text!r}") from None
    if min(dims) < 1:
        raise ValueError(f"{flag} must be at least 1, not {min(dims)}")
    if max(dims) > max_positions:
        raise ValueError(f"{flag} {max(dims)} is larger than {longest} {max_positions}; choose k <= N{advice}")
    if len(dims) == 1:
        return dims * num_layers
    if kept and len(dims) > max(layers := sorted(map(int, kept.split(",")))):
        dims = [dims[layer] for layer in layers]
    if len(dims) != num_layers:
        raise ValueError(
            f"{flag} {text} gives {len(dims)} values for {num_layers} layers; give one, or one a layer{advice}"
        )
    return dims
