"""How a text of some length is cut into windows and blocks for two-level attention, and where it is not."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from linformer_fairseq.modules.ops.two_level import LevelSizes
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, flag_of

EXACT_BELOW = 768
"""Texts with fewer tokens are attended to in full, unless told otherwise: it is as fast."""
MOST_OPENED_TOKENS = 512
"""Tokens that a block opens, at most, unless told otherwise: cost does not grow with the width of windows."""
MOST_QUERIES = 256
"""Queries of a block, at most, unless told otherwise."""


@dataclass(frozen=True)
class SizeRule:
    """How the number of windows, their width, and blocks follow from the length of a text.

    Args:
        projected_dim: k, the largest number of windows, where their width is not fixed.
        open_slots: m, the windows that a block opens; by default an eighth of k, at least 3, and no more of them than
            have 512 tokens.
        slot_width: w, the tokens of a window; by default the smallest power of two that gives at most k windows.
        block_size: q, the queries of a block; by default the power of two at a share of the text's tokens.
        exact_below: shorter texts are attended to in full.

    Raises:
        ValueError: a size below 1, or a negative `exact_below`.
    """

    projected_dim: int
    open_slots: int | None = None
    slot_width: int | None = None
    block_size: int | None = None
    exact_below: int = EXACT_BELOW

    def __post_init__(self) -> None:
        for name, least in (("open_slots", 1), ("slot_width", 1), ("block_size", 1), ("exact_below", 0)):
            given = getattr(self, name)
            if given is not None and given < least:
                raise ValueError(f"{flag_of(f'linformer_{name}')} must be at least {least}, not {given}")

    def cut(self, n: int, blocks: int) -> LevelSizes:
        """The sizes for n tokens, whether or not they pay.

        Args:
            blocks: into how many blocks, about, as many queries are cut.
        """
        width = self.slot_width or _power_of_two(-(-n // self.projected_dim))
        opened = self.open_slots or max(1, min(max(3, self.projected_dim // 8), MOST_OPENED_TOKENS // width))
        return LevelSizes(width, opened, self.block_size or min(_power_of_two(-(-n // blocks)), MOST_QUERIES))

    def sizes(self, n: int, blocks: int) -> LevelSizes | None:
        """The sizes for n tokens; None where full attention is as good."""
        if n < self.exact_below or n <= self.projected_dim:
            return None
        sizes = self.cut(n, blocks)
        return None if sizes.width == 1 or sizes.windows(n) <= sizes.opened else sizes

    def ranges(self, longest: int, blocks: int) -> Iterator[tuple[int, int, LevelSizes | None]]:
        """Yields the lengths up to `longest` with the same sizes: the first, the last, and the sizes."""
        starts = {1, self.exact_below, self.projected_dim + 1}
        power = 1
        while power <= longest:
            sizes = self.cut(self.projected_dim * power, blocks)
            starts |= {self.projected_dim * power + 1, blocks * power + 1, sizes.opened * sizes.width + 1}
            power *= 2
        firsts = sorted(start for start in starts if 1 <= start <= longest)
        known = [(first, self.sizes(first, blocks)) for first in firsts]
        known = [(first, sizes) for i, (first, sizes) in enumerate(known) if not i or sizes != known[i - 1][1]]
        ends = [first - 1 for first, _ in known[1:]] + [longest]
        for (first, sizes), last in zip(known, ends, strict=True):
            yield first, last, sizes


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


@dataclass
class TwoLevelOptions(AttentionOptions):
    """How two levels cut a text, where the defaults that follow its length are not wanted."""

    linformer_open_slots: int | None = field(
        default=None,
        metadata={
            "help": "two-level: slots that a block of queries opens, to attend to their tokens one by one (default: an "
            f"eighth of k, at least 3, and at most {MOST_OPENED_TOKENS} tokens)"
        },
    )
    linformer_slot_width: int | None = field(
        default=None,
        metadata={
            "help": "two-level: neighbouring tokens of a slot (default: the smallest power of two that gives at most k "
            "slots)"
        },
    )
    linformer_block_size: int | None = field(
        default=None,
        metadata={"help": "two-level: neighbouring queries that open the same slots (default: follows the length)"},
    )
    linformer_exact_below: int = field(
        default=EXACT_BELOW,
        metadata={"help": "two-level: shorter texts, and as many first tokens of a target, get full attention"},
    )

    def validate(self) -> None:
        super().validate()
        SizeRule(
            1,
            self.linformer_open_slots,
            self.linformer_slot_width,
            self.linformer_block_size,
            self.linformer_exact_below,
        )

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        names = ("open_slots", "slot_width", "block_size", "exact_below")
        own = {name: getattr(self, f"linformer_{name}") for name in names}
        return [{**arguments, **own} for arguments in super().arguments(layers)]
