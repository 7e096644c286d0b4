"""Attention to a source whose tokens are all known: encoder self-attention and cross-attention."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from linformer_fairseq.modules.base import BaseAttention, Call, Moves
from linformer_fairseq.modules.ops.beams import fold_beams, kept_sentences, unfold_beams
from linformer_fairseq.modules.ops.padding import Padding, Places


class Source(NamedTuple):
    """The keys and values of B sentences, before any layer."""

    key: Tensor
    """(n, B, kdim), with zeros for padding, which is on the right where the kind wants it there."""
    value: Tensor
    """(n, B, vdim), like the keys; the very tensor of the keys where these are the values too."""
    padding: Padding | None
    lengths: Tensor | None
    """Tokens of each sentence, (B,); None where all have n."""


class Memory(Protocol):
    """What queries attend to: a named tuple, whose tensors have a row for every sentence."""

    @property
    def keys(self) -> Tensor: ...

    def _asdict(self) -> dict[str, Any]: ...


MemoryT = TypeVar("MemoryT", bound=Memory)


class SourceMemory(NamedTuple):
    """What a search keeps of its sources, a row for each sentence, however many hypotheses share it."""

    memory: Any
    places: Places
    hypotheses: int


def _map_tensors(memory: MemoryT, function: Callable[[Tensor], Tensor]) -> MemoryT:
    """Applies a function to every tensor of a memory."""
    fields = memory._asdict().items()
    return type(memory)(**{name: function(x) if isinstance(x, Tensor) else x for name, x in fields})


class SourceAttention(BaseAttention, Generic[MemoryT]):
    """Base of the kinds that make a memory of the source once, attend to it with every query, and keep it in a search.

    A kind says how a memory is made (`compress`) and how queries attend to it (`attend_to`), whatever their order.
    """

    def moves(self, padding: Padding) -> Moves:
        return "keys"

    def compress(self, source: Source) -> MemoryT:
        """Makes the memory of a source."""
        raise NotImplementedError

    def attend_to(
        self, query: Tensor, memory: MemoryT, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        """What each head gives, (B, H, T, d), and the weights over tokens if they are needed, (B, H, T, up to n), for
        queries (T, B, C)."""
        raise NotImplementedError

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        kept: SourceMemory | None = self.cached(call.incremental_state).get("kept")
        if kept is None:
            kept = self.memory_of(call)
        query = fold_beams(call.query, kept.hypotheses)
        out, weights = self.attend_to(query, kept.memory, call.need_weights, call.by_head)
        weights = None if weights is None else unfold_beams(kept.places.in_source_order(weights), kept.hypotheses)
        return unfold_beams(out, kept.hypotheses), weights

    def memory_of(self, call: Call) -> SourceMemory:
        """Makes the memory of the sources of a call, and keeps it for the next steps of a search."""
        assert call.key is not None
        assert call.value is not None
        self.check_length(len(call.key), call.padding)
        key, value, padding, longest = call.key, call.value, call.padding, self.max_positions
        if longest is not None and len(key) > longest:  # what is beyond is padding
            key, value = (key[:longest],) * 2 if value is key else (key[:longest], value[:longest])
        memory = self.compress(Source(key, value, padding, None if padding is None else padding.lengths))
        hypotheses = call.query.size(1) // key.size(1)
        kept = SourceMemory(memory, self.places(call), hypotheses)
        if call.incremental_state is not None:
            kept = kept._replace(memory=_map_tensors(memory, Tensor.contiguous))  # as every step reads all of it
            self.cache(call.incremental_state, {"kept": kept})
        return kept

    def reordered(self, cached: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Keeps the sentences that stay. Hypotheses change places within their sentence, whose row they share."""
        kept: SourceMemory = cached["kept"]
        if len(new_order) == len(kept.memory.keys) * kept.hypotheses:
            return cached
        rows = kept_sentences(new_order, kept.hypotheses)
        memory = _map_tensors(kept.memory, lambda x: x.index_select(0, rows))
        return {"kept": SourceMemory(memory, kept.places.rows(rows), kept.hypotheses)}
