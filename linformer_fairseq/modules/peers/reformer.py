"""Reformer's attention, by the package reformer-pytorch."""

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.peers.base import PeerAttention, full_precision
from linformer_fairseq.modules.peers.packages import package
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention

BUCKET_SIZE = 64
HASHES = 8


def lsh_attention(dim: int, heads: int, bucket_size: int, hashes: int) -> Any:
    """The package's self-attention over (B, n, C), n a multiple of two buckets, or no more than one.

    Args:
        dim: C, the model width.
        bucket_size: b, the tokens that are attended to together.
        hashes: how often they are gathered anew.

    Raises:
        NotInstalledError: the package cannot be imported.
    """
    with package("reformer-pytorch"):
        from reformer_pytorch import LSHSelfAttention
    return LSHSelfAttention(dim, heads=heads, bucket_size=bucket_size, n_hashes=hashes)


@dataclass
class ReformerOptions(AttentionOptions):
    """How large the buckets are, and how often tokens are put into them."""

    uses_k = False

    linformer_bucket_size: int = field(
        default=BUCKET_SIZE,
        metadata={
            "help": "reformer: tokens of a bucket; a query attends to its own and the one before",
            "needs": "--linformer-projection reformer",
        },
    )
    linformer_hashes: int = field(
        default=HASHES,
        metadata={
            "help": "reformer: rounds of hashing, each of which gathers the tokens into buckets anew",
            "needs": "--linformer-projection reformer",
        },
    )

    def validate(self) -> None:
        super().validate()
        _check_sizes(self.linformer_bucket_size, self.linformer_hashes)

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        own = {
            "max_positions": layers.max_positions,
            "bucket_size": self.linformer_bucket_size,
            "hashes": self.linformer_hashes,
        }
        return [own] * len(layers.projected_dims)


@register_attention(
    "reformer",
    ReformerOptions,
    "in the encoder alone, of the package reformer-pytorch",
    defaults={"linformer_attention": "encoder"},
    encoder_only=True,
)
class ReformerAttention(PeerAttention):
    r"""Reformer's encoder self-attention by locality-sensitive hashing (Kitaev et al., 2020, section 2), as the package
    reformer-pytorch computes it.

    Queries are keys, too, but for their length: `q_proj` makes both. In each of r rounds tokens are sorted by the
    bucket that a random rotation R puts them into, and cut into chunks of b. A token attends to its chunk and the one
    before, and to itself only where there is no other; one softmax goes over the tokens of all rounds:

        k = q / |q|        bucket = argmax [q R; -q R]        out = softmax(q Kᵀ / √d) V

    `k_proj` takes no part, and its gradient is zero. It is there as torch's DDP, and checkpoints of Transformers, want
    the four layers; a Transformer whose weights are loaded has to learn the new keys. There are no other parameters. It
    is computed in float32 or better, as half precision ends at 65,504, which scores may exceed.

    R is drawn from torch's generator at every call, in evaluation too, for all sentences of a batch together. In a
    sentence of up to b tokens there is no hashing, and all tokens attend to all others. What stands in padding never
    matters, as the package gets its mask. How much of it a longer sentence has does: it takes places in buckets, whose
    number follows from the longest sentence of the batch, which is padded to whole pairs of buckets. Batch sentences
    of like lengths.

    Args:
        args, options: as `PeerAttention` takes them.
        bucket_size: b.
        hashes: r.

    Raises:
        NotInstalledError: the package cannot be imported.
        ValueError: as `PeerAttention`, and for fewer than one token in a bucket or one round.
    """

    name = "reformer"
    drops_probabilities = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        bucket_size: int = BUCKET_SIZE,
        hashes: int = HASHES,
        **options: Any,
    ) -> None:
        _check_sizes(bucket_size, hashes)
        super().__init__(embed_dim, num_heads, *args, **options)
        self.bucket_size = bucket_size
        self.hashes = hashes
        self.core = lsh_attention(embed_dim, num_heads, bucket_size, hashes)
        # our linear layers take their places: what the package gets is their outputs, next to each other
        del self.core.toqk, self.core.tov
        self.core.toqk, self.core.tov = (itemgetter((..., part)) for part in (slice(embed_dim), slice(embed_dim, None)))
        self.core.to_out = nn.Identity()

    def extra_repr(self) -> str:
        return f"N={self.max_positions}, bucket_size={self.bucket_size}, hashes={self.hashes}"

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


def _check_sizes(bucket_size: int, hashes: int) -> None:
    for flag, size in (("--linformer-bucket-size", bucket_size), ("--linformer-hashes", hashes)):
        if size < 1:
            raise ValueError(f"{flag} must be at least 1, not {size}")
