"""Longformer's attention, by the package transformers."""

from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.registry import register_attention
from linformer_fairseq.modules.window_attention import WindowOptions
from peers.base import PeerAttention, package

LEAST_WINDOW = 4
"""The smallest window of the package."""


@dataclass
class LongformerOptions(WindowOptions):
    """How many tokens a window has."""

    def validate(self) -> None:
        super().validate()
        size = self.linformer_window_size
        if size < LEAST_WINDOW or size % 2:
            raise ValueError(
                f"--linformer-window-size of longformer must be even and at least {LEAST_WINDOW}, not {size}"
            )


@register_attention(
    "longformer",
    LongformerOptions,
    "a sliding window in the encoder alone, of the package transformers",
    defaults={"linformer_attention": "encoder", "linformer_window_size": 256},
    self_attention_only=True,
)
class LongformerAttention(PeerAttention):
    """Longformer's sliding window in an encoder (Beltagy et al., 2020, section 3.1), without global attention and
    dilation.

    Token i attends to the tokens i - w/2 ... i + w/2, like the kind `window`, of which this is another implementation.
    Sentences are padded to whole windows for the package, and padding is masked, so that no sentence depends on its
    batch. Where half a window is longer than the longest sentence, a smaller one that holds as much is used. The
    package's softmax is in float32, and so is all of it for float64.
    """

    name = "longformer"
    drops_probabilities = True

    def __init__(self, *args: Any, window_size: int, **options: Any) -> None:
        super().__init__(*args, **options)
        with package("transformers", without="torchaudio"):
            from transformers import LongformerConfig
            from transformers.models.longformer.modeling_longformer import LongformerSelfAttention
        sizes = {"hidden_size": self.embed_dim, "num_attention_heads": self.num_heads}
        self.core: Any = LongformerSelfAttention(LongformerConfig(**sizes, attention_window=[window_size]), layer_id=0)
        self.core.query_global = self.core.key_global = self.core.value_global = None
        del self.core.query, self.core.key, self.core.value  # whose places our linear layers take
        self.window_size = window_size

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        n = len(x)
        window = min(self.window_size, max(2 * (n - 1), LEAST_WINDOW))  # more would be padding
        more = -n % window
        padded = F.pad(x.new_zeros(x.size(1), n).bool() if mask is None else mask, (0, more), value=True)
        core = copy(self.core)  # of this call, as another thread may have a text of another length
        core.one_sided_attn_window_size = window // 2
        # callables and no modules, whose weights would be in checkpoints twice
        linears = (self.q_proj, self.k_proj, self.v_proj)
        core.query, core.key, core.value = (partial(_at_most_float32, linear) for linear in linears)
        core.dropout = self.dropout_probability
        core.training = core.dropout > 0
        out = core(
            F.pad(x, (0, 0, 0, 0, 0, more)).transpose(0, 1),
            attention_mask=padded.to(x.dtype),  # of which the package only asks what is not zero
            is_index_masked=padded,
            is_index_global_attn=torch.zeros_like(padded),
            is_global_attn=False,
        )[0][:, :n]
        return (out.double() if x.dtype == torch.float64 else out).transpose(0, 1)


def _at_most_float32(linear: nn.Module, x: Tensor) -> Tensor:
    """What a linear layer gives, where float64 would be -∞ at padding in the package's softmax, which is in float32."""
    out: Tensor = linear(x)
    return out.float() if out.dtype == torch.float64 else out
