"""The flags of the attention, the attention that they describe, and how a refusal of them ends a command."""

from argparse import ArgumentParser, _ArgumentGroup
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, make_dataclass, replace
from functools import cache, partial
from types import UnionType
from typing import Any, Optional, Union, get_args

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass

from linformer_fairseq.modules import CAUSAL_KINDS, CROSS_KINDS, KINDS, BaseAttention
from linformer_fairseq.modules.registry import DEFAULT_KIND, KINDS_AT, Kind, LayerShapes, flag_of
from linformer_fairseq.modules.value_convolution import check_width

PLACES = {
    "encoder": "self-attention of an encoder",
    "cross": "cross-attention",
    "decoder": "causal self-attention of a decoder",
}
"""Where a model may have attention, and what that is called."""
PREFIXES = {"linformer_": "linear", "two_level_": "two-level", "full_": "full"}
"""The kind of attention of an architecture by the beginning of its name."""
UNKNOWN_LENGTH = 100_000
"""From which on a `max_positions` of fairseq's stands for no limit."""

AttentionBuilder = Callable[..., BaseAttention]
"""Builds the attention of a layer from the arguments that fairseq passes."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Ends the running command with the sentence of a ValueError and exit status 1, without a traceback.

    fairseq's commands print whatever a plugin raises as a traceback, and its trainer replaces the message of an
    exception by one of its own; SystemExit passes through both.
    """
    try:
        yield
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None


@dataclass
class AttentionConfig(FairseqDataclass):
    """The flags of the attention of any model; `with_kinds` adds the options of the kinds of attention.

    The values come as a user typed them, None for the default of the kind; `in_model` refuses what no model can be
    built from.
    """

    linformer_k: str = field(
        default="64",
        metadata={"help": "projected dimension k, one value or one per layer, e.g. 128,64,64,32,32,32"},
    )
    linformer_cross_k: Optional[str] = field(
        default=None,
        metadata={"help": "projected dimension of the cross-attention, in the same form (default: as --linformer-k)"},
    )
    linformer_decoder_k: Optional[str] = field(
        default=None,
        metadata={"help": "projected dimension of the decoder's self-attention (default: as --linformer-k)"},
    )
    linformer_attention: Optional[str] = field(
        default=None,
        metadata={
            "help": "which attention is replaced, any of encoder,cross,decoder: self-attention of the encoder, "
            "cross-attention and causal self-attention of the decoder (default: by kind, where the model has it)"
        },
    )
    linformer_projection: Optional[str] = field(
        default=None,
        metadata={
            "help": "kind of attention in all places that have no flag of their own (default: that of the "
            "architecture): {}; the decoder's self-attention is linear, where the kind has no causal form of its own",
            "kinds": KINDS,
        },
    )
    linformer_encoder_projection: Optional[str] = field(
        default=None,
        metadata={
            "help": "kind of the encoder's self-attention (default: as --linformer-projection)",
            "kinds": KINDS,
            "place": "encoder",
        },
    )
    linformer_cross_projection: Optional[str] = field(
        default=None,
        metadata={
            "help": "kind of the cross-attention (default: as --linformer-projection)",
            "kinds": CROSS_KINDS,
            "place": "cross",
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

    @classmethod
    def with_kinds(cls) -> "type[AttentionConfig]":
        """This dataclass with the options of all kinds of attention that are registered by now.

        A flag that chooses a kind has the registered ones as `kinds` in its metadata, and `{}` for them in its help.
        """
        return _with_options((*KINDS.values(), *CAUSAL_KINDS.values()))

    @classmethod
    def from_namespace(cls, args: object, kind: str = DEFAULT_KIND) -> "AttentionConfig":
        """Reads the flags from `args`; those that are missing there, or None, take their defaults.

        Args:
            args: with flags as attributes; with a `_name`, which checkpoints have and command lines have not yet,
                missing flags have the values of models that are older than these flags.
            kind: the default of `--linformer-projection`.
        """
        complete = cls.with_kinds()
        given = {flag.name: getattr(args, flag.name, None) for flag in fields(complete)}
        places = given["linformer_encoder_projection"], given["linformer_cross_projection"]
        flags = default_flags(given["linformer_projection"] or kind, *filter(None, places))
        flags |= unrecorded_in(args)
        return complete(**flags | {name: value for name, value in given.items() if value is not None})

    def in_model(self, places: Iterable[str]) -> "AttentionConfig":
        """These flags with the places that they mean in a model that has these.

        Raises:
            ValueError: an unknown name, a place that the model does not have, or flags that do not fit together.
        """
        config = self.from_namespace(self)  # with the options of its kinds
        for choice in (flag for flag in fields(config) if "kinds" in flag.metadata):
            kinds, name = choice.metadata["kinds"], getattr(config, choice.name)
            if name is not None and name not in kinds:
                raise ValueError(f"{flag_of(choice.name)} is one of {', '.join(kinds)}, not {name!r}")
        there = [place for place in PLACES if place in places]
        usual = KINDS[config.linformer_projection or DEFAULT_KIND].defaults.get("linformer_attention", "encoder,cross")
        asked = usual if config.linformer_attention is None else listed(config.linformer_attention)
        if asked == usual:  # older checkpoints recorded it for models that do not have all of these places
            asked = ",".join([place for place in there if place in asked.split(",")] or there)
        config = replace(config, linformer_attention=asked)
        for place in sorted(config.places - set(there)):
            if place not in PLACES:
                raise ValueError(f"--linformer-attention knows encoder, cross and decoder, not {place!r}")
            raise ValueError(
                f"--linformer-attention names {place}, and this model has no {PLACES[place]} of fairseq's: choose from "
                f"{', '.join(there)}"
            )
        if config.linformer_value_convolution:
            check_width(config.linformer_value_convolution)
        config._check_effects()
        for place in sorted(config.places):
            config.kind_of(place).options_from(config).validate()
        return config

    def attention(
        self, place: str, num_layers: int, max_positions: int | None, kept: str | None = None
    ) -> list[AttentionBuilder]:
        """The attention of every layer of a place.

        Args:
            place: "encoder", "cross" or "decoder".
            num_layers: of the encoder, or of the decoder for its two attentions.
            max_positions: N, the longest source, or target for "decoder"; None where the model has no limit.
            kept: the layers kept of a deeper model ("0,2,4", fairseq's `--encoder-layers-to-keep`); a list with a k
                for each layer of that model is cut in the same way.

        Raises:
            ValueError: a k that is no number, below 1 or above the N of learned projections, a list that does not fit
                the layers, options that do not fit k, and no N for a kind that needs one.
        """
        flag, text, advice = self.k_of(place)
        kind = self.kind_of(place)
        if kind.options.needs_length and max_positions is None:
            raise ValueError(
                f"{kind.name} attention is built for a longest text, and this model has none of fewer than "
                f"{UNKNOWN_LENGTH:,} tokens: choose another kind of {self._projection_of(place)[0]}"
            )
        dims = (0,) * num_layers
        if kind.options.uses_k:
            dims = _projected_dims(flag, listed(text), advice, num_layers, kept)
        if kind.options.k_within_length and max_positions is not None and max(dims) > max_positions:
            side = "target" if place == "decoder" else "source"
            raise ValueError(
                f"{flag} {max(dims)} is larger than the longest {side}, {max_positions} tokens; choose k <= N{advice}"
            )
        layers = LayerShapes(dims, max_positions, flag, advice)
        own: dict[str, Any] = {"value_convolution": self.linformer_value_convolution} if place == "encoder" else {}
        return [partial(kind.attention, **arguments, **own) for arguments in kind.options_from(self).arguments(layers)]

    @property
    def places(self) -> set[str]:
        """The places whose attention is replaced, once it is known what they mean in a model."""
        return {place.strip() for place in listed(self.linformer_attention or "").split(",")}

    @property
    def used_options(self) -> set[str]:
        """The names of the options of the kinds of attention in use."""
        return {option.name for place in self.places for option in self.kind_of(place).fields}

    def kind_of(self, place: str) -> Kind:
        """The kind of attention at a place.

        Raises:
            ValueError: a kind that cannot be there.
        """
        kinds = KINDS_AT[place]
        flag, name = self._projection_of(place)
        if place == "decoder" and name in CROSS_KINDS and name not in kinds:
            name = DEFAULT_KIND
        if name not in kinds:
            raise ValueError(
                f"{flag} {name} is not for {PLACES[place]}: leave {place} out of --linformer-attention, or give "
                f"another kind there by --linformer-{place}-projection"
            )
        return kinds[name]

    def _projection_of(self, place: str) -> tuple[str, str]:
        """The flag that says the kind of a place, and its value."""
        own: str | None = getattr(self, f"linformer_{place}_projection")
        flag = "--linformer-projection" if own is None else f"--linformer-{place}-projection"
        return flag, own or self.linformer_projection or DEFAULT_KIND

    def k_of(self, place: str) -> tuple[str, str, str]:
        """The flag that says the k of a place, its value, and what else can be done where it does not fit."""
        own = {"cross": self.linformer_cross_k, "decoder": self.linformer_decoder_k}
        flag = f"--linformer-{place}-k"
        if place not in own or (k := own[place]) is None:
            other = f", or another {flag} for {PLACES[place]}" if place in own else ""
            return "--linformer-k", self.linformer_k, other
        return flag, k, ""

    def _check_effects(self) -> None:
        """Refuses a flag that has no effect on this attention, unless its value is the default of some kind."""
        for flag in fields(self):
            value = getattr(self, flag.name)
            defaults = {
                flag.default,
                flag.metadata.get("unrecorded"),
                *(kind.defaults.get(flag.name) for kind in KINDS.values()),
            }
            if flag.name == "linformer_projection":  # which an architecture may have said
                defaults |= set(PREFIXES.values())
            if value is None or listed(value) in map(str, defaults) or self._has_effect(flag):
                continue
            given = flag_of(flag.name) if value is True else f"{flag_of(flag.name)} {listed(value)}"
            in_use = ", ".join(f"{self.kind_of(place).name} at {place}" for place in PLACES if place in self.places)
            raise ValueError(
                f"{given} has no effect on this attention ({in_use}): leave it out (of a checkpoint with "
                f"--model-overrides \"{{'{flag.name}': {flag.default!r}}}\")"
            )

    def _has_effect(self, flag: Field[Any]) -> bool:
        """Whether a flag is read by the attention of any place."""
        options = {option.name for kinds in (KINDS, CAUSAL_KINDS) for kind in kinds.values() for option in kind.fields}

        def reads(place: str, kind: Kind) -> bool:
            if flag.name == "linformer_projection":
                return kind.name == self.linformer_projection
            if flag.name in options:
                return flag.name in {option.name for option in kind.fields}
            if flag.name.endswith("_k"):
                return kind.options.uses_k and self.k_of(place)[0] == flag_of(flag.name)
            return flag.metadata.get("place") in (None, place)

        return any(reads(place, self.kind_of(place)) for place in self.places)


def add_flags(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Adds the flags of the attention to a parser, or to a group of it; those not given stay out of its result."""
    complete = AttentionConfig.with_kinds()
    gen_parser_from_dataclass(parser, complete(), delete_default=True)
    # fairseq knows choices as enumerations alone, whose refusal of a checkpoint's value is no sentence
    choices = {flag.name: flag.metadata.get("choices", flag.metadata.get("kinds")) for flag in fields(complete)}
    for action in parser._actions:
        action.choices = action.choices or choices.get(action.dest)


def unrecorded_in(args: object) -> dict[str, Any]:
    """The values of flags that are missing in `args` and newer than the first models, whose checkpoints lack them.

    Empty for a command line, where architectures fill in what is missing: it has no `_name` yet.
    """
    if getattr(args, "_name", None) is None:
        return {}
    missing = (flag for flag in fields(AttentionConfig.with_kinds()) if getattr(args, flag.name, None) is None)
    return {flag.name: flag.metadata["unrecorded"] for flag in missing if "unrecorded" in flag.metadata}


def default_flags(linformer_projection: str, *of_places: str) -> dict[str, Any]:
    """The default of every flag, by name, with this kind of attention, and with others at single places."""
    flags = {flag.name: flag.default for flag in fields(AttentionConfig.with_kinds()) if not flag.name.startswith("_")}
    for kind in (linformer_projection, *of_places):
        flags |= KINDS[kind].defaults if kind in KINDS else {}  # an unknown one is refused later
    return flags | {"linformer_attention": None, "linformer_projection": linformer_projection}


@cache
def _with_options(kinds: tuple[Kind, ...]) -> type[AttentionConfig]:
    """The configuration with the options of these kinds, which are those of its flags that choose one."""
    flags: dict[str, tuple[str, Any, Any]] = {}
    for choice in (flag for flag in fields(AttentionConfig) if "kinds" in flag.metadata):
        names = (f"{kind.name} ({kind.help})" if kind.help else kind.name for kind in choice.metadata["kinds"].values())
        told = {**choice.metadata, "help": choice.metadata["help"].format(", ".join(names))}
        flags[choice.name] = choice.name, choice.type, field(default=choice.default, metadata=told)
    for option in (option for kind in kinds for option in kind.fields):
        # fairseq's parser knows Optional[int], but not int | None
        typed = Union[get_args(option.type)] if isinstance(option.type, UnionType) else option.type  # noqa: UP007
        flags[option.name] = option.name, typed, field(default=option.default, metadata=option.metadata)
    return make_dataclass("AttentionConfig", flags.values(), bases=(AttentionConfig,))


def listed(value: Any) -> str:
    """A flag's value as it is written on a command line, where YAML may have given a list or a number."""
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
