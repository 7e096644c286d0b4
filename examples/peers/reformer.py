"""Reformer's attention, by the package reformer-pytorch."""

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.registry import register_attention
from peers.base import PeerAttention, PeerOptions, full_precision, package


@dataclass
class ReformerOptions(PeerOptions):
    """How large the buckets are, and how often tokens are put into them."""

    linformer_bucket_size: int = field(
        default=64,
        metadata={
            "help": "reformer: tokens of a bucket; a query attends to its own and the one before",
        },
    )
    linformer_hashes: int = field(
        default=8,
        metadata={
            "help": "reformer: rounds of hashing, each of which gathers the tokens into buckets anew",
        },
    )


@register_attention(
    "reformer",
    ReformerOptions,
    "in the encoder alone, of the package reformer-pytorch",
    defaults={"linformer_attention": "encoder"},
    self_attention_only=True,
)
class ReformerAttention(PeerAttention):
    r"""Reformer's encoder self-attention by locality-sensitive hashing (Kitaev et al., 2020, section 2).

    Queries are keys, too, but for their length: `q_proj` makes both. In each round of hashing tokens are sorted by the
    bucket that a random rotation R puts them into, and cut into chunks of the size of a bucket. A token attends to its
    chunk and the one before, and to itself only where there is no other; one softmax goes over the tokens of all
    rounds:

        k = q / |q|        bucket = argmax [q R; -q R]        out = softmax(q Kᵀ / √d) V

    `k_proj` takes no part, and its gradient is zero. It is there as torch's DDP, and checkpoints of Transformers, want
    the four layers. It is computed in float32 or better, as half precision ends at 65,504, which scores may exceed.

    R is drawn from torch's generator at every call, in evaluation too, for all sentences of a batch together. In a
    sentence of up to a bucket of tokens there is no hashing, and all tokens attend to all others. What stands in
    padding never matters, but how much of it a longer sentence has does: it takes places in buckets. Batch sentences
    of like lengths.
    """

    name = "reformer"
    drops_probabilities = True

    def __init__(self, *args: Any, bucket_size: int, hashes: int, **options: Any) -> None:
        super().__init__(*args, **options)
        with package("reformer-pytorch"):
            from reformer_pytorch import LSHSelfAttention
        dim = self.embed_dim
        self.core = LSHSelfAttention(dim, heads=self.num_heads, bucket_size=bucket_size, n_hashes=hashes)
        # our linear layers take their places: what the package gets is their outputs, next to each other
        del self.core.toqk, self.core.tov
        self.core.toqk, self.core.tov = (itemgetter((..., part)) for part in (slice(dim), slice(dim, None)))
        self.core.to_out = nn.Identity()
        self.bucket_size = bucket_size
        self.hashes = hashes

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        projected = torch.cat([self.q_proj(x), self._values(x)], 2).transpose(0, 1)
        wide = projected.to(at_least_float32(projected.dtype))
        tokens = torch.ones(wide.shape[:2], dtype=torch.bool, device=x.device) if mask is None else ~mask
        core, dropped = self.core, self.dropout_probability
        core.eval()  # in training it would keep its buckets, for the package's reversible layers
        for dropout in (core.lsh_attn.dropout, core.full_attn.dropout):
            dropout.p = dropped
            dropout.train(dropped > 0)
        short = tokens.sum(1) <= self.bucket_size
        with full_precision(x):
            if len(x) <= self.bucket_size or not short.any():
                out = self._alike(wide, tokens)
            else:
                out = self._each_by_its_length(wide, tokens, short)
        return out.to(projected.dtype).transpose(0, 1)

    def _alike(self, projected: Tensor, tokens: Tensor) -> Tensor:
        """What the package makes of queries and values (B, n, 2C) in (B, n, C), all hashed or none."""
        n = projected.size(1)
        more = -n % (2 * self.bucket_size) if n > self.bucket_size else 0
        mask = F.pad(tokens, (0, more), value=False)
        out: Tensor = self.core(F.pad(projected, (0, 0, 0, more)), input_mask=None if mask.all() else mask)
        return out[:, :n]

    def _each_by_its_length(self, projected: Tensor, tokens: Tensor, short: Tensor) -> Tensor:
        """As `_alike`, but the sentences that are `short` (B) without hashing, through their tokens alone."""
        out = projected.new_zeros(*projected.shape[:2], self.embed_dim)
        if not short.all():
            out[~short] = self._alike(projected[~short], tokens[~short])
        first = tokens[short].byte().argsort(dim=1, descending=True, stable=True)[:, : self.bucket_size]
        own = (short.nonzero(), first)
        out[own] = self._alike(projected[own], tokens[own])
        return out

    def _values(self, x: Tensor) -> Tensor:
        """The values (n, B, C), through which the layer of the keys gets a gradient of zero."""
        values = self.v_proj(x)
        if torch.is_grad_enabled():
            values = values + sum((0.0 * weight).sum() for weight in self.k_proj.parameters())
        return values
