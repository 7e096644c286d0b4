"""Attention to the means of clusters of similar keys."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.key_clusters import Clusters, largest_power_of_two
from linformer_fairseq.modules.ops.precision import at_least_float32, scores, softmax
from linformer_fairseq.modules.projections import check_dims
from linformer_fairseq.modules.registry import AttentionOptions, register_attention
from linformer_fairseq.modules.source_attention import Source, SourceAttention


class Means(NamedTuple):
    """The mean key and value of each cluster of B sentences, and which tokens it has."""

    keys: Tensor
    """(B, H, s, d)."""
    values: Tensor
    """(B, H, s, d)."""
    biases: Tensor | None = None
    """Added to scores, (B, 1, 1, s); None where they are the same for all."""
    clusters: Tensor | None = None
    """The cluster of each token, (B, H, n); None where no weights will be asked for."""
    fractions: Tensor | None = None
    """The fraction of its cluster that each token is, (B, H, n or more), 0 at padded positions; None likewise."""
    convolved: Tensor | None = None
    """What a convolution adds to the output of each head, (B, T, H, d)."""


@register_attention(
    "key-clusters", AttentionOptions, "means of clusters of similar keys, of which each head has its own"
)
class KeyClusterAttention(SourceAttention[Means]):
    r"""Attention to the means of clusters of similar keys, a drop-in for fairseq's `MultiheadAttention` without
    parameters of its own.

    The n keys of a sentence are split into s clusters of nearly equal size, s being the largest power of two that is
    not above k: they are halved along the feature in which they vary most, each half along its own, and so on, for each
    head by itself. With the mean key and value of each cluster, and its size m:

        out = softmax(Q K̄ᵀ / √d + log m) V̄

    It costs O(T k) for T queries, and O(n log k) for the clusters. A mean of keys that are alike stands for them well,
    wherever in the text their tokens are. Sentences of up to s tokens get full attention. In a search the means of a
    sentence are made once, and kept.

    Args:
        args, options: as `ProjectedAttention` and fairseq take them.
        projected_dim: k, the largest number of clusters.
        max_positions: N, the longest sentence in tokens.

    Raises:
        ValueError: for what no kind supports, and k < 1 or k > N.
    """

    memory_type = Means
    convolves = True

    def __init__(
        self, embed_dim: int, num_heads: int, *args: Any, projected_dim: int, max_positions: int, **options: Any
    ) -> None:
        check_dims(projected_dim)
        super().__init__(embed_dim, num_heads, *args, max_positions=max_positions, **options)
        self.projected_dim = projected_dim
        self.clusters = largest_power_of_two(projected_dim)

    def extra_repr(self) -> str:
        return f"k={self.projected_dim}, clusters={self.clusters}, N={self.max_positions}"

    def compress(self, source: Source) -> Means:
        return self._means(source, weights=True)

    def attend_without_memory(self, query: Tensor, source: Source) -> Tensor:
        return self.attend_to(query, self._means(source, weights=False), need_weights=False, by_head=False)[0]

    def _means(self, source: Source, weights: bool) -> Means:
        """The means of a source; `weights` says whether those over tokens will be asked for."""
        n, mask = len(source.key), source.padding_mask
        heads = self.heads(source, n if mask is None else mask.size(1))
        keys, values = heads.keys.permute(1, 2, 0, 3), heads.values.permute(1, 2, 0, 3)
        lengths = None
        if mask is not None:
            lengths = source.lengths.clamp(min=1)
            beyond = (torch.arange(n, device=keys.device) >= lengths[:, None])[:, None, :, None]
            keys, values = keys.masked_fill(beyond, 0.0), values.masked_fill(beyond, 0.0)
        found = Clusters(keys.detach(), lengths, self.clusters)
        means = found.means(keys), found.means(values), found.biases(keys.dtype)
        convolved = None if heads.convolved is None else heads.convolved.transpose(0, 1)
        if not weights:
            return Means(*means, convolved=convolved)
        assert mask is not None
        clusters, fractions = found.of_tokens(at_least_float32(keys.dtype))
        fractions = F.pad(fractions, (0, mask.size(1) - n)).masked_fill(mask[:, None], 0.0)
        return Means(*means, clusters, fractions, convolved)

    def attend_to(
        self, query: Tensor, memory: Means, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        keys, values, biases, clusters, fractions, convolved = memory
        convolved = None if convolved is None else convolved.transpose(0, 1)
        queries = self.queries(query)
        if not need_weights:
            dropout = self.dropout_probability
            out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=biases, dropout_p=dropout)
            return self.output(out, convolved), None
        found = scores(queries, keys)
        probabilities = softmax(found if biases is None else found + biases)
        out = self.dropout_module(probabilities.type_as(values)) @ values
        assert clusters is not None
        assert fractions is not None
        of_tokens = probabilities.gather(3, clusters[:, :, None].expand(-1, -1, len(query), -1))
        of_tokens = F.pad(of_tokens, (0, fractions.size(2) - clusters.size(2))) * fractions[:, :, None]
        return self.output(out, convolved), of_tokens.transpose(0, 1) if by_head else of_tokens.mean(1)
