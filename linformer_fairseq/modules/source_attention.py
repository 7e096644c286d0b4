"""Attention to a source whose tokens are all known: encoder self-attention and cross-attention."""

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import Call, IncrementalState, ProjectedAttention
from linformer_fairseq.modules.cross_attention_cache import from_cache, reorder_cache, to_cache
from linformer_fairseq.modules.linear_layers import is_plain, with_and_without_bias
from linformer_fairseq.modules.ops.beams import fold_beams, unfold_beam_weights, unfold_beams
from linformer_fairseq.modules.ops.folded_attention import folded_attention, folding_pays
from linformer_fairseq.modules.ops.padding import clear_padding, no_padding, sentence_lengths
from linformer_fairseq.modules.ops.precision import rounds_to_half, scores, softmax
from linformer_fairseq.modules.ops.thresholds import thresholds


class Source(NamedTuple):
    """The keys and values of B sentences as they come, before any layer."""

    key: Tensor
    """(n, B, kdim), zero at padded positions."""
    value: Tensor
    """(n, B, vdim), likewise; the same tensor where the keys are the values."""
    padding_mask: Tensor | None
    """(B, n or more), true at padded positions; None where there are none and no weights will be asked for."""
    lengths: Tensor
    """Tokens of each sentence, (B,)."""


class Heads(NamedTuple):
    """What the linear layers make of the keys and values of B sentences, whatever their lengths."""

    keys: Tensor
    """(n, B, H, d)."""
    values: Tensor
    """(n, B, H, d)."""
    convolved: Tensor | None
    """What a convolution adds to the output of each head, (T, B, H, d)."""

    def of_sentences(self, rows: Tensor, tokens: int) -> "Heads":
        """Those of some of the sentences, in this order, with their first tokens for keys."""
        keys, values = (x[:tokens].index_select(1, rows) for x in (self.keys, self.values))
        return Heads(keys, values, None if self.convolved is None else self.convolved.index_select(1, rows))


class Memory(Protocol):
    """What queries attend to: a named tuple of tensors, each with a row for every sentence."""

    @property
    def keys(self) -> Tensor: ...

    def _asdict(self) -> dict[str, Any]: ...


MemoryT = TypeVar("MemoryT", bound=Memory)


class SourceAttention(ProjectedAttention, Generic[MemoryT]):
    """Base of the kinds that make a memory of the source once, attend to it with every query, and keep it in a search.

    A kind says what a memory consists of (`memory_type`), how it is made (`compress`), and how queries attend to it
    (`attend_to`).
    """

    memory_type: type[MemoryT]

    def compress(self, source: Source) -> MemoryT:
        """Makes the memory of a source."""
        raise NotImplementedError

    def attend_to(
        self, query: Tensor, memory: MemoryT, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The output (T, B, C), and the weights over tokens if they are needed, for queries (T, B, C)."""
        raise NotImplementedError

    def attend_without_memory(self, query: Tensor, source: Source) -> Tensor | None:
        """The output (T, B, C) for a source that no later step needs, where that is faster without a memory."""
        return None

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        query, need_weights, incremental_state = call.query, call.need_weights, call.incremental_state
        rows = self.cached(incremental_state)
        if rows:
            memory = self.memory_type(**from_cache(rows))
        else:
            searching = incremental_state is not None
            source = self._source(call)
            if not (need_weights or searching):
                out = self.attend_without_memory(query, source)
                if out is not None:
                    return out, None
            elif source.padding_mask is None:  # weights need its shape, and every step of a search may ask for them
                source = source._replace(padding_mask=no_padding(source.key))
            memory = self.compress(source)
            del source  # copies, where there is padding
            if incremental_state is not None:
                rows = to_cache(memory._asdict(), query.size(1))
                self.cache(incremental_state, rows)
                memory = self.memory_type(**from_cache(rows))
        hypotheses = query.size(1) // len(memory.keys)  # that share the memory of their sentence
        out, weights = self.attend_to(fold_beams(query, hypotheses), memory, need_weights, call.by_head)
        return unfold_beams(out, hypotheses), None if weights is None else unfold_beam_weights(weights, hypotheses)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Keeps the rows of the hypotheses that stay, in their new order."""
        rows = self.cached(incremental_state)
        return self.cache(incremental_state, reorder_cache(rows, new_order)) if rows else incremental_state

    def heads(self, source: Source, queries: int) -> Heads:
        """The keys and values of each head, and for this many queries what the convolution adds."""
        heads = (self.num_heads, self.head_dim)
        key = self.k_proj(source.key).unflatten(2, heads)
        if self.value_convolution is None:
            return Heads(key, self.v_proj(source.value).unflatten(2, heads), None)
        value, without = with_and_without_bias(self.v_proj, source.value)
        padding = queries - len(without)  # beyond N, which the source has not
        without = F.pad(without, (0, 0, 0, 0, 0, padding)) if padding else without
        return Heads(key, value.unflatten(2, heads), self.value_convolution(without.unflatten(2, heads)))

    def softmax_attention(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, convolved: Tensor | None = None
    ) -> Tensor:
        """The output (T, B, C) of plain attention, in the fastest form for these shapes.

        Args:
            query: (T, B, C).
            keys, values: (B, H, s, d).
            mask: (B, 1, 1, s), true where a key takes part; None where all do.
            convolved: (T, B, H, d), added to what the heads give.
        """
        if convolved is None and self.folding_pays(query, keys.size(2)):
            return folded_attention(query, keys, values, mask, self.q_proj, self.out_proj, self.dropout_module)
        dropout = self.dropout_probability
        out = F.scaled_dot_product_attention(self.queries(query), keys, values, attn_mask=mask, dropout_p=dropout)
        return self.output(out, convolved)

    def softmax_attention_with_probabilities(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, convolved: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same with an explicit softmax, and its probabilities before dropout, (B, H, T, s)."""
        found = scores(self.queries(query), keys)
        if mask is not None:
            found = found.masked_fill(~mask, -torch.inf)
        probabilities = softmax(found)
        out = self.dropout_module(probabilities.type_as(values)) @ values
        return self.output(out, convolved), probabilities

    def folding_pays(self, query: Tensor, keys: int) -> bool:
        """Whether plain attention to this number of keys is faster with the linear layers folded into them.

        In half precision it is not, as folded scores are made in float32, and those of torch's fused kernels inside.
        """
        plain = is_plain(self.q_proj) and is_plain(self.out_proj) and not rounds_to_half(query)
        limits = thresholds(query.device)
        return plain and folding_pays(query.size(0), keys, self.num_heads, self.embed_dim, limits)

    def _source(self, call: Call) -> Source:
        """The source with zeros at padded positions, without padding beyond N, and in a search each sentence once."""
        key, value, mask = self.keys_and_values(call)
        if call.incremental_state is not None and self.beam_size > 1:
            key, value, mask = self._one_of_each_beam(key, value, mask)
        n, longest = key.size(0), self.max_positions
        if mask is None:
            sentences, device = key.size(1), key.device
            name = f"lengths of {sentences} sentences of {n}"
            lengths = self.length_cache.get(name, None, lambda _: torch.full((sentences,), n, device=device))
        else:
            lengths = self.length_cache.get("lengths", mask, sentence_lengths)

        def clean(x: Tensor) -> Tensor:
            return x if mask is None else clear_padding(x[:longest], mask[:, :longest])

        clean_key = self.source_cache.get("clean key", key, clean)
        clean_value = clean_key if value is key else self.source_cache.get("clean value", value, clean)
        return Source(clean_key, clean_value, mask, lengths)

    def _one_of_each_beam(
        self, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """(n, B h, D) to (n, B, D), and (B h, n) to (B, n), for h = `beam_size` copies of each sentence.

        Raises:
            ValueError: a batch of no whole beams.
        """
        hypotheses = self.beam_size
        if key.size(1) % hypotheses:
            raise ValueError(
                f"{key.size(1)} hypotheses are no whole beams of {hypotheses}; call set_beam_size(1) for a search "
                "without beams"
            )
        one_key = self.source_cache.get("one key", key, lambda x: x[:, ::hypotheses])
        one_value = one_key
        if value is not key:
            one_value = self.source_cache.get("one value", value, lambda x: x[:, ::hypotheses])
        if mask is not None:
            mask = self.source_cache.get("one mask", mask, lambda x: x[::hypotheses])
        return one_key, one_value, mask
