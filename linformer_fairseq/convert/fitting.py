"""E and F fitted to the attention maps of the Transformer that they come from, by least squares.

Of one attention, with Q and K as it has them, S = Q Kᵀ / √d are the scores and P the map, their softmax:

    E   S Eᵀ is to be near what the tokens of each slot have together, log Σ exp S over them, as the slots' share of the
        softmax is theirs then
    F   P̄ F is to be near P, where P̄ is what the slots get with that E

Both are linear in what is sought, F column by column. The first k columns stay as they start, so that what is exact for
n <= k stays so; the others are found from sums over sentences, of which none has to be kept. Causal attention is fitted
alike, with the tokens that each query sees; those in its window are not the slots' affair.

Shapes: T queries, n tokens, H heads, k slots, N the longest length, G = 1 where the heads share E and F, else H.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.data import FairseqDataset
from fairseq.models import BaseFairseqModel
from fairseq.modules import MultiheadAttention
from torch import Tensor

from linformer_fairseq.cli.progress import bar
from linformer_fairseq.modules import LinearProjection, LinformerMultiheadAttention, PooledLinear

RIDGE = 1e-3
"""Weight, per sentence, of staying at the start."""
LEAST = 1e-4
"""The least share that a slot is taken to have, as the logarithm of nothing is infinite."""


def learned(model: BaseFairseqModel) -> dict[str, LinformerMultiheadAttention]:
    """The attentions with an E and an F that can be fitted, by their names."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, LinformerMultiheadAttention)
        and isinstance(module.key_projection, LinearProjection | PooledLinear)
    }


@torch.no_grad()
def fit(
    transformer: BaseFairseqModel, linformer: BaseFairseqModel, sentences: FairseqDataset, chosen: Sequence[int]
) -> None:
    """Fits all learned projections of `linformer`, which are each a layer's own, to the maps of `transformer`."""
    longest = max(sentences.num_tokens(index) for index in chosen)
    attentions = learned(linformer)
    names = dict(transformer.named_modules())
    for of_keys in (True, False):
        sums = {name: _Sums(attention, of_keys, longest) for name, attention in attentions.items()}
        inputs: dict[str, tuple[Tensor, Tensor]] = {}
        handles = [
            names[name].register_forward_pre_hook(_keeper(name, inputs), with_kwargs=True) for name in attentions
        ]
        try:
            with bar(len(chosen), "fitting E" if of_keys else "fitting F", "sentence") as progress:
                for index in chosen:
                    transformer(**sentences.collater([sentences[index]])["net_input"])
                    for name, (query, key) in inputs.items():
                        sums[name].add(_scores(names[name], query, key))
                    progress.update()
        finally:
            for handle in handles:
                handle.remove()
        for found in sums.values():
            found.solve()


def _keeper(name: str, inputs: dict[str, tuple[Tensor, Tensor]]) -> Any:
    def keep(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        inputs[name] = kwargs["query"], kwargs["key"]

    return keep


def _scores(attention: MultiheadAttention, query: Tensor, key: Tensor) -> Tensor:
    """S of a single sentence, (H, T, n), in float64. The bias of the keys, which drops out of the softmax, is left out,
    as the projected keys have it after E."""
    heads = (attention.num_heads, -1)
    q = attention.q_proj(query)[:, 0].unflatten(1, heads).transpose(0, 1)
    k = F.linear(key, attention.k_proj.weight)[:, 0].unflatten(1, heads).transpose(0, 1)
    return (q.double() @ k.double().transpose(1, 2)) * attention.scaling


class _Sums:
    """What the columns from k on of one attention's E, or of its F, are found from.

    Args:
        longest: the length of the longest sentence; nothing is known of columns beyond, and they stay as they are.
    """

    def __init__(self, attention: LinformerMultiheadAttention, of_keys: bool, longest: int) -> None:
        self.attention = attention
        self.of_keys = of_keys
        self.projection = attention.key_projection if of_keys else attention.value_projection
        k, groups = self.projection.projected_dim, self.projection.groups
        free = max(0, min(self.projection.max_positions, longest) - k)
        self.sentences = 0
        # of all free columns together, or of the k shares of the slots for each of them
        product = (groups, free, free) if of_keys else (groups, free, k, k)
        self.products = torch.zeros(product, dtype=torch.float64)
        self.targets = torch.zeros(groups, free, k, dtype=torch.float64)

    def add(self, scores: Tensor) -> None:
        """Takes in S of a sentence, (H, T, n); up to k tokens in slots there is nothing to find."""
        k, n = self.projection.projected_dim, scores.size(2)
        if n - self.attention.window <= k:
            return
        self.sentences += 1
        seen = torch.ones(scores.shape[1:], dtype=torch.bool)
        if self.attention.causal:
            seen = seen.tril()
        old = seen.tril(-self.attention.window) if self.attention.causal else seen
        (self._add_keys if self.of_keys else self._add_values)(scores, seen, old)

    def _add_keys(self, scores: Tensor, seen: Tensor, old: Tensor) -> None:
        k, n = self.projection.projected_dim, scores.size(2)
        members = F.one_hot(_slots(self.projection, n), k).t().bool()  # (k, n)
        least = scores.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True) + math.log(LEAST)
        in_slots = scores[:, :, None].masked_fill(~(old[:, None] & members), -torch.inf)  # (H, T, k, n)
        missing = in_slots.logsumexp(-1).clamp(min=least) - scores.where(old, 0.0) @ _matrix(self.projection, n).mT
        if not self.attention.window:  # what all slots have in common drops out of the softmax
            missing = missing - missing.mean(-1, keepdim=True)
        features = scores.where(old, 0.0)[..., k:]
        if self.attention.causal:  # earlier queries meet fewer slots, and none of these columns
            first = k + self.attention.window
            features, missing = features[:, first:], missing[:, first:]
        free = n - k
        self.products[:, :free, :free] += self._of_groups(features.mT @ features)
        self.targets[:, :free] += self._of_groups(features.mT @ missing)

    def _add_values(self, scores: Tensor, seen: Tensor, old: Tensor) -> None:
        attention, n = self.attention, scores.size(2)
        k = self.projection.projected_dim
        of_slots = scores.where(old, 0.0) @ _matrix(attention.key_projection, n).mT
        if attention.causal:
            filled = torch.ones(of_slots.shape[1:], dtype=torch.bool).tril(-attention.window)
            empty = ~filled if self.projection.masks_empty_slots else ~old[:, :1]
            of_slots = of_slots.masked_fill(empty, -torch.inf)
        near = scores.masked_fill(~(seen & ~old), -torch.inf)
        shares = torch.cat([of_slots, near], -1).softmax(-1)[..., :k]  # (H, T, k)
        maps = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        missing = maps - shares @ _matrix(self.projection, n)
        for column in range(n - k):
            rows = old[:, k + column]
            own, wanted = shares[:, rows], missing[:, rows, k + column, None]
            self.products[:, column] += self._of_groups(own.mT @ own)
            self.targets[:, column] += self._of_groups(own.mT @ wanted)[..., 0]

    def _of_groups(self, x: Tensor) -> Tensor:
        """(H, ...) to (G, ...)."""
        return x if self.projection.groups > 1 else x.sum(0, keepdim=True)

    def solve(self) -> None:
        """Adds what was found to the columns from k on."""
        weight, k = self.projection.weight, self.projection.projected_dim
        ridge = RIDGE * max(1, self.sentences)
        products = self.products + ridge * torch.eye(self.products.size(-1), dtype=torch.float64)
        if self.of_keys:
            found = torch.linalg.solve(products, self.targets)  # (G, free, k)
        else:
            found = torch.linalg.solve(products, self.targets[..., None])[..., 0]
        columns = (weight if weight.dim() == 3 else weight[None])[..., k : k + self.targets.size(1)]
        columns += found.mT.to(weight.dtype)


def _slots(projection: LinearProjection | PooledLinear, n: int) -> Tensor:
    """The slot that each token counts to, (n,)."""
    if isinstance(projection, PooledLinear):
        return projection.windows(n, torch.tensor([n])).slots[0]
    return torch.arange(n) % projection.projected_dim


def _matrix(projection: LinearProjection | PooledLinear, n: int) -> Tensor:
    """E or F of a sentence of n tokens, (G, k, n), in float64."""
    return projection.matrix(n, torch.tensor([n]), torch.float64)[0]
