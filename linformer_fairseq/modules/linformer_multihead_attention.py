"""Multi-head attention over projected keys and values."""

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from linformer_fairseq.modules.causal import CausalState, causal_attention
from linformer_fairseq.modules.folded_attention import folded_attention, folding_pays
from linformer_fairseq.modules.hypotheses import apart, once_a_sentence, side_by_side, weights_apart
from linformer_fairseq.modules.key_value_slots import key_value_slots
from linformer_fairseq.modules.met import Slots, Tokens, TwoLevels, from_cache, reordered, to_cache
from linformer_fairseq.modules.once import Once
from linformer_fairseq.modules.padding import clear_padding, no_padding
from linformer_fairseq.modules.padding import lengths as padding_lengths
from linformer_fairseq.modules.precision import at_least_float32, softmax
from linformer_fairseq.modules.projected_scores import projected_scores_attention, projecting_scores_pays
from linformer_fairseq.modules.projection import (
    LinearProjection,
    MeanPool,
    Projection,
    TwoLevelPool,
    apply_matrix,
)
from linformer_fairseq.modules.token_weights import weights_of_slots, weights_of_window
from linformer_fairseq.modules.two_level import (
    Source,
    means,
    shared_evenly,
    two_level_attention,
    two_level_attention_with_weights,
)

IncrementalState = dict[str, dict[str, Tensor | None]]

_STATE = ("key_sums", "value_sums", "recent_keys", "recent_values")
"""The names of a `CausalState`'s parts in fairseq's cache."""


class LinformerMultiheadAttention(MultiheadAttention):
    r"""Linformer attention (Wang et al., 2020, equation 7), a drop-in for fairseq's `MultiheadAttention`.

    For one sentence of n tokens `X` and one head, with learned or pooling projections `E`, `F` of the length axis:

        K̄ = (E X) W_K + b_K        V̄ = (F X) W_V + b_V        both (k, d)
        out = softmax(Q K̄ᵀ / √d) V̄

    It costs O(T k) for T queries instead of O(T n). The biases come after the projection, so that the key bias
    drops out of the softmax as it does in full attention.

    With a `TwoLevelPool` every query opens its best slots too, and meets their tokens one by one
    (`linformer_fairseq.modules.two_level`): O(T (k + m n / k)), and full attention for n <= k.

    With `causal`, query i meets the slots of the tokens 0 ... i alone, E[:, :i+1] X[:i+1] and F[:, :i+1] X[:i+1]: no
    later token enters it, and decoding keeps two sums of the size of the slots instead of all keys and values
    (`linformer_fairseq.modules.causal`).

    Args:
        embed_dim, num_heads, kdim, vdim, dropout, bias, self_attention, encoder_decoder_attention, dictionary,
            q_noise, qn_block_size: as in fairseq. Quantisation noise falls on the four linear layers, as there.
        key_projection: E.
        value_projection: F; None takes E for the values as well (key-value sharing).
        causal: self-attention that does not see later tokens; it needs linear projections.
        window: of causal attention, how many tokens up to its own a query meets one by one, beside k slots of those
            before them; decoding keeps their keys and values too.
        chunk_size: tokens that a causal attention computes at a time, by default the fastest number; it does not change
            the result.

    Raises:
        ValueError: for what Linformer attention cannot do (`add_bias_kv`, `add_zero_attn`, xFormers), for projections
            that a causal attention cannot have, for quantisation noise where heads have projections of their own or
            the attention is causal, and for E and F that do not fit together.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kdim: int | None = None,
        vdim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        self_attention: bool = False,
        encoder_decoder_attention: bool = False,
        dictionary: Dictionary | None = None,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        xformers_att_config: str | None = None,
        *,
        key_projection: Projection,
        value_projection: Projection | None = None,
        causal: bool = False,
        window: int = 0,
        chunk_size: int | None = None,
    ) -> None:
        for name, given in {
            "add_bias_kv": add_bias_kv,
            "add_zero_attn": add_zero_attn,
            "xformers_att_config": xformers_att_config is not None,
        }.items():
            if given:
                raise ValueError(f"Linformer attention does not support {name}; leave it out")
        if value_projection is None:
            value_projection = key_projection
        for projection in (key_projection, value_projection):
            if projection.num_heads not in (None, num_heads):
                raise ValueError(
                    f"the projection was made for {projection.num_heads} heads, but the attention has {num_heads}"
                )
        if (type(key_projection), key_projection.extra_repr()) != (
            type(value_projection),
            value_projection.extra_repr(),
        ):
            raise ValueError("the key and value projections must agree in kind, k, N and sharing of heads")
        if q_noise > 0 and key_projection.num_heads is not None:
            raise ValueError(
                "quantisation noise (--quant-noise-pq) needs projections that the heads share; "
                "choose another --linformer-sharing than none"
            )
        if window < 0 or (window and not causal):
            raise ValueError(f"a window is a number of tokens of causal attention, not {window} of any other")
        if causal:
            _check_causal(key_projection, self_attention, q_noise, chunk_size)
        super().__init__(
            embed_dim,
            num_heads,
            kdim=kdim,
            vdim=vdim,
            dropout=dropout,
            bias=bias,
            self_attention=self_attention,
            encoder_decoder_attention=encoder_decoder_attention,
            q_noise=q_noise,
            qn_block_size=qn_block_size,
        )
        self.dropout_module.module_name = MultiheadAttention.__name__  # as `--retain-dropout-modules` knows it
        if dictionary is not None:  # what newer fairseq's attention takes and keeps
            self.dictionary = dictionary
        self.key_projection = key_projection
        self.value_projection = value_projection
        self.causal = causal
        self.window = window
        self.chunk_size = chunk_size
        self.once_for_source = Once()
        self.once_for_slots = Once()

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from every query to the projected keys and values.

        Args:
            query: (T, B, C).
            key, value: (n, B, kdim) and (n, B, vdim), right-padded, n <= N; None once `static_kv` keys are cached.
            key_padding_mask: (B, n), true at padded positions, whose contents never matter.
            incremental_state: fairseq's cache. It keeps the projected keys and values of `static_kv`; for causal
                attention the sums over the tokens so far, which those of this call, one or many, come after.
            need_weights: return the attention weights, averaged over heads.
            need_head_weights: return those of each head.
            static_kv: key and value are the same at every step (cross-attention).
            attn_mask: none; for causal attention also fairseq's future mask, (T, T), which says what it does anyway.

        Returns:
            The output (T, B, C), and None or the weights over tokens, P̄ F: (B, T, n), or (H, B, T, n) by head. For
            causal attention n counts the tokens of earlier calls too, whose padding is not remembered.

        Raises:
            ValueError: for another `attn_mask`, `before_softmax`, an `incremental_state` that is neither of `static_kv`
                nor of causal attention, `static_kv` in causal attention, keys longer than N, and keys of another batch.
        """
        if attn_mask is not None and not (self.causal and _is_future_mask(attn_mask, query.size(0))):
            raise ValueError(
                "causal Linformer attention supports no other attn_mask than the future mask"
                if self.causal
                else "Linformer attention does not support attn_mask: a slot mixes all positions"
            )
        if before_softmax:
            raise ValueError("Linformer attention does not support before_softmax")
        need_weights = need_weights or need_head_weights
        if self.causal:
            if static_kv:
                raise ValueError("causal Linformer attention does not support static_kv, which is for cross-attention")
            return self._attend_causally(
                query, key, value, key_padding_mask, incremental_state, need_weights, need_head_weights
            )
        if incremental_state is not None and not static_kv:
            raise ValueError("Linformer attention does not support incremental_state without static_kv or causal")

        dropping = self.training or self.dropout_module.apply_during_inference
        dropout = self.dropout_module.p if dropping else 0.0
        cached = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        if cached:
            met = from_cache(cached)
        else:
            searching = incremental_state is not None
            tokens = self._tokens(query, key, value, key_padding_mask, searching)
            if isinstance(self.key_projection, TwoLevelPool) and len(tokens.key) > self.key_projection.projected_dim:
                met = self._two_levels(tokens)
            elif not need_weights and not searching and self._projecting_scores_pays(query, tokens):
                return self.out_proj(self._attend_by_projected_scores(query, tokens, dropout)), None
            else:
                met = self._slots(tokens, searching or need_weights)
            del tokens  # copies, where there is padding
            if searching:
                cached = to_cache(met, query.size(1))
                self._set_input_buffer(incremental_state, cached)
                met = from_cache(cached)
        attend = self._attend_to_slots if isinstance(met, Slots) else self._attend_in_two_levels
        hypotheses = query.size(1) // len(met.keys)  # that share the keys of their sentence
        out, weights = attend(side_by_side(query, hypotheses), met, dropout, need_weights, need_head_weights)
        return apart(out, hypotheses), None if weights is None else weights_apart(weights, hypotheses)

    def _two_levels(self, tokens: Tokens) -> TwoLevels:
        """What queries meet in two levels."""
        pool = self.key_projection
        key, value, lengths = tokens.key, tokens.value, tokens.lengths
        longest = pool.projected_dim**2
        if len(key) > longest:
            windows = MeanPool(longest, len(key)).windows(len(key), lengths)
            key, value, lengths = means(key, windows), means(value, windows), lengths.clamp(max=longest)
        windows = pool.windows(len(key), lengths)
        matrix = windows.mean_matrix(key.dtype)

        def slots_and_tokens(linear: nn.Module, x: Tensor) -> Tensor:
            by_head = linear(x).unflatten(2, (self.num_heads, self.head_dim))
            return torch.cat([apply_matrix(matrix, by_head), by_head.permute(1, 2, 0, 3)], 2)

        keys, values = slots_and_tokens(self.k_proj, key), slots_and_tokens(self.v_proj, value)
        mask = no_padding(tokens.key) if tokens.padding_mask is None else tokens.padding_mask
        return TwoLevels(Source(keys, values, windows), mask)

    def _attend_in_two_levels(
        self, query: Tensor, met: TwoLevels, dropout: float, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The output (T, B, C), and the weights over tokens if they are needed."""
        q, opened = self._queries(query), self.key_projection.open_slots
        if not need_weights:
            return self._output(two_level_attention(q, met.source, opened, dropout)), None
        out, weights = two_level_attention_with_weights(q, met.source, opened, dropout)
        n = met.padding_mask.size(1)
        longest = min(n, self.key_projection.max_positions)
        if weights.size(3) < longest:
            windows = MeanPool(weights.size(3), longest).windows(longest, padding_lengths(met.padding_mask))
            weights = shared_evenly(weights, windows)
        weights = F.pad(weights, (0, n - longest)).transpose(0, 1)
        return self._output(out), weights if by_head else weights.mean(0)

    def _attend_to_slots(
        self, query: Tensor, slots: Slots, dropout: float, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The output (T, B, C), and the weights over tokens if they are needed."""
        slot_mask = None if slots.padding_mask is None else self._slot_mask(slots.keys.size(2), slots.lengths)
        if need_weights:
            out, weights = self._attend_with_weights(self._queries(query), slots, slot_mask, by_head)
            return self._output(out), weights
        if self._folding_pays(query, slots.keys.size(2)):
            return folded_attention(
                query, slots.keys, slots.values, slot_mask, self.q_proj, self.out_proj, self.dropout_module
            ), None
        out = F.scaled_dot_product_attention(
            self._queries(query), slots.keys, slots.values, attn_mask=slot_mask, dropout_p=dropout
        )
        return self._output(out), None

    def _folding_pays(self, query: Tensor, slots: int) -> bool:
        return folding_pays(query.size(0), slots, self.num_heads, self.q_proj, self.out_proj)

    def _projecting_scores_pays(self, query: Tensor, tokens: Tokens) -> bool:
        n, sentences = tokens.key.shape[:2]
        if sentences != query.size(1) or self._folding_pays(query, self.key_projection.num_slots(n)):
            return False
        return projecting_scores_pays(
            (self.key_projection, self.value_projection),
            (self.k_proj, self.v_proj),
            query.size(0),
            self.num_heads,
            n,
            tokens.value is tokens.key,
        )

    def _attend_by_projected_scores(self, query: Tensor, tokens: Tokens, dropout: float) -> Tensor:
        """What the output layer takes, (T, B, C), without slot keys and slot values."""
        n, mask = len(tokens.key), tokens.padding_mask
        projections = self.key_projection, self.value_projection
        key_matrix, value_matrix = (x.matrix(n, tokens.lengths, query.dtype)[0, 0] for x in projections)
        return projected_scores_attention(
            *self._heads_before_biases(query, tokens.key, tokens.value),
            key_matrix,
            value_matrix,
            self._late_value_bias(),
            None if mask is None else self._slot_mask(len(key_matrix), tokens.lengths),
            dropout,
        )

    def _heads_before_biases(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q/√d, and K and V as they are before a bias: (T or n, B, H, d). The biases come after the projection, where
        that of the keys drops out of the softmax and that of the values is `_late_value_bias`."""
        heads = (self.num_heads, self.head_dim)
        return (
            (self.q_proj(query) * self.scaling).unflatten(2, heads),
            F.linear(key, self.k_proj.weight).unflatten(2, heads),
            F.linear(value, self.v_proj.weight).unflatten(2, heads),
        )

    def _late_value_bias(self) -> Tensor | None:
        """The bias of the values, (C,). That of the keys gets a gradient of zero, as torch's DDP waits for one of every
        parameter."""
        bias = self.v_proj.bias
        return bias + 0.0 * self.k_proj.bias if bias is not None and torch.is_grad_enabled() else bias

    def _queries(self, query: Tensor) -> Tensor:
        """(T, B, C) to (B, H, T, d)."""
        return self.q_proj(query).unflatten(2, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def _output(self, out: Tensor) -> Tensor:
        """The output layer, (B, H, T, d) to (T, B, C).

        torch's fused kernels leave a query's heads side by side, and the queries as they came or sentence after
        sentence: neither is copied here. What comes otherwise is copied once.
        """
        if out.stride(2) >= out.stride(0):
            return self.out_proj(out.permute(2, 0, 1, 3).flatten(2))
        return self.out_proj(out.transpose(1, 2).flatten(2)).transpose(0, 1)

    def _attend_causally(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Tensor | None,
        incremental_state: IncrementalState | None,
        need_weights: bool,
        by_head: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The output (T, B, C), and the weights over tokens if they are needed."""
        position, state, fresh = 0, None, False
        if incremental_state is not None:
            position, state, fresh = self._decoding_state(incremental_state, query)
        key, value, mask = self._key_value_mask(query, key, value, mask, position)
        if key.size(0) != query.size(0):
            raise ValueError(
                f"causal Linformer attention needs a key for every query, not {key.size(0)} for {query.size(0)}"
            )
        clean_key = clear_padding(key, mask)
        clean_value = clean_key if value is key else clear_padding(value, mask)

        length, slots, window = query.size(0), self.key_projection.projected_dim, self.window
        if state is None:
            window = min(window, length)
        slot_mask = None
        if self.key_projection.masks_empty_slots:
            slots = slots if state is not None else min(slots, length)  # no query meets those beyond
            slot_mask = torch.ones(length, slots, dtype=torch.bool, device=query.device).tril(position - window)
        elif window:  # slots of no token
            older = torch.arange(position, position + length, device=query.device) >= window
            slot_mask = older[:, None].expand(-1, slots)
        out, probabilities, state = causal_attention(
            *self._heads_before_biases(query, clean_key, clean_value),
            self.key_projection.columns(position - window, length)[:, :slots],
            self.value_projection.columns(position - window, length)[:, :slots],
            slot_mask,
            self.dropout_module,
            self.chunk_size,
            state,
            overwrite_state=fresh,
            need_probabilities=need_weights,
            window=window,
            position=position,
        )
        if state is not None:
            buffer = {
                **{name: x for name, x in zip(_STATE, state, strict=True) if x is not None},
                "tokens": torch.tensor(position + length),  # on the CPU, where it is read
            }
            self._set_input_buffer(incremental_state, buffer)
        out = out.flatten(2)
        bias = self._late_value_bias()
        if bias is not None:  # whole under dropout too, whose probabilities add up to one on average
            out = out + bias
        weights = None
        if probabilities is not None:
            probabilities = probabilities.permute(1, 2, 0, 3).to(at_least_float32(query.dtype))
            columns = self.value_projection.columns(0, position + length)[:, :slots]
            weights = weights_of_slots(probabilities[..., :slots], columns[None], by_head).tril(position - window)
            if window:
                weights = weights + weights_of_window(probabilities[..., slots:], position, by_head)
            if mask is not None:
                weights = weights.masked_fill(F.pad(mask, (position, 0))[:, None], 0.0)
        return self.out_proj(out), weights

    def _decoding_state(self, incremental_state: IncrementalState, query: Tensor) -> tuple[int, CausalState, bool]:
        """The number of tokens so far, their sums, and whether these are copies that nobody else holds."""
        buffer = self._get_input_buffer(incremental_state)
        if not buffer:
            shape = (query.size(1), self.num_heads, self.head_dim, self.key_projection.projected_dim)
            shapes = [shape] * 2 + [(*shape[:2], self.window, self.head_dim)] * (2 if self.window else 0)
            dtype = at_least_float32(query.dtype)
            return 0, CausalState(*(query.new_zeros(shape, dtype=dtype) for shape in shapes)), True
        state, order = CausalState(*(buffer.get(name) for name in _STATE)), buffer.get("order")
        if order is not None:
            # index_select copies with one thread on a CPU, gather with all
            index = order.view(-1, 1, 1, 1)
            reordered = (x if x is None else x.gather(0, index.expand(-1, *x.shape[1:])) for x in state)
            state = CausalState(*reordered)
        return int(buffer["tokens"]), state, order is not None

    def reorder_incremental_state(
        self, incremental_state: IncrementalState | None, new_order: Tensor
    ) -> IncrementalState | None:
        """For causal attention notes the new order of hypotheses: the next token copies the sums in that order, and can
        then be added to the copies in place. In cross-attention hypotheses change places within their sentence, so that
        there is something to do only where sentences come or go."""
        buffer = self._get_input_buffer(incremental_state)
        if not buffer:
            return incremental_state
        if self.causal:
            order = buffer.get("order")
            order = new_order if order is None else order.index_select(0, new_order)
            return self._set_input_buffer(incremental_state, {**buffer, "order": order})
        return self._set_input_buffer(incremental_state, reordered(buffer, new_order))

    def _key_value_mask(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, mask: Tensor | None, position: int = 0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Fills in what the caller left out, and refuses tokens (padding may be there) beyond N."""
        if key is None:
            if not self.self_attention:
                raise ValueError("Linformer attention needs a key; only cached static keys can be left out")
            key = query
        if value is None:
            value = key
        if key.size(1) != query.size(1):
            raise ValueError(
                f"Linformer attention needs keys for every sentence of the queries, not for {key.size(1)} of "
                f"{query.size(1)}"
            )
        n, positions = key.size(0), self.key_projection.max_positions
        longest = max(0, positions - position)
        mask = None if mask is None else mask.bool()
        if n > longest and (mask is None or not mask[:, longest:].all()):
            side = "target" if self.causal else "source"
            tokens = position + (n if mask is None else int(padding_lengths(mask).max()))
            raise ValueError(
                f"a {side} of {tokens} tokens is longer than the {positions} positions that the Linformer projection "
                f"was built for; shorten it or train with a larger --max-{side}-positions"
            )
        return key, value, mask

    def _tokens(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, mask: Tensor | None, searching: bool
    ) -> Tokens:
        """Keys and values with zeros for what stands in padding, and without what is padding beyond N; in a search each
        sentence's once."""
        key, value, mask = self._key_value_mask(query, key, value, mask)
        if searching and self.beam_size > 1:
            key, value, mask = self._once_a_sentence(key, value, mask)
        lengths = torch.full((key.size(1),), key.size(0), device=key.device) if mask is None else padding_lengths(mask)
        longest = self.key_projection.max_positions

        def clean(x: Tensor) -> Tensor:
            return x if mask is None else clear_padding(x[:longest], mask[:, :longest])

        clean_key = self.once_for_source("clean key", key, clean)
        clean_value = clean_key if value is key else self.once_for_source("clean value", value, clean)
        return Tokens(clean_key, clean_value, mask, lengths)

    def _slots(self, tokens: Tokens, need_mask: bool) -> Slots:
        """Projects the tokens."""
        mask = tokens.padding_mask
        slot_keys, slot_values = key_value_slots(
            (self.key_projection, self.value_projection),
            (self.k_proj, self.v_proj),
            self.num_heads,
            tokens.key,
            tokens.value,
            tokens.lengths,
            self.once_for_slots,
        )
        if mask is None and need_mask:
            mask = no_padding(tokens.key)
        return Slots(slot_keys, slot_values, mask, tokens.lengths)

    def _once_a_sentence(self, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """(n, B h, D) to (n, B, D), and (B h, n) to (B, n), if all h = beam_size hypotheses of each sentence come
        with the same."""
        hypotheses = self.beam_size
        one_key = self.once_for_source("one key", key, lambda x: once_a_sentence(x, hypotheses, 1))
        one_value = one_key
        if value is not key:
            one_value = self.once_for_source("one value", value, lambda x: once_a_sentence(x, hypotheses, 1))
        one_mask = None if mask is None else once_a_sentence(mask, hypotheses, 0)
        sentences = one_key.size(1)
        if one_value.size(1) == sentences and (mask is None or len(one_mask) == sentences):
            return one_key, one_value, one_mask
        return key, value, mask

    def _slot_mask(self, slots: int, lengths: Tensor) -> Tensor | None:
        """(B, 1, 1, s), true where a slot takes part in the softmax; None where all do."""
        if not self.key_projection.masks_empty_slots:
            return None
        filled = self.key_projection.filled_slots(lengths).clamp(min=1)
        return (torch.arange(slots, device=lengths.device) < filled[:, None])[:, None, None]

    def _attend_with_weights(
        self, q: Tensor, slots: Slots, slot_mask: Tensor | None, by_head: bool
    ) -> tuple[Tensor, Tensor]:
        """The explicit softmax."""
        scores = (q * self.scaling) @ slots.keys.transpose(2, 3)
        if slot_mask is not None:
            scores = scores.masked_fill(~slot_mask, -torch.inf)
        probabilities = softmax(scores)
        out = self.dropout_module(probabilities.type_as(q)) @ slots.values
        n = slots.padding_mask.size(1)
        longest = min(n, self.value_projection.max_positions)
        matrix = self.value_projection.matrix(longest, slots.lengths, probabilities.dtype)
        weights = weights_of_slots(probabilities, matrix, by_head)
        weights = weights.masked_fill(slots.padding_mask[:, None, :longest], 0.0)
        return out, F.pad(weights, (0, n - longest))


def _check_causal(projection: Projection, self_attention: bool, q_noise: float, chunk_size: int | None) -> None:
    """Refuses what causal attention cannot be built with."""
    if not self_attention:
        raise ValueError("causal Linformer attention is self-attention; pass self_attention=True")
    if not isinstance(projection, LinearProjection):
        raise ValueError(
            f"causal Linformer attention needs a linear projection; {type(projection).__name__} depends on the whole "
            "length"
        )
    if q_noise > 0:
        raise ValueError("quantisation noise (--quant-noise-pq) does not go with causal Linformer attention")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}")


def _is_future_mask(mask: Tensor, length: int) -> bool:
    """Whether `mask` (T, T) hides all later tokens and no others: -inf, or true, above the diagonal, zero elsewhere."""
    hidden = mask if mask.dtype == torch.bool else mask.isneginf()
    future = torch.ones(length, length, dtype=torch.bool, device=mask.device).triu(1)
    return torch.equal(hidden, future) and not mask.tril().any()
