"""Attention to the means of clusters of similar keys."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from linformer_fairseq.modules.ops.key_clusters import Clusters, largest_power_of_two
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, check_dims, register_attention
from linformer_fairseq.modules.source_attention import Source, SourceAttention


class ClusterOptions(AttentionOptions):
    """The options of attention to key clusters: none but k."""

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        return [{"projected_dim": k} for k in layers.projected_dims]


class ClusterMeans(NamedTuple):
    """The mean key and value of each cluster of B sentences, and which tokens it has."""

    keys: Tensor  # (B, H, s, d)
    values: Tensor  # (B, H, s, d)
    biases: Tensor | None  # added to scores, (B, 1, 1, s); None where they are 0
    order: Tensor  # as in `Clusters`, (B, H, s w)
    sizes: Tensor | None  # as in `Clusters`, (B, s)
    tokens: int  # n


@register_attention("key-clusters", ClusterOptions, "means of clusters of similar keys, of which each head has its own")
class KeyClusterAttention(SourceAttention[ClusterMeans]):
    r"""Attention to the means of clusters of similar keys, a drop-in for fairseq's `MultiheadAttention` without
    parameters of its own.

    For each head by itself, the n keys of a sentence are split into s clusters of nearly equal size, s being the
    largest power of two that is not above k (`linformer_fairseq.modules.ops.key_clusters`). With the mean key and value
    of each cluster, and its size m:

        out = softmax(Q K̄ᵀ / √d + log m) V̄

    It costs O(T k) for T queries, and O(n log k) for the clusters. A mean of keys that are alike stands for them well,
    wherever in the text their tokens are. Sentences of up to s tokens get full attention. In a search the means of a
    sentence are made once, and kept.

    Args:
        args, options: as `BaseAttention` and fairseq take them.
        projected_dim: k, the largest number of clusters.

    Raises:
        ValueError: for what no kind supports, and k < 1.
    """

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, projected_dim: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, **options)
        check_dims(projected_dim)
        self.projected_dim = projected_dim
        self.clusters = largest_power_of_two(projected_dim)

    def extra_repr(self) -> str:
        return f"k={self.projected_dim}, clusters={self.clusters}"

    def compress(self, source: Source) -> ClusterMeans:
        keys, values = self.split_heads(self.k_proj(source.key)), self.split_heads(self.v_proj(source.value))
        lengths = source.lengths
        if lengths is not None:
            lengths = lengths.clamp(min=1)
            beyond = (torch.arange(len(source.key), device=keys.device) >= lengths[:, None])[:, None, :, None]
            keys, values = keys.masked_fill(beyond, 0.0), values.masked_fill(beyond, 0.0)
        found = Clusters.of(keys, lengths, self.clusters)
        means = found.means(keys), found.means(values)
        return ClusterMeans(*means, found.biases(keys.dtype), found.order, found.sizes, keys.size(2))

    def attend_to(
        self, query: Tensor, memory: ClusterMeans, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        queries = self.split_heads(self.q_proj(query))
        out, probabilities = self.softmax_attention(queries, memory.keys, memory.values, memory.biases, need_weights)
        if probabilities is None:
            return out, None
        return out, Clusters(memory.order, memory.sizes, memory.keys.size(2)).spread(probabilities, memory.tokens)
