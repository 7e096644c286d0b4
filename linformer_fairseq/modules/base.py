"""What all kinds of attention have in common: fairseq's signature, the checks, and the layers around the attention."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from torch import Tensor

from linformer_fairseq.modules.forward_cache import ForwardCache
from linformer_fairseq.modules.linear_layers import without_bias
from linformer_fairseq.modules.ops.padding import clear_padding, sentence_lengths
from linformer_fairseq.modules.value_convolution import ValueConvolution

IncrementalState = dict[str, dict[str, Any]]


class Call(NamedTuple):
    """What an attention is called with, once it has been checked."""

    query: Tensor
    """(T, B, C)."""
    key: Tensor | None
    """(n, B, kdim); None for the queries, or for keys that are cached."""
    value: Tensor | None
    """(n, B, vdim); None for the keys."""
    padding_mask: Tensor | None
    """(B, n), true at padded positions."""
    incremental_state: IncrementalState | None
    need_weights: bool
    by_head: bool
    """Whether the weights of each head are wanted, and not their mean."""


class ProjectedAttention(MultiheadAttention):
    """Base of all kinds of attention, a drop-in for fairseq's `MultiheadAttention` with its parameter names.

    A kind overrides `attend`, and says in `causal` and `side` what it is for.

    Args:
        embed_dim, num_heads, kdim, vdim, dropout, bias, self_attention, encoder_decoder_attention, dictionary,
            q_noise, qn_block_size: as in fairseq. Quantisation noise falls on the four linear layers, as there.
        max_positions: N, the longest sentence of keys, in tokens.
        value_convolution: the width in tokens of a `ValueConvolution` in an encoder's self-attention; 0 for none.

    Raises:
        ValueError: for what no kind supports (`add_bias_kv`, `add_zero_attn`, xFormers), and for a convolution of even
            width or in other attention than an encoder's.
    """

    causal = False
    """Whether later tokens are hidden from a query by the attention itself."""
    side = "source"
    """Which side of a translation its keys are on, for refusals."""
    drops_probabilities = True
    """Whether there are attention probabilities to drop in training."""
    convolves = False
    """Whether `attend` adds the convolution over the values itself, to what the heads give."""

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
        max_positions: int,
        value_convolution: int = 0,
    ) -> None:
        for name, given in {
            "add_bias_kv": add_bias_kv,
            "add_zero_attn": add_zero_attn,
            "xformers_att_config": xformers_att_config is not None,
        }.items():
            if given:
                raise ValueError(f"{type(self).__name__} does not support {name}; leave it out")
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
        if value_convolution and (self.causal or not self_attention):
            raise ValueError("value_convolution is for the self-attention of an encoder: leave it out")
        self.value_convolution = ValueConvolution(num_heads, value_convolution) if value_convolution else None
        self.max_positions = max_positions
        self.q_noise = q_noise
        self.source_cache = ForwardCache()
        self.length_cache = ForwardCache()

    def share(self, cache: ForwardCache, layers: Iterable["ProjectedAttention"]) -> None:
        """Takes `cache` for what is the same in all `layers` of a decoder's cross-attention, of which this is one."""
        self.source_cache = cache
        self.share_lengths(cache)

    def share_lengths(self, cache: ForwardCache) -> None:
        """Takes `cache` for what depends on nothing but the lengths of sentences, in all layers of one kind."""
        self.length_cache = cache

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
        """Attends from every query to the keys.

        Args:
            query: (T, B, C).
            key, value: (n, B, kdim) and (n, B, vdim), right-padded, n <= N; None once `static_kv` keys are cached.
            key_padding_mask: (B, n), true at padded positions, whose contents never matter.
            incremental_state: fairseq's cache. It keeps what `static_kv` keys were made into, and for causal attention
                the state after the tokens so far, which those of this call, one or many, come after.
            need_weights: return the attention weights, averaged over heads.
            need_head_weights: return those of each head.
            static_kv: key and value are the same at every step (cross-attention).
            attn_mask: none; for causal attention also fairseq's future mask, (T, T), which says what it does anyway.

        Returns:
            The output (T, B, C), and None or the weights over tokens: (B, T, n), or (H, B, T, n) by head. For causal
            attention n counts the tokens of earlier calls too, whose padding is not remembered.

        Raises:
            ValueError: for another `attn_mask`, `before_softmax`, an `incremental_state` that is neither of `static_kv`
                nor of causal attention, `static_kv` in causal attention, keys longer than N, and keys of another batch.
        """
        name = type(self).__name__
        if attn_mask is not None and not (self.causal and _is_future_mask(attn_mask, query.size(0))):
            raise ValueError(f"{name} supports no attn_mask{' but the future mask' if self.causal else ''}")
        if before_softmax:
            raise ValueError(f"{name} does not support before_softmax")
        if self.causal and static_kv:
            raise ValueError(f"{name} does not support static_kv, which is for cross-attention")
        if incremental_state is not None and not (self.causal or static_kv):
            raise ValueError(f"{name} does not support incremental_state without static_kv")
        need_weights = need_weights or need_head_weights
        call = Call(query, key, value, key_padding_mask, incremental_state, need_weights, need_head_weights)
        out, weights = self.attend(call)
        if self.value_convolution is not None and not self.convolves:
            out = out + self._convolved(self.value_convolution, call)
        return out, weights

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """The output (T, B, C), and the weights over tokens if they are needed."""
        raise NotImplementedError

    def _convolved(self, convolution: ValueConvolution, call: Call) -> Tensor:
        """What the convolution over the values, without their bias, adds to the output, (n, B, C)."""
        _, value, mask = self.keys_and_values(call)
        values = without_bias(self.v_proj, clear_padding(value, mask))
        convolved = convolution(values.unflatten(2, (self.num_heads, self.head_dim)))
        return without_bias(self.out_proj, convolved.flatten(2))

    @property
    def dropout_probability(self) -> float:
        """The share of attention probabilities that are dropped now."""
        dropping = self.training or self.dropout_module.apply_during_inference
        return self.dropout_module.p if dropping else 0.0

    def queries(self, query: Tensor) -> Tensor:
        """The queries of each head, (T, B, C) to (B, H, T, d), not scaled."""
        return self.q_proj(query).unflatten(2, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def output(self, out: Tensor, convolved: Tensor | None = None) -> Tensor:
        """Applies the output layer to what the heads give, (B, H, T, d) to (T, B, C), with `convolved`, (T, B, H, d),
        added to it.

        torch's fused kernels store the heads of a query next to each other, with queries either in the order of the
        input or sentence by sentence. Neither layout is copied here; any other is copied once.
        """
        if convolved is not None:
            out = out + convolved.permute(1, 2, 0, 3)
        if out.stride(2) >= out.stride(0):
            return self.out_proj(out.permute(2, 0, 1, 3).flatten(2))
        return self.out_proj(out.transpose(1, 2).flatten(2)).transpose(0, 1)

    def heads_before_biases(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q/√d, and K and V without their biases, (T or n, B, H, d).

        The biases come after a projection, where that of the keys drops out of the softmax and that of the values is
        `late_value_bias`.
        """
        heads = (self.num_heads, self.head_dim)
        return (
            (self.q_proj(query) * self.scaling).unflatten(2, heads),
            F.linear(key, self.k_proj.weight).unflatten(2, heads),
            F.linear(value, self.v_proj.weight).unflatten(2, heads),
        )

    def late_value_bias(self) -> Tensor | None:
        """The bias of the values, (C,); None without biases.

        That of the keys gets a gradient of zero, as torch's DDP waits for one of every parameter.
        """
        bias = self.v_proj.bias
        return bias + 0.0 * self.k_proj.bias if bias is not None and torch.is_grad_enabled() else bias

    def keys_and_values(self, call: Call, position: int = 0) -> tuple[Tensor, Tensor, Tensor | None]:
        """Key, value and padding mask, with what the caller left out filled in.

        Args:
            position: tokens that came before these keys.

        Raises:
            ValueError: keys of another batch than the queries', or tokens (padding may be there) beyond N.
        """
        if call.key is None and not self.self_attention:
            raise ValueError(f"{type(self).__name__} needs a key; only cached static keys can be left out")
        key = call.query if call.key is None else call.key
        value = key if call.value is None else call.value
        if key.size(1) != call.query.size(1):
            raise ValueError(
                f"{type(self).__name__} needs keys for every sentence of the queries, not for {key.size(1)} of "
                f"{call.query.size(1)}"
            )
        n, longest = key.size(0), max(0, self.max_positions - position)
        mask = None if call.padding_mask is None else call.padding_mask.bool()
        if n > longest and (mask is None or not mask[:, longest:].all()):
            tokens = position + (n if mask is None else int(sentence_lengths(mask).max()))
            raise ValueError(
                f"a {self.side} of {tokens} tokens is longer than the {self.max_positions} positions that the "
                f"attention was built for; shorten it or train with a larger --max-{self.side}-positions"
            )
        return key, value, mask

    def cached(self, incremental_state: IncrementalState | None) -> dict[str, Any]:
        """What this attention keeps between the steps of a search, by name; empty at the first."""
        return {} if incremental_state is None else self._get_input_buffer(incremental_state)

    def cache(self, incremental_state: IncrementalState, kept: Mapping[str, Any]) -> IncrementalState:
        """Keeps these for the next step."""
        return self._set_input_buffer(incremental_state, dict(kept))


def _is_future_mask(mask: Tensor, length: int) -> bool:
    """Whether `mask` (T, T) hides all later tokens and no others: -inf, or true, above the diagonal, zero elsewhere."""
    hidden = mask if mask.dtype == torch.bool else mask.isneginf()
    future = torch.ones(length, length, dtype=torch.bool, device=mask.device).triu(1)
    return torch.equal(hidden, future) and not mask.tril().any()
