"""Attention to the means of clusters of similar keys."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.base import is_plain
from linformer_fairseq.modules.ops.key_clusters import Clusters, largest_power_of_two, spread
from linformer_fairseq.modules.ops.softmax_attention import softmax_attention
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
    sizes: Tensor | None  # tokens of each cluster, (B, s); None where all have as many
    order: Tensor  # tokens of the clusters, one cluster after the other, (B, H, n), times `step`, and a rest
    step: int


@register_attention("key-clusters", ClusterOptions, "means of clusters of similar keys, of which each head has its own")
class KeyClusterAttention(SourceAttention[ClusterMeans]):
    r"""Attention to the means of clusters of similar keys, a drop-in for fairseq's `MultiheadAttention` without
    parameters of its own.

    For each head by itself, the n keys of a sentence are split into s clusters of nearly equal size, s being the
    largest power of two that is not above k (`linformer_fairseq.modules.ops.key_clusters`). With the mean key and value
    of each cluster, and its size m:

        out = softmax(Q K̄ᵀ / √d + log m) V̄

    It costs O(T k) for T queries, and O(n) and three sorts for the clusters. A mean of keys that are alike stands for
    them well, wherever in the text their tokens are. Sentences of up to s tokens get full attention. In a search the
    means of a sentence are made once, and kept.

    As a mean of projections is the projection of a mean, no values of single tokens are made of longer texts, and keys
    without a gradient.

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
        key, value = source.key, source.value
        plain = is_plain(self.k_proj) and is_plain(self.v_proj)
        averaged_first = plain and self.clusters * self.num_heads <= 2 * len(key)  # or means by head take much memory
        if averaged_first:
            with torch.no_grad():
                own = F.linear(key, self.k_proj.weight)  # the bias moves all keys alike
        else:
            key, value = (x.unflatten(2, (self.num_heads, -1)) for x in (self.k_proj(key), self.v_proj(value)))
            own = key
        found = Clusters.of(own.view(*own.shape[:2], self.num_heads, -1), source.lengths, self.clusters)
        keys = found.means(key)
        values = keys if value is key else found.means(value)
        if averaged_first:
            keys, values = self._projected(keys, self.k_proj), self._projected(values, self.v_proj)
        keys, values, order = (x.transpose(0, 1) for x in (keys, values, found.order.view(*keys.shape[:2], -1)))
        return ClusterMeans(keys, values, found.biases(keys.dtype), found.sizes, order, order.size(0) * self.num_heads)

    def attend_to(
        self, query: Tensor, memory: ClusterMeans, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        queries, dropout = self.split_heads(self.q_proj(query)), self.dropout_probability
        keys, values, biases = memory.keys, memory.values, memory.biases
        out, probabilities = softmax_attention(queries, keys, values, biases, dropout, need_weights)
        if probabilities is None:
            return out, None
        return out, spread(probabilities, memory.order // memory.step, memory.sizes)

    def _projected(self, means: Tensor, linear: nn.Linear) -> Tensor:
        """Applies to mean inputs of each head, (H, B, s, C), its own part of a layer: (H, B, s, d)."""
        weight, bias = linear.weight.unflatten(0, (self.num_heads, -1)).transpose(1, 2), linear.bias
        x = means.flatten(1, 2)
        out = x @ weight if bias is None else torch.baddbmm(bias.view(self.num_heads, 1, -1), x, weight)
        return out.unflatten(1, means.shape[1:3])
