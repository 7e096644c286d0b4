"""E and F fitted to the attention maps of the Transformer that they come from, by least squares.

Of one attention, with Q and K as it has them, S = Q Kᵀ / √d its scores and P = softmax(S) its map:

    E   S Eᵀ is to be near the logarithm of what P gives to the tokens of each slot together, as softmax(S Eᵀ) is what
        the slots get
    F   softmax(S Eᵀ) F is to be near P

Both are linear in what is sought, column by column for F. The first k columns stay as they start, so that what is exact
for n <= k stays so; the others are found from sums over sentences, of which none has to be kept.

Shapes: T queries, n tokens, H heads, k slots, N the longest length, G = 1 where the heads share E and F, else H.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import BaseFairseqModel
from fairseq.modules import MultiheadAttention
from torch import Tensor
from torch.utils.data import Dataset

from linformer_fairseq.cli.progress import bar
from linformer_fairseq.modules import LinearProjection, LinformerMultiheadAttention, PooledLinear

RIDGE = 1e-3
"""Weight, per sentence, of staying at the start."""
LEAST = 1e-4
"""The least that a slot is taken to get, as the logarithm of nothing is infinite."""


def learned(model: BaseFairseqModel) -> dict[str, LinformerMultiheadAttention]:
    """The attentions with an E and an F that can be fitted, by their names."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, LinformerMultiheadAttention)
        and isinstance(module.key_projection, LinearProjection | PooledLinear)
    }


@torch.no_grad()
def fit(transformer: BaseFairseqModel, linformer: BaseFairseqModel, sentences: Dataset, chosen: Sequence[int]) -> None:
    """Fits all learned projections of `linformer`, which are each a layer's own, to the maps of `transformer`."""
    attentions = learned(linformer)
    names = dict(transformer.named_modules())
    for of_keys in (True, False):
        sums = {name: _Sums(attention, of_keys) for name, attention in attentions.items()}
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
    """What the columns from k on of one attention's E, or of its F, are found from."""

    def __init__(self, attention: LinformerMultiheadAttention, of_keys: bool) -> None:
        self.attention = attention
        self.of_keys = of_keys
        projection = attention.key_projection if of_keys else attention.value_projection
        self.projection = projection
        k, free, groups = (
            projection.projected_dim,
            projection.max_positions - projection.projected_dim,
            projection.groups,
        )
        self.sentences = 0
        if of_keys:
            self.products = torch.zeros(groups, free, free, dtype=torch.float64)
            self.targets = torch.zeros(groups, free, k, dtype=torch.float64)
        else:
            self.products = torch.zeros(groups, free, k, k, dtype=torch.float64)
            self.targets = torch.zeros(groups, free, k, dtype=torch.float64)

    def add(self, scores: Tensor) -> None:
        """Takes in S of a sentence, (H, T, n); up to k tokens there is nothing to find."""
        k, n = self.projection.projected_dim, scores.size(2)
        if n <= k:
            return
        self.sentences += 1
        causal = self.attention.causal
        maps = scores.masked_fill(~_visible(scores), -torch.inf).softmax(-1) if causal else scores.softmax(-1)
        scores = scores.tril() if causal else scores
        (self._add_keys if self.of_keys else self._add_values)(scores, maps, n - k)

    def _add_keys(self, scores: Tensor, maps: Tensor, free: int) -> None:
        k, n = self.projection.projected_dim, scores.size(2)
        slots = _slots(self.projection, n)
        got = (maps @ F.one_hot(slots, k).double()).clamp(min=LEAST).log()
        missing = got - got.mean(-1, keepdim=True) - scores @ _matrix(self.projection, n).transpose(1, 2)
        missing = missing - missing.mean(-1, keepdim=True)
        features = scores[..., k:]
        if self.attention.causal:  # earlier queries meet fewer slots, and none of these columns
            features, missing = features[:, k:], missing[:, k:]
        self.products[:, :free, :free] += self._of_groups(features.transpose(1, 2) @ features)
        self.targets[:, :free] += self._of_groups(features.transpose(1, 2) @ missing)

    def _add_values(self, scores: Tensor, maps: Tensor, free: int) -> None:
        k, n = self.projection.projected_dim, scores.size(2)
        causal = self.attention.causal
        of_slots = scores @ _matrix(self.attention.key_projection, n).transpose(1, 2)
        if causal and self.projection.masks_empty_slots:
            of_slots = of_slots.masked_fill(~_visible(of_slots), -torch.inf)
        shares = of_slots.softmax(-1)  # (H, T, k)
        reached = shares @ _matrix(self.projection, n)
        missing = maps - (reached.tril() if causal else reached)
        for column in range(free):
            seen = slice(k + column, None) if causal else slice(None)
            rows, wanted = shares[:, seen], missing[:, seen, k + column, None]
            self.products[:, column] += self._of_groups(rows.transpose(1, 2) @ rows)
            self.targets[:, column] += self._of_groups(rows.transpose(1, 2) @ wanted)[..., 0]

    def _of_groups(self, x: Tensor) -> Tensor:
        """(H, ...) to (G, ...)."""
        return x if self.projection.groups > 1 else x.sum(0, keepdim=True)

    def solve(self) -> None:
        """Adds what was found to the columns from k on."""
        weight, k = self.projection.weight, self.projection.projected_dim
        ridge = RIDGE * max(1, self.sentences)
        products = self.products + ridge * torch.eye(self.products.size(-1), dtype=torch.float64)
        if self.of_keys:
            found = torch.linalg.solve(products, self.targets)  # (G, N - k, k)
        else:
            found = torch.linalg.solve(products, self.targets[..., None])[..., 0]
        columns = weight[..., k:] if weight.dim() == 3 else weight[None, :, k:]
        columns += found.transpose(1, 2).to(weight.dtype)


def _visible(scores: Tensor) -> Tensor:
    """What a query may see of tokens, or of slots that fill up token by token: (T, n), true up to its own place."""
    return torch.ones(scores.shape[1:], dtype=torch.bool).tril()


def _slots(projection: LinearProjection | PooledLinear, n: int) -> Tensor:
    """The slot that each token counts to, (n,)."""
    if isinstance(projection, PooledLinear):
        return projection.windows(n, torch.tensor([n]))[0]
    return torch.arange(n) % projection.projected_dim


def _matrix(projection: LinearProjection | PooledLinear, n: int) -> Tensor:
    """E or F of a sentence of n tokens, (G, k, n), in float64."""
    return projection.matrix(n, torch.tensor([n]), torch.float64)[0]
