"""What queries meet: the tokens of a source as they come, made into slots or two levels, which a search keeps.

Shapes: n tokens, B sentences, H heads, d features a head, s slots.
"""

from typing import NamedTuple

from torch import Tensor

from linformer_fairseq.modules.hypotheses import once_a_sentence
from linformer_fairseq.modules.padding import lengths
from linformer_fairseq.modules.projection import Windows
from linformer_fairseq.modules.two_level import Source

Cache = dict[str, Tensor | None]
"""What fairseq keeps for one attention between the steps of a search, by name: a row for each sentence."""

_HYPOTHESES = "hypotheses"
"""There, a tensor with a row for each sentence and a column for each of its hypotheses."""


class Tokens(NamedTuple):
    """The keys and values of B sentences, before any projection."""

    key: Tensor
    """(n, B, kdim), zero at padded positions."""
    value: Tensor
    """(n, B, vdim), likewise; the same tensor where the keys are the values."""
    padding_mask: Tensor | None
    """(B, n or more), true at padded positions."""
    lengths: Tensor
    """(B,)."""


class Slots(NamedTuple):
    """The projected keys and values of B sentences, and the tokens that they come from."""

    keys: Tensor
    """(B, H, s, d)."""
    values: Tensor
    """(B, H, s, d)."""
    padding_mask: Tensor | None
    """(B, n or more), true at padded positions; None where there are none and nobody asks for weights."""
    lengths: Tensor
    """(B,)."""


class TwoLevels(NamedTuple):
    """What queries of B sentences meet in two levels."""

    source: Source
    padding_mask: Tensor
    """(B, n or more), true at padded positions."""

    @property
    def keys(self) -> Tensor:
        return self.source.keys


def to_cache(met: Slots | TwoLevels, queries: int) -> Cache:
    """For the next steps of so many hypotheses. What is met has a padding mask."""
    windows: Cache = {}
    if isinstance(met, TwoLevels):
        keys, values = met.source.keys, met.source.values
        windows = met.source.windows._asdict()
    else:  # every step reads them head by head, and as projected the slots of a head lie far apart
        keys, values = met.keys.contiguous(), met.values.contiguous()
    hypotheses = met.padding_mask.new_ones(len(keys), queries // len(keys))  # for its shape alone
    names = {"prev_key": keys, "prev_value": values, "prev_key_padding_mask": met.padding_mask, _HYPOTHESES: hypotheses}
    return {**names, **windows}


def from_cache(cache: Cache) -> Slots | TwoLevels:
    """What queries met at an earlier step."""
    keys, values, mask = (cache[name] for name in ("prev_key", "prev_value", "prev_key_padding_mask"))
    if Windows._fields[0] in cache:
        return TwoLevels(Source(keys, values, Windows(*(cache[name] for name in Windows._fields))), mask)
    return Slots(keys, values, mask, lengths(mask))


def reordered(cache: Cache, new_order: Tensor) -> Cache:
    """For hypotheses in a new order: they change places within their sentence, so that there is something to do only
    where sentences come or go."""
    sentences, hypotheses = cache[_HYPOTHESES].shape
    if new_order.size(0) == sentences * hypotheses:
        return cache
    rows = once_a_sentence(new_order // hypotheses, hypotheses, 0)
    kept = {name: x.index_select(0, rows) for name, x in cache.items()}
    if len(rows) == len(new_order):  # not all of a sentence's go together: from here on each has a row of its own
        kept[_HYPOTHESES] = kept[_HYPOTHESES][:, :1]
    return kept
