"""The flags of the architectures, and the attention that they describe."""

from argparse import ArgumentParser, _ArgumentGroup
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields, make_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, Optional, Union, get_args

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass

from linformer_fairseq.models.architectures import PRESETS
from linformer_fairseq.modules import CAUSAL_KINDS, KINDS, BaseAttention
from linformer_fairseq.modules.registry import (
    DEFAULT_KIND,
    Kind,
    LayerShapes,
    causal_kind,
    flag_of,
    for_self_attention_alone,
)
from linformer_fairseq.modules.value_convolution import check_width

PLACES: tuple[str, ...] = ("encoder", "cross", "decoder")
_PLACE_NAMES = {"cross": "cross-attention", "decoder": "the decoder's self-attention"}

AttentionBuilder = Callable[..., BaseAttention]
"""Builds the attention of a layer from the arguments that fairseq passes."""


@dataclass
class AttentionConfig(FairseqDataclass):
    """The flags that all models have; `with_kinds` adds the options of the kinds of attention.

    The values come as a user typed them; `from_namespace` refuses what no model can be built from.
    """

    # without annotations, of which fairseq would make flags
    _places = PLACES
    """The places that a model has; options for others alone are left out."""
    _defaults = dict[str, Any]()  # noqa: RUF012
    """Defaults of options by name, where they differ from the kind's own."""
    _has_kinds = False

    linformer_k: str = field(
        default="64",
        metadata={"help": "projected dimension k, one value or one per layer, e.g. 128,64,64,32,32,32"},
    )

    @classmethod
    def with_kinds(cls) -> "type[AttentionConfig]":
        """This dataclass with the options of all kinds of attention that are registered by now.

        A flag that chooses a kind has the registered ones as `kinds` in its metadata, and `{}` for them in its help.
        """
        kinds = (kind for choice in _choices(cls) for kind in choice.metadata["kinds"].values())
        # mypy takes the class for one of its objects, which cannot be hashed
        return cls if cls._has_kinds else _with_options(cls, tuple(kinds))  # type: ignore[arg-type]

    @classmethod
    def from_namespace(cls, args: object) -> "AttentionConfig":
        """Reads the flags from `args`; those that an older checkpoint lacks take their defaults.

        Raises:
            ValueError: an unknown name, or flags that do not fit together.
        """
        complete = cls.with_kinds()
        config = super(AttentionConfig, complete).from_namespace(args)
        config.validate()
        return config

    def validate(self) -> None:
        """Refuses settings of which no model can be built, whatever its size."""
        for choice in _choices(type(self)):
            kinds, name = choice.metadata["kinds"], getattr(self, choice.name)
            if name is not None and name not in kinds:
                raise ValueError(f"{flag_of(choice.name)} is one of {', '.join(kinds)}, not {name!r}")
        if width := getattr(self, "linformer_value_convolution", 0):
            check_width(width)
        self._check_effects()
        for place in sorted(self.places):
            self.kind_of(place).options_from(self).validate()

    def attention(
        self,
        place: str,
        num_layers: int,
        max_positions: int,
        kept: str | None = None,
    ) -> list[AttentionBuilder]:
        """The attention of every layer of a place.

        Args:
            place: "encoder", "cross" or "decoder".
            num_layers: of the encoder, or of the decoder for its two attentions.
            max_positions: N, the longest source, or target for "decoder".
            kept: the layers kept of a deeper model ("0,2,4", fairseq's `--encoder-layers-to-keep`); a list with a k
                for each layer of that model is cut in the same way.

        Raises:
            ValueError: a k that is no number, below 1 or above the N of learned projections, a list that does not fit
                the layers, or options that do not fit k.
        """
        flag, text, advice = self._k_of(place)
        kind = self.kind_of(place)
        dims = (0,) * num_layers
        if kind.options.uses_k:
            dims = _projected_dims(flag, _listed(text), advice, num_layers, kept)
        if kind.options.k_within_length and max(dims) > max_positions:
            longest = f"{self._longest_of(place)} {max_positions}"
            raise ValueError(f"{flag} {max(dims)} is larger than {longest}; choose k <= N{advice}")
        layers = LayerShapes(dims, max_positions, flag, advice)
        own = self._arguments_of(place)
        return [partial(kind.attention, **arguments, **own) for arguments in kind.options_from(self).arguments(layers)]

    @property
    def used_options(self) -> set[str]:
        """The names of the options of the kinds of attention in use."""
        return {option.name for place in self.places for option in self.kind_of(place).fields}

    @property
    def exact_below(self) -> int:
        """The length below which texts get full attention whatever k is; 0 where no kind here does that."""
        name = "linformer_exact_below"
        return getattr(self, name) if name in self.used_options else 0

    @property
    def places(self) -> set[str]:
        """The places whose attention is not fairseq's full attention."""
        return set(self._places)

    def kind_of(self, place: str) -> Kind:
        """The kind of attention at a place."""
        raise NotImplementedError

    def _arguments_of(self, place: str) -> dict[str, Any]:
        """The arguments that attention of every kind has at a place."""
        return {}

    def _k_of(self, place: str) -> tuple[str, str, str]:
        """The flag that says the k of a place, its value, and what else can be done where it does not fit."""
        return "--linformer-k", self.linformer_k, ""

    def _longest_of(self, place: str) -> str:
        """The flag that says the longest sentence of a place."""
        return "--max-target-positions" if place == "decoder" else "--max-source-positions"

    def _check_effects(self) -> None:
        """Refuses a flag that has no effect on this attention, unless its value is the default of some kind."""
        for flag in fields(self):
            value = getattr(self, flag.name)
            defaults = {flag.default, *(kind.defaults.get(flag.name) for kind in KINDS.values())}
            if value is None or _listed(value) in map(str, defaults):
                continue
            users = self._users(flag)
            places = [place for place in users if place in self.places]
            if any(self.kind_of(place).name in users[place] for place in places):
                continue
            given = flag_of(flag.name) if value is True else f"{flag_of(flag.name)} {_listed(value)}"
            leave = f"leave it out (out of a checkpoint with --model-overrides \"{{'{flag.name}': {flag.default!r}}}\")"
            if not places:
                needed = _either(users)
                raise ValueError(
                    f"{given} has no effect without {needed} among --linformer-attention: {leave}, or add {needed}"
                )
            in_use = dict.fromkeys(self.kind_of(place).name for place in places)
            fitting = dict.fromkeys(kind for place in places for kind in users[place])
            of_decoder = places == ["decoder"] and hasattr(self, "linformer_decoder_projection")
            choice = "--linformer-decoder-projection" if of_decoder else "--linformer-projection"
            raise ValueError(
                f"{given} has no effect on {' and '.join(in_use)} attention: {leave}, or choose {choice} "
                f"{_either(fitting)}"
            )

    def _users(self, flag: Field[Any]) -> dict[str, list[str]]:
        """The kinds of attention that a flag has an effect on, by the place where it may have one."""
        options = {option.name for kinds in (KINDS, CAUSAL_KINDS) for kind in kinds.values() for option in kind.fields}

        def uses(kind: Kind, place: str) -> bool:
            if flag.name.endswith("_k"):
                return kind.options.uses_k and self._k_of(place)[0] == flag_of(flag.name)
            return flag.name not in options or flag.name in {option.name for option in kind.fields}

        users = {
            place: [kind.name for kind in _kinds_at(place) if uses(kind, place)]
            for place in self._places
            if flag.metadata.get("place") in (None, place)
        }
        return {place: kinds for place, kinds in users.items() if kinds}


def _kinds_at(place: str) -> list[Kind]:
    """The kinds of attention that a place may have."""
    if place == "decoder":
        return list(CAUSAL_KINDS.values())
    return [kind for kind in KINDS.values() if place == "encoder" or not kind.self_attention_only]


def _choices(config: type[AttentionConfig]) -> list[Field[Any]]:
    """The flags of a configuration that choose a kind."""
    return [flag for flag in fields(config) if "kinds" in flag.metadata]


@cache
def _with_options(config: type[AttentionConfig], kinds: tuple[Kind, ...]) -> type[AttentionConfig]:
    """The configuration with the options of these kinds, which are those of its flags that choose one."""
    flags: dict[str, tuple[str, Any, Any]] = {}
    for choice in _choices(config):
        own = choice.metadata["kinds"]
        told = {**choice.metadata, "help": choice.metadata["help"].format(_described(own.values()))}
        flags[choice.name] = choice.name, choice.type, field(default=choice.default, metadata=told)
    for option in (option for kind in kinds for option in kind.fields):
        # fairseq's parser knows Optional[int], but not int | None
        typed = Union[get_args(option.type)] if isinstance(option.type, UnionType) else option.type  # noqa: UP007
        default = config._defaults.get(option.name, option.default)
        flags[option.name] = option.name, typed, field(default=default, metadata=option.metadata)
    return make_dataclass(config.__name__, flags.values(), bases=(config,), namespace={"_has_kinds": True})


def _either(names: Iterable[str]) -> str:
    """The names with commas, and "or" before the last."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _described(kinds: Iterable[Kind]) -> str:
    return ", ".join(f"{kind.name} ({kind.help})" if kind.help else kind.name for kind in kinds)


@dataclass
class LanguageModelAttentionConfig(AttentionConfig):
    """The flags of the causal self-attention of a language model."""

    _places = ("decoder",)
    _defaults = {**KINDS[DEFAULT_KIND].defaults}  # noqa: RUF012

    linformer_projection: str = field(
        default=DEFAULT_KIND, metadata={"help": "kind of causal attention: {}", "kinds": CAUSAL_KINDS}
    )

    def kind_of(self, place: str) -> Kind:
        return CAUSAL_KINDS[self.linformer_projection]


@dataclass
class LinformerConfig(AttentionConfig):
    """The flags of the attention of a translation model."""

    linformer_cross_k: Optional[str] = field(
        default=None,
        metadata={"help": "projected dimension of the cross-attention, in the same form (default: as --linformer-k)"},
    )
    linformer_decoder_k: Optional[str] = field(
        default=None,
        metadata={"help": "projected dimension of the decoder's self-attention (default: as --linformer-k)"},
    )
    linformer_attention: str = field(
        default="encoder,cross",
        metadata={
            "help": "which attention is of linear cost, any of encoder,cross,decoder: self-attention of the encoder, "
            "cross-attention and causal self-attention of the decoder"
        },
    )
    linformer_projection: str = field(
        default=DEFAULT_KIND,
        metadata={
            "help": "kind of attention: {}; the decoder's self-attention has linear projections, where the kind has no "
            "causal form of its own",
            "kinds": KINDS,
        },
    )
    linformer_decoder_projection: Optional[str] = field(
        default=None,
        metadata={
            "help": "kind of the decoder's self-attention: {} (default: as --linformer-projection)",
            "kinds": CAUSAL_KINDS,
            "place": "decoder",
        },
    )
    linformer_value_convolution: int = field(
        default=0,
        metadata={
            "help": "width in tokens, odd, of a convolution over the values that is added to the encoder's "
            "self-attention, through which a token sees its neighbours; 0 for none",
            "place": "encoder",
        },
    )

    @property
    def places(self) -> set[str]:
        return {place.strip() for place in _listed(self.linformer_attention).split(",")}

    def validate(self) -> None:
        for place in sorted(self.places - set(PLACES)):
            raise ValueError(f"--linformer-attention knows {', '.join(PLACES[:-1])} and {PLACES[-1]}, not {place!r}")
        super().validate()

    def _check_effects(self) -> None:
        kind, of_decoder = KINDS[self.linformer_projection], self.kind_of("decoder").name
        unfit = {"cross"} if kind.name in CAUSAL_KINDS or self.linformer_decoder_projection else {"cross", "decoder"}
        if kind.self_attention_only and unfit & self.places:
            raise ValueError(for_self_attention_alone(kind.name))
        # those that an architecture may have said are let pass
        if self.places == {"decoder"} and kind.name not in {of_decoder, *PRESETS.values()}:
            given = f"--linformer-projection {kind.name}"
            raise ValueError(f"{given} has no effect on the decoder's {of_decoder} attention: leave it out")
        super()._check_effects()

    def kind_of(self, place: str) -> Kind:
        if place != "decoder":
            return KINDS[self.linformer_projection]
        return causal_kind(self.linformer_decoder_projection or self.linformer_projection)

    def _arguments_of(self, place: str) -> dict[str, Any]:
        return {"value_convolution": self.linformer_value_convolution} if place == "encoder" else {}

    def _k_of(self, place: str) -> tuple[str, str, str]:
        own = {"cross": self.linformer_cross_k, "decoder": self.linformer_decoder_k}
        if place not in own:
            return super()._k_of(place)
        flag, k = f"--linformer-{place}-k", own[place]
        if k is not None:
            return flag, k, ""
        return "--linformer-k", self.linformer_k, f", or another {flag} for {_PLACE_NAMES[place]}"


def add_flags(parser: ArgumentParser | _ArgumentGroup, config: type[AttentionConfig]) -> None:
    """Adds the flags of a configuration to a parser, or to a group of it; those not given stay out of its result."""
    complete = config.with_kinds()
    gen_parser_from_dataclass(parser, complete(), delete_default=True)
    # fairseq knows choices as enumerations alone, whose refusal of a checkpoint's value is no sentence
    choices = {flag.name: flag.metadata.get("choices", flag.metadata.get("kinds")) for flag in fields(complete)}
    for action in parser._actions:
        action.choices = action.choices or choices.get(action.dest)


def flag_defaults(config: type[AttentionConfig]) -> dict[str, Any]:
    """The default of every flag of a configuration, by name."""
    return {option.name: option.default for option in fields(config.with_kinds()) if not option.name.startswith("_")}


def default_flags(linformer_projection: str, config: type[AttentionConfig] = LinformerConfig) -> dict[str, Any]:
    """The default of every flag of a translation model, or of another `config`, with this kind of attention."""
    kind = KINDS.get(linformer_projection)  # an unknown one is refused later
    flags = {**flag_defaults(config), "linformer_projection": linformer_projection}
    return flags | {name: value for name, value in (kind.defaults if kind else {}).items() if name in flags}


def _listed(value: str | int | list[str | int]) -> str:
    """A flag's list as text, where YAML may have given it as a list or a number."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _projected_dims(flag: str, text: str, advice: str, num_layers: int, kept: str | None) -> tuple[int, ...]:
    """The k of every layer, from "64" or "128,64,32"; `advice` ends a refusal."""
    try:
        dims = [int(k) for k in text.split(",")]
    except ValueError:
        raise ValueError(f"{flag} takes a whole number, or one for each layer (128,64,32), not {text!r}") from None
    if min(dims) < 1:
        raise ValueError(f"{flag} must be at least 1, not {min(dims)}")
    if len(dims) == 1:
        return tuple(dims * num_layers)
    if kept and len(dims) > max(layers := sorted(map(int, kept.split(",")))):
        dims = [dims[layer] for layer in layers]
    if len(dims) != num_layers:
        raise ValueError(
            f"{flag} {text} gives {len(dims)} values for {num_layers} layers; give one, or one per layer{advice}"
        )
    return tuple(dims)
