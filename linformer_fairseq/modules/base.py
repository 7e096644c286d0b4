"""What all kinds of attention have in common: fairseq's signature, the checks, and the layers around the attention."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from linformer_fairseq.modules.ops.memo import remembered
from linformer_fairseq.modules.ops.padding import Padding, Places, padding_of
from linformer_fairseq.modules.value_convolution import ValueConvolution

IncrementalState = dict[str, dict[str, Any]]
Moves = Literal["nothing", "keys", "tokens"]
"""What is moved so that padding comes last: queries with the keys ("tokens"), keys alone, or nothing."""


class Call(NamedTuple):
    """What an attention is called with, checked, with padding on the right where the kind wants it there."""

    query: Tensor
    """(T, B h, C), for h hypotheses of every sentence side by side."""
    key: Tensor | None
    """(n, B, kdim), zero at padded positions where these are moved; None once static keys are cached."""
    value: Tensor | None
    """(n, B, vdim), like the keys; the very tensor of the keys where these are the values too."""
    padding: Padding | None
    """Where the keys are padded; None where they are not."""
    incremental_state: IncrementalState | None
    need_weights: bool
    by_head: bool
    """Whether the weights of each head are wanted, and not their mean."""


class BaseAttention(MultiheadAttention):
    """Base of all kinds of attention, a drop-in for fairseq's `MultiheadAttention` with its parameter names.

    A kind overrides `attend`, and says in `causal` what it is for and in `moves` what it needs to have in order.
    Whatever a call makes stays in that call and in its incremental state, so that any number of threads may use a
    model.

    Args:
        embed_dim, num_heads, kdim, vdim, dropout, bias, self_attention, encoder_decoder_attention, dictionary,
            q_noise, qn_block_size: as in fairseq, whose quantisation noise falls on the four linear layers.
        max_positions: N, the most tokens that keys may have; None where any number may.
        value_convolution: the width in tokens of a `ValueConvolution` in an encoder's self-attention; 0 for none.

    Raises:
        ValueError: for what no kind supports (`add_bias_kv`, `add_zero_attn`, xFormers), and for a convolution of even
            width or in other attention than an encoder's.
    """

    causal = False
    """Whether later tokens are hidden from a query by the attention itself."""
    needs_future_mask = False
    """Whether causal attention refuses to hide the future where its decoder does not ask for that by a mask."""
    drops_probabilities = True
    """Whether there are attention probabilities to drop in training."""

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
        max_positions: int | None = None,
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
        if self.causal and not self_attention:
            raise ValueError(f"{type(self).__name__} is self-attention; pass self_attention=True")
        if value_convolution and (self.causal or not self_attention):
            raise ValueError("value_convolution is for the self-attention of an encoder: leave it out")
        self.value_convolution = ValueConvolution(num_heads, value_convolution) if value_convolution else None
        self.max_positions = max_positions

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
            query: (T, B h, C), of h hypotheses of every sentence side by side; h is 1 but in cross-attention.
            key, value: (n, B, kdim) and (n, B, vdim); None once `static_kv` keys are cached.
            key_padding_mask: (B, n), true at padded positions, on either side and between tokens, or on the right for
                causal attention other than full. Their contents do not matter, but for full attention must be finite.
            incremental_state: fairseq's cache. It keeps what `static_kv` keys were made into, and for causal attention
                the state after the tokens so far, which the tokens of this call, one or many, come after.
            need_weights: return the attention weights, averaged over heads.
            need_head_weights: return the weights of each head.
            static_kv: key and value do not change from step to step (cross-attention).
            attn_mask: none; for causal attention also fairseq's future mask, (T, T), which says what it does anyway.

        Returns:
            The output (T, B h, C), and None or the weights, which are at least 0 and sum to 1 over tokens: (B h, T, n),
            or (H, B h, T, n) by head. For causal attention n counts the tokens of earlier calls too, whose padding is
            not remembered.

        Raises:
            ValueError: for another `attn_mask`, `before_softmax`, an `incremental_state` that is neither of `static_kv`
                nor of causal attention, `static_kv` in causal attention, more keys than N, queries that are no whole
                number for each sentence of the keys, and padding before a token in causal attention.
        """
        name = type(self).__name__
        if attn_mask is not None and not (
            self.causal and attn_mask.shape == 2 * query.shape[:1] and _is_future_mask(attn_mask)
        ):
            raise ValueError(f"{name} supports no attn_mask{' but the future mask' if self.causal else ''}")
        if self.needs_future_mask and attn_mask is None and incremental_state is None and len(query) > 1:
            raise ValueError(
                f"{name} hides later tokens, and this decoder does not: leave decoder out of --linformer-attention"
            )
        if before_softmax:
            raise ValueError(f"{name} does not support before_softmax")
        if self.causal and static_kv:
            raise ValueError(f"{name} does not support static_kv, which is for cross-attention")
        if incremental_state is not None and not (self.causal or static_kv):
            raise ValueError(f"{name} does not support incremental_state without static_kv")
        need_weights, padding = need_weights or need_head_weights, None
        moves: Moves = "nothing"
        if static_kv and self.cached(incremental_state):
            key = value = None
        else:
            key, value = self._keys_and_values(query, key, value)
            padding = None if key_padding_mask is None else padding_of(key_padding_mask)
            if padding is not None and (moves := self.moves(padding)) != "nothing":
                query, key, value = self._moved(query, key, value, padding, moves == "tokens")
        if not query.numel():  # no tokens, or no sentences
            heads = (self.num_heads,) if need_head_weights else ()
            none = query.new_zeros(*heads, query.size(1), len(query), 0 if key is None else len(key))
            return self.out_proj(query), none if need_weights else None
        out, weights = self.attend(Call(query, key, value, padding, incremental_state, need_weights, need_head_weights))
        if out.dim() == 4:
            out = self._output(out, None if value is None else self._convolved(value, padding, moves))
        if moves == "tokens" and self.self_attention and padding is not None and padding.places is not None:
            out = padding.put_back(out)
            if weights is not None:
                weights = weights.gather(2, padding.places[:, None, :, None].expand_as(weights))
        if weights is None:
            return out, None
        if need_head_weights:
            return out, weights.transpose(0, 1)
        return out, weights.squeeze(1) if weights.size(1) == 1 else weights.mean(1)

    def moves(self, padding: Padding) -> Moves:
        """What this kind needs to have in order. Padding of what is moved is set to zero, and what the attention gives
        to queries that are moved is put back; those of cross-attention never are."""
        return "tokens"

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """What each head gives, (B h, H, T, d), or the output itself, (T, B h, C), where there is no convolution; and
        the weights over tokens if they are needed, (B h, H, T, n), or (B h, 1, T, n) where those of each head are not.
        """
        raise NotImplementedError

    @property
    def place(self) -> Literal["encoder", "cross", "decoder"]:
        """Where in a model it is: an encoder's self-attention, cross-attention, or a decoder's self-attention."""
        return "decoder" if self.causal else "encoder" if self.self_attention else "cross"

    @property
    def dropout_probability(self) -> float:
        """The share of attention probabilities that are dropped now."""
        dropping = self.training or self.dropout_module.apply_during_inference
        return self.dropout_module.p if dropping else 0.0

    def split_heads(self, x: Tensor) -> Tensor:
        """The features of each head, (n, B, C) to (B, H, n, d)."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def cached(self, incremental_state: IncrementalState | None) -> dict[str, Any]:
        """What this attention keeps between the steps of a search, by name; empty at the first."""
        return {} if incremental_state is None else self._get_input_buffer(incremental_state)

    def cache(self, incremental_state: IncrementalState, kept: Mapping[str, Any]) -> IncrementalState:
        """Keeps these for the next step."""
        return self._set_input_buffer(incremental_state, dict(kept))

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Puts what is kept between steps into a new order of hypotheses."""
        cached = self.cached(incremental_state)
        return self.cache(incremental_state, self.reordered(cached, new_order)) if cached else incremental_state

    def reordered(self, cached: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """What is kept of the hypotheses that stay, (B' h), in their new order; an encoder keeps nothing."""
        raise NotImplementedError

    def _keys_and_values(self, query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor]:
        """Fills in what the caller left out."""
        name = type(self).__name__
        if key is None and not self.self_attention:
            raise ValueError(f"{name} needs a key; only cached static keys can be left out")
        key = query if key is None else key
        value = key if value is None else value
        if len(key) != len(query) and self.self_attention:
            raise ValueError(f"{name} is self-attention: pass a key for every query, not {len(key)} for {len(query)}")
        sentences, rows = key.size(1), query.size(1)
        if rows != sentences and (self.self_attention or not sentences or rows % sentences):
            raise ValueError(f"{name} needs keys for every sentence of the queries, not for {sentences} of {rows}")
        return key, value

    def _moved(
        self, query: Tensor, key: Tensor, value: Tensor, padding: Padding, queries_too: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Moves padding to the right, and sets it to zero."""
        if self.causal:
            padding.refuse_before_a_token(type(self).__name__)
        moved_key = padding.put_right(key)
        moved_value = moved_key if value is key else padding.put_right(value)
        if queries_too and self.self_attention and padding.order is not None:
            query = moved_key if query is key else padding.put_right(query)
        return query, moved_key, moved_value

    def places(self, call: Call) -> Places:
        """Where the keys of a call stood, so that weights can be put back."""
        assert call.key is not None
        moved = call.padding is not None and self.moves(call.padding) != "nothing"
        return Places.of(len(call.key), call.padding, moved)

    def check_length(self, tokens: int, padding: Padding | None, position: int = 0) -> None:
        """Refuses more keys than the attention was built for; padding may be there.

        Args:
            tokens: the keys, with their padding.
            position: the tokens that came before them.

        Raises:
            ValueError: more than N.
        """
        longest = self.max_positions
        if longest is None or position + tokens <= longest:
            return
        if padding is not None:
            if padding.known_lengths is None:  # torch.compile is tracing
                return
            tokens = max(padding.known_lengths)
        if position + tokens > longest:
            side = "target" if self.causal else "source"
            raise ValueError(
                f"a {side} of {position + tokens} tokens is longer than the {longest} positions that the attention was "
                f"built for; shorten it or train with a larger --max-{side}-positions"
            )

    def _convolved(self, value: Tensor, padding: Padding | None, moves: Moves) -> Tensor | None:
        """What a convolution over the values, without their bias, adds to each head, (n, B, H, d)."""
        if self.value_convolution is None:
            return None
        if padding is not None and moves == "nothing":
            value = padding.put_right(value)
        value = without_bias(self.v_proj, value).unflatten(2, (self.num_heads, self.head_dim))
        out: Tensor = self.value_convolution(value)
        if padding is not None and moves != "tokens":
            out = padding.put_back(out.flatten(2)).view_as(out)
        return out

    def _output(self, out: Tensor, convolved: Tensor | None) -> Tensor:
        """Applies the output layer to what the heads give, (B, H, T, d) to (T, B, C).

        torch's fused kernels store the heads of a query next to each other, with queries either in the order of the
        input or sentence by sentence. Neither layout is copied here; any other is copied once.
        """
        if convolved is not None:
            out = out + convolved.permute(1, 2, 0, 3)
        if out.stride(2) >= out.stride(0):
            return self.out_proj(out.permute(2, 0, 1, 3).flatten(2))
        return self.out_proj(out.transpose(1, 2).flatten(2)).transpose(0, 1)


def is_plain(linear: nn.Module) -> bool:
    """Whether calling a layer is nothing but the product with its weight and the sum with its bias."""
    hooks = (f"_{way}{when}_hooks" for way in ("forward", "backward") for when in ("", "_pre"))
    return type(linear) is nn.Linear and not any(getattr(linear, name) for name in hooks)


def bias_of(linear: nn.Linear) -> Tensor | None:
    """The bias of a linear layer, which in torch's dynamically quantised ones is a method."""
    bias: Any = linear.bias
    return bias() if callable(bias) else bias


def without_bias(linear: nn.Linear, x: Tensor) -> Tensor:
    """What a linear layer makes of `x` (n, B, D), less its bias.

    A layer that may be quantised or has hooks is called once, as every call draws noise, and what it makes of zeros is
    taken off.
    """
    if is_plain(linear):
        return F.linear(x, linear.weight)
    out: Tensor = linear(F.pad(x, (0, 0, 0, 0, 0, 1)))
    return out[:-1] - out[-1:]


def _is_future_mask(mask: Tensor) -> bool:
    """Whether `mask` (T, T) hides all later tokens and no others: -inf, or true, above the diagonal, zero elsewhere.

    fairseq cuts the mask of every batch from the same larger one, which is looked at once.
    """
    whole = mask if mask._base is None else mask._base
    begins_it = whole.stride() == mask.stride() and whole.storage_offset() == mask.storage_offset()
    return (begins_it and _hides_the_future(whole)) or _hides_the_future(mask)


@remembered
def _hides_the_future(mask: Tensor) -> bool:
    """Whether a mask hides all later tokens and no others."""
    hidden = mask if mask.dtype == torch.bool else mask.isneginf()
    future = torch.ones_like(hidden).triu(1)
    return bool(((hidden == future) & (future | (mask == 0))).all())
