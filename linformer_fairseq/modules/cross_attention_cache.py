"""What cross-attention keeps of its sources between the steps of a search: a row for each sentence.

All hypotheses of a sentence share its row.
"""

from collections.abc import Mapping

from torch import Tensor

from linformer_fairseq.modules.ops.beams import one_of_each_beam

Rows = dict[str, Tensor]
"""Tensors by name, each with a row for every sentence."""

_HYPOTHESES = "hypotheses"
"""The name of a tensor whose shape alone counts: a row for each sentence, and a column for each of its hypotheses."""


def to_cache(rows: Mapping[str, Tensor | None], queries: int) -> Rows:
    """The cache of these rows for the next steps, which bring a query for each of `queries` hypotheses.

    Every step reads all rows, so that they are stored contiguously. A name without a tensor is left out.
    """
    stored = {name: x.contiguous() for name, x in rows.items() if x is not None}
    first = next(iter(stored.values()))
    return {**stored, _HYPOTHESES: first.new_empty(len(first), queries // len(first))}


def from_cache(cache: Rows) -> Rows:
    """The rows that `to_cache` was given, after whatever reordering there was since."""
    return {name: x for name, x in cache.items() if name != _HYPOTHESES}


def reorder_cache(cache: Rows, new_order: Tensor) -> Rows:
    """The cache for hypotheses in a new order.

    They change places within their sentence, so that there is something to do only where sentences come or go, which
    all hypotheses of a sentence do together.
    """
    sentences, hypotheses = cache[_HYPOTHESES].shape
    if new_order.size(0) == sentences * hypotheses:
        return cache
    kept = one_of_each_beam(new_order // hypotheses, hypotheses)
    return {name: x.index_select(0, kept) for name, x in cache.items()}
