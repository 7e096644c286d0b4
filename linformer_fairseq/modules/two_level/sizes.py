"""How a text of some length is cut into windows and blocks for two-level attention, and where it is not."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from linformer_fairseq.modules.ops.key_clusters import largest_power_of_two
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, check_dims, flag_of

EXACT_BELOW = 768  # texts with fewer tokens are attended to in full, unless told otherwise: it is as fast
MOST_OPENED_TOKENS = 512
"""Tokens that a block opens, at most, unless told otherwise; but it opens `LEAST_OPENED` windows, however wide."""
LEAST_OPENED = 2


class Sizes(NamedTuple):
    """How a text is cut into windows of tokens and blocks of queries."""

    width: int  # tokens of a window, w
    opened: int  # windows that a block opens, m
    block: int  # queries of a block, q
    clusters: int = 0  # of similar keys, in a text, and in a decoder in each block; 0 where means are those of windows


class DefaultSizes(NamedTuple):
    """What attention in one place does where it is not told its sizes."""

    blocks: int  # into how many blocks the queries are cut, about
    opened: int  # a block opens k over this number of windows
    queries: tuple[int, int] = (1, 256)  # of a block, at least and at most
    clusters: int = 0  # of similar keys, for each window, about; 0 where means are those of windows


DEFAULTS = {
    1: {
        "encoder": DefaultSizes(blocks=16, opened=8),
        "cross": DefaultSizes(blocks=16, opened=4, queries=(1, 128)),
        "decoder": DefaultSizes(blocks=32, opened=16),
    },
    2: {
        "encoder": DefaultSizes(blocks=32, opened=16, queries=(64, 128), clusters=1),
        "cross": DefaultSizes(blocks=32, opened=5, queries=(64, 128)),
        "decoder": DefaultSizes(blocks=32, opened=32, queries=(64, 256), clusters=2),
    },
}
"""By `--linformer-sizes` and place: 1 is that of models which recorded none."""
NEWEST = max(DEFAULTS)


@dataclass(frozen=True)
class SizeRule:
    """How the number of windows, their width, and blocks follow from the length of a text.

    Args:
        projected_dim: k, the largest number of windows, where their width is not fixed.
        defaults: for what is not given.
        open_slots: m, the windows that a block opens; by default a share of k, at least 3, but no more of them than
            have 512 tokens, or 2.
        slot_width: w, the tokens of a window; by default the smallest power of two that gives at most k windows.
        block_size: q, the queries of a block; by default the power of two at a share of the text's tokens.
        exact_below: shorter texts are attended to in full.

    Raises:
        ValueError: a size that is no whole number or below 1, or a negative `exact_below`.
    """

    projected_dim: int
    defaults: DefaultSizes
    open_slots: int | None = None
    slot_width: int | None = None
    block_size: int | None = None
    exact_below: int = EXACT_BELOW

    def __post_init__(self) -> None:
        check_dims(self.projected_dim)
        for name, least in (("open_slots", 1), ("slot_width", 1), ("block_size", 1), ("exact_below", 0)):
            given, flag = getattr(self, name), flag_of(f"linformer_{name}")
            if given is not None and not isinstance(given, int):
                raise ValueError(f"{flag} takes a whole number, not {given!r}")
            if given is not None and given < least:
                raise ValueError(f"{flag} must be at least {least}, not {given}")

    def cut(self, n: int) -> Sizes:
        """The sizes for n tokens, whether or not they pay."""
        width = self.slot_width or _power_of_two(-(-n // self.projected_dim))
        wanted = max(3, self.projected_dim // self.defaults.opened)
        opened = self.open_slots or max(LEAST_OPENED, min(wanted, MOST_OPENED_TOKENS // width))
        least, most = self.defaults.queries
        block = self.block_size or min(max(_power_of_two(-(-n // self.defaults.blocks)), least), most)
        return Sizes(width, opened, block, self.clusters(self.projected_dim))

    def clusters(self, windows: int) -> int:
        """The clusters of similar keys for so many windows, a power of two; 0 where means are those of windows."""
        clusters = windows * self.defaults.clusters
        return largest_power_of_two(clusters) if clusters else 0

    def sizes(self, n: int) -> Sizes | None:
        """The sizes for n tokens; None where full attention is as good."""
        if n < self.exact_below or n <= self.projected_dim:
            return None
        sizes = self.cut(n)
        return None if sizes.width == 1 or n <= sizes.opened * sizes.width else sizes

    def ranges(self, longest: int) -> Iterator[tuple[int, int, Sizes | None]]:
        """Yields the lengths up to `longest` for which sizes are alike: the first, the last, and the sizes."""
        firsts = {1, self.exact_below, self.projected_dim + 1}
        power = 1
        while power <= longest:
            cut = self.cut(self.projected_dim * power)
            firsts |= {self.projected_dim * power + 1, self.defaults.blocks * power + 1, cut.opened * cut.width + 1}
            power *= 2
        starts = [(first, self.sizes(first)) for first in sorted(firsts) if 1 <= first <= longest]
        for i, (first, sizes) in enumerate(starts):
            if i and sizes == starts[i - 1][1]:
                continue
            last = next((later - 1 for later, other in starts[i + 1 :] if other != sizes), longest)
            yield first, last, sizes


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


@dataclass
class TwoLevelOptions(AttentionOptions):
    """The options of two-level attention: how a text is cut, where defaults that follow its length are not wanted."""

    linformer_open_slots: int | None = field(
        default=None,
        metadata={
            "help": "two-level: windows that a block of queries opens, to attend to their tokens one by one (default: "
            f"{', '.join(f'k/{x.opened} in {place}' for place, x in DEFAULTS[NEWEST].items())}, at least 3; fewer, "
            f"but at least 2, where they would exceed {MOST_OPENED_TOKENS} tokens)"
        },
    )
    linformer_slot_width: int | None = field(
        default=None,
        metadata={
            "help": "two-level: neighbouring tokens of a window (default: the smallest power of two that gives at most "
            "k windows)"
        },
    )
    linformer_block_size: int | None = field(
        default=None,
        metadata={"help": "two-level: neighbouring queries that open the same windows (default: follows the length)"},
    )
    linformer_exact_below: int = field(
        default=EXACT_BELOW,
        metadata={
            "help": "two-level: shorter texts, and as many first tokens of a target, get full attention; for a GPU, "
            "which is fast at that, take 8192"
        },
    )

    linformer_sizes: int = field(
        default=NEWEST,
        metadata={
            "help": "two-level: which rule gives sizes that are not given, and the groups that have a mean: "
            f"{NEWEST}, or 1, that of the first models",
            "choices": tuple(DEFAULTS),
            "unrecorded": 1,
        },
    )

    def validate(self) -> None:
        super().validate()
        SizeRule(1, DEFAULTS[self.linformer_sizes]["encoder"], **self._sizes())

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        defaults = DEFAULTS[self.linformer_sizes]
        return [{**arguments, "defaults": defaults, **self._sizes()} for arguments in super().arguments(layers)]

    def _sizes(self) -> dict[str, Any]:
        names = (option.name for option in fields(self) if option.name != "linformer_sizes")
        return {name.removeprefix("linformer_"): getattr(self, name) for name in names}
