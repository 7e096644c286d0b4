"""Longformer's attention, by the package transformers."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.peers.base import PeerAttention
from linformer_fairseq.modules.peers.packages import hidden, package
from linformer_fairseq.modules.registry import register_attention
from linformer_fairseq.modules.window_attention import WindowOptions

WINDOW = 256
"""Tokens of a window but the query's own, half of them to either side."""

LEAST_WINDOW = 4
"""The smallest window of the package."""


def longformer_attention(dim: int, heads: int, window: int) -> Any:
    """The package's self-attention over (B, n, C), a sliding window without global attention, whose linear layers are
    left out; the softmax is in float32. It has no output layer.

    Args:
        dim: C, the model width.
        window: w, tokens of a window but the query's own.

    Raises:
        NotInstalledError: the package cannot be imported.
    """
    with package("transformers"), hidden("torchaudio"):
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention
    config = LongformerConfig(
        hidden_size=dim, num_attention_heads=heads, attention_window=[window], attention_probs_dropout_prob=0.0
    )
    attention = LongformerSelfAttention(config, layer_id=0)
    attention.query_global = attention.key_global = attention.value_global = None
    return attention


def attend_locally(attention: nn.Module, x: Tensor, padded: Tensor) -> Tensor:
    """Calls `longformer_attention` for x (B, n, C), n a multiple of w, with a mask of padding (B, n)."""
    return attention(
        x,
        attention_mask=padded.to(x.dtype),  # of which the package only asks what is not zero
        is_index_masked=padded,
        is_index_global_attn=padded.new_zeros(padded.shape),
        is_global_attn=False,
    )[0]


@dataclass
class LongformerOptions(WindowOptions):
    """How many tokens a window has."""

    def validate(self) -> None:
        super().validate()
        _check_even(self.linformer_window_size)


@register_attention(
    "longformer",
    LongformerOptions,
    "a sliding window in the encoder alone, of the package transformers",
    defaults={"linformer_attention": "encoder", "linformer_window_size": WINDOW},
    encoder_only=True,
)
class LongformerAttention(PeerAttention):
    """Longformer's sliding window in an encoder (Beltagy et al., 2020, section 3.1), without global attention and
    dilation, as the package transformers computes it.

    Token i attends to the tokens i - w/2 ... i + w/2, like the kind `window`, of which this is another implementation.
    Sentences are padded to whole windows for the package, and padding is masked, so that no sentence depends on its
    batch. Where half a window is longer than the longest sentence, a smaller one that holds as much is used. The
    package's softmax is in float32, and so is all of it for float64. There are no parameters beyond the four linear
    layers.

    Args:
        args, options: as `PeerAttention` takes them.
        window_size: w, an even number.

    Raises:
        NotInstalledError: the package cannot be imported.
        ValueError: as `PeerAttention`, and for a w that is odd or below 4.
    """

    name = "longformer"
    drops_probabilities = True

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, window_size: int = WINDOW, **options: Any) -> None:
        _check_even(window_size)
        super().__init__(embed_dim, num_heads, *args, **options)
        self.window_size = window_size
        self.core: Any = longformer_attention(embed_dim, num_heads, window_size)
        del self.core.query, self.core.key, self.core.value  # whose places our linear layers take

    def extra_repr(self) -> str:
        return f"N={self.max_positions}, window_size={self.window_size}"

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        n = len(x)
        window = min(self.window_size, max(2 * (n - 1), LEAST_WINDOW))  # more would be padding
        more = -n % window
        padded = x.new_zeros(x.size(1), n).bool() if mask is None else mask
        core = self.core
        core.one_sided_attn_window_size = window // 2
        # callables and no modules, whose weights would be in checkpoints twice
        linears = (self.q_proj, self.k_proj, self.v_proj)
        core.query, core.key, core.value = (partial(_at_most_float32, linear) for linear in linears)
        core.dropout = self.dropout_probability
        core.training = core.dropout > 0
        x = F.pad(x, (0, 0, 0, 0, 0, more)).transpose(0, 1)
        out = attend_locally(core, x, F.pad(padded, (0, more), value=True))[:, :n]
        return (out.double() if x.dtype == torch.float64 else out).transpose(0, 1)


def _at_most_float32(linear: nn.Module, x: Tensor) -> Tensor:
    """What a linear layer gives, where float64 would be -∞ at padding in the package's softmax, which is in float32."""
    out: Tensor = linear(x)
    return out.float() if out.dtype == torch.float64 else out


def _check_even(window_size: int) -> None:
    if window_size < LEAST_WINDOW or window_size % 2:
        raise ValueError(
            f"--linformer-window-size of longformer must be even and at least {LEAST_WINDOW}, not {window_size}"
        )
