"""The kinds of attention by the names of `--linformer-projection`.

A kind is an attention class and a dataclass of its options. Whoever builds attention, or writes flags and configuration
files, asks this registry and knows no kind by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from linformer_fairseq.modules.base import BaseAttention

Attention = TypeVar("Attention", bound="type[BaseAttention]")


@dataclass(frozen=True)
class LayerShapes:
    """The layers that an attention is built for."""

    projected_dims: tuple[int, ...]  # k of every layer; 0 for kinds that do not use it
    max_positions: int | None  # N, the longest sentence in tokens; None where any may come
    flag: str = "--linformer-k"  # which said the projected dimensions, for refusals
    advice: str = ""  # how a refusal of the projected dimensions ends


@dataclass
class AttentionOptions:
    """The options of a kind of attention.

    Every field is a flag of the models: `linformer_open_slots` is `--linformer-open-slots`. Its metadata holds the
    flag's `help`, its `choices` where there are some, and, as `unrecorded`, the value of models whose checkpoints are
    older than the flag.
    """

    uses_k: ClassVar[bool] = True  # whether the projected dimension k means anything to the kind
    needs_length: ClassVar[bool] = False  # whether the kind cannot be built without a longest sentence
    follows_length: ClassVar[bool] = False  # whether the attention to any text depends on how long the longest may be
    k_within_length: ClassVar[bool] = False  # whether k must not be above N; otherwise it is only a maximum

    def validate(self) -> None:
        """Refuses values of which no attention can be built, whatever its size.

        Raises:
            ValueError: naming the flag.
        """
        for option in fields(self):
            choices, value = option.metadata.get("choices"), getattr(self, option.name)
            if choices and value not in choices:
                raise ValueError(f"{flag_of(option.name)} is one of {', '.join(map(str, choices))}, not {value!r}")

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        """The arguments of the attention of every layer, beside those that fairseq passes.

        Raises:
            ValueError: options that do not fit the layers.
        """
        return [{"projected_dim": k, "max_positions": layers.max_positions} for k in layers.projected_dims]


def flag_of(option: str) -> str:
    """The flag of an option: `--linformer-open-slots` for `linformer_open_slots`."""
    return f"--{option.replace('_', '-')}"


def check_dims(projected_dim: int) -> None:
    """Refuses, with a ValueError, a projected dimension k below 1."""
    if projected_dim < 1:
        raise ValueError(f"the projected dimension k must be at least 1, not {projected_dim}")


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of attention."""

    name: str
    attention: "type[BaseAttention]"
    options: type[AttentionOptions]
    help: str  # what it is, in the help of `--linformer-projection`
    defaults: Mapping[str, Any]  # for options of other kinds where this kind is chosen

    @property
    def fields(self) -> tuple[Field[Any], ...]:
        """Its options."""
        return fields(self.options)

    def options_from(self, settings: object) -> AttentionOptions:
        """Reads the options of this kind from the attributes of `settings`."""
        return self.options(**{option.name: getattr(settings, option.name) for option in self.fields})


KINDS: dict[str, Kind] = {}
"""The kinds of the encoder's self-attention."""
CROSS_KINDS: dict[str, Kind] = {}
"""Those of them that cross-attention may have as well."""
CAUSAL_KINDS: dict[str, Kind] = {}
"""The kinds of the decoder's self-attention."""
KINDS_AT: Mapping[str, Mapping[str, Kind]] = {"encoder": KINDS, "cross": CROSS_KINDS, "decoder": CAUSAL_KINDS}
"""The kinds by the place in a model."""
WHEN_REGISTERED: list[Callable[[], None]] = []
"""What is called after each kind that is registered, as its options are flags of models that may be there already."""
DEFAULT_KIND = "linear"
"""The kind of attention where nothing else is said, and that of a decoder whose kind has no causal form."""


def register_attention(
    name: str,
    options: type[AttentionOptions],
    help: str = "",
    *,
    causal: bool = False,
    defaults: Mapping[str, Any] | None = None,
    self_attention_only: bool = False,
) -> Callable[[Attention], Attention]:
    """Decorates a class of attention with the name of a kind.

    Args:
        causal: it is a kind of the decoder's self-attention, and otherwise one of encoder and cross-attention.
        defaults: as in `Kind`.
        self_attention_only: it is for the encoder's self-attention, and not for cross-attention.
    """

    def register(attention: Attention) -> Attention:
        kinds = CAUSAL_KINDS if causal else KINDS
        if name in kinds:
            raise ValueError(f"there is a kind {name!r} of attention already; choose another name")
        kinds[name] = Kind(name, attention, options, help, defaults or {})
        if not causal and not self_attention_only:
            CROSS_KINDS[name] = kinds[name]
        for call in WHEN_REGISTERED:
            call()
        return attention

    return register
