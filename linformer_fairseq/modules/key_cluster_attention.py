"""Attention to the means of clusters of similar keys."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linformer_fairseq.modules.base import is_plain
from linformer_fairseq.modules.ops.key_clusters import Clusters, largest_power_of_two, spread
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
    tokens: Tensor  # tokens of the clusters, one cluster after the other, (B, H, n)


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
        n, batch, _ = source.key.shape
        inputs = self._averages_inputs(n)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not inputs):  # there is none through the choice
            keys = self.k_proj(source.key).unflatten(2, (self.num_heads, self.head_dim))
        found = Clusters.of(keys, None if source.lengths is None else source.lengths.clamp(min=1), self.clusters)
        if inputs:
            key = found.means(source.key.flatten(0, 1))
            value = key if source.value is source.key else found.means(source.value.flatten(0, 1))
            key, value = self._projected(key, self.k_proj), self._projected(value, self.v_proj)
        else:
            key, value = found.means(keys.flatten(0, 2)), found.means(self.v_proj(source.value).view(-1, self.head_dim))
        tokens = (found.order // (batch * self.num_heads)).transpose(0, 1)
        return ClusterMeans(key.transpose(0, 1), value.transpose(0, 1), found.biases(keys.dtype), found.sizes, tokens)

    def attend_to(
        self, query: Tensor, memory: ClusterMeans, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        queries = self.split_heads(self.q_proj(query))
        out, probabilities = self.softmax_attention(queries, memory.keys, memory.values, memory.biases, need_weights)
        return out, None if probabilities is None else spread(probabilities, memory.tokens, memory.sizes)

    def _averages_inputs(self, tokens: int) -> bool:
        """Whether inputs are averaged and their means projected, and not the reverse, which gives as much: it is faster
        where a cluster has several tokens, and takes a mean of all features for each head."""
        plain = is_plain(self.k_proj) and is_plain(self.v_proj)
        return plain and self.clusters * self.num_heads <= 2 * tokens

    def _projected(self, means: Tensor, linear: nn.Linear) -> Tensor:
        """Applies a layer to inputs of each head, (H, B, s, C): what that head gets of it, (H, B, s, d)."""
        weight = linear.weight.unflatten(0, (self.num_heads, self.head_dim)).transpose(1, 2)
        x, bias = means.flatten(1, 2), linear.bias
        out = x @ weight if bias is None else torch.baddbmm(bias.view(self.num_heads, 1, -1), x, weight)
        return out.unflatten(1, means.shape[1:3])
