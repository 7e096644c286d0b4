"""Fits E and F to the attention maps of the Transformer that they come from, by least squares.

In one attention module, S = Q Kᵀ / √d are the scores and P is the map, their softmax:

    E   S Eᵀ should be close to log Σ exp S over the tokens of each slot: the slot then has the share of the softmax
        that its tokens have together
    F   P̄ F should be close to P, where P̄ is the map over slots with that E

Both problems are linear, that of F column by column. The first k columns keep their start, so that attention that is
exact for n <= k stays exact; the others are solved for from sums over sentences, which need not be kept. Causal
attention is fitted in the same way to the tokens that each query sees; those in its window do not enter the slots.

Shapes: T queries, n tokens, H heads, k slots, N the longest length.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.data import FairseqDataset
from fairseq.models import BaseFairseqModel
from fairseq.modules import MultiheadAttention
from torch import Tensor

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import bar
from linformer_fairseq.modules import BaseAttention, LinearProjection

RIDGE = 1e-3
"""The weight per sentence of staying close to the start."""
LEAST = 1e-4
"""The smallest share of the softmax that a slot is taken to have, as the logarithm of 0 is infinite."""


@torch.no_grad()
def fit(
    trained: BaseFairseqModel, converted: BaseFairseqModel, sentences: FairseqDataset, chosen: Sequence[int]
) -> None:
    """Fits the learned projections of a converted model, which no layers share, to attention maps of the trained."""
    longest = max(sentences.num_tokens(index) for index in chosen) + 1  # fairseq leaves `--add-bos-token` out
    named = converted.named_modules()
    modules = {name: x for name, x in named if isinstance(getattr(x, "key_projection", None), LinearProjection)}
    if not modules:
        raise UserError("There is no E or F to fit: --fit needs linear attention in some place.")
    names = dict(trained.named_modules())
    for of_keys in (True, False):
        sums = {name: _Sums(attention, of_keys, longest) for name, attention in modules.items()}
        with ExitStack() as hooks, bar(len(chosen), f"fitting {'E' if of_keys else 'F'}", "sentence") as progress:
            for name, found in sums.items():
                hook = partial(_add_scores, found)
                hooks.enter_context(names[name].register_forward_pre_hook(hook, with_kwargs=True))
            for index in chosen:
                trained(**sentences.collater([sentences[index]])["net_input"])
                progress.update()
        for found in sums.values():
            found.solve()


def _add_scores(sums: "_Sums", attention: MultiheadAttention, args: Any, kwargs: dict[str, Any]) -> None:
    """Adds the scores S of a single sentence, in float64; the bias of the keys is left out, as it drops out of the
    softmax and is added to projected keys after E."""
    q = attention.q_proj(kwargs["query"])[:, 0].unflatten(1, (attention.num_heads, -1)).double()
    k = F.linear(kwargs["key"], attention.k_proj.weight)[:, 0].unflatten(1, (attention.num_heads, -1)).double()
    sums.add(torch.einsum("thd,nhd->htn", q, k) * attention.scaling)


class _Sums:
    """The sums that give the columns of E, or of F, in one attention module: those after the k-th, up to the length
    of the longest sentence."""

    def __init__(self, attention: BaseAttention, of_keys: bool, longest: int) -> None:
        self.attention, self.of_keys, self.sentences = attention, of_keys, 0
        self.weight: Tensor = (attention.key_projection if of_keys else attention.value_projection).weight
        self.k, most = self.weight.shape
        free = max(0, min(most, longest) - self.k)
        # one system for all free columns of E, and one of k unknowns for each column of F
        self.products = torch.zeros((free, free) if of_keys else (free, self.k, self.k), dtype=torch.float64)
        self.targets = torch.zeros(free, self.k, dtype=torch.float64)

    def add(self, scores: Tensor) -> None:
        """Adds the scores S of a sentence, (H, T, n), unless no query has more than k tokens in its slots."""
        seen = in_slots = torch.ones(scores.shape[1:], dtype=torch.bool)
        if self.attention.causal:
            seen, in_slots = seen.tril(), seen.tril(-self.attention.window)
        if in_slots.sum(-1).max() > self.k:
            self.sentences += 1
            (self._add_keys if self.of_keys else self._add_values)(scores, seen, in_slots)

    def _add_keys(self, scores: Tensor, seen: Tensor, in_slots: Tensor) -> None:
        k, n = self.k, scores.size(2)
        members = F.one_hot(torch.arange(n) % k, k).t().bool()  # token j stands for slot j mod k
        least = scores.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True) + math.log(LEAST)
        of_members = scores[:, :, None].masked_fill(~(in_slots[:, None] & members), -torch.inf)  # (H, T, k, n)
        together = of_members.logsumexp(-1).clamp(min=least)
        missing = together - self._of_slots(scores, in_slots)
        if torch.equal(seen, in_slots):  # what all slots have in common drops out of the softmax
            missing = missing - missing.mean(-1, keepdim=True)
        free, features = n - k, scores.where(in_slots, 0.0)[..., k:]
        self.products[:free, :free] += (features.mT @ features).sum(0)
        self.targets[:free] += (features.mT @ missing).sum(0)

    def _add_values(self, scores: Tensor, seen: Tensor, in_slots: Tensor) -> None:
        k, n = self.k, scores.size(2)
        of_window = scores.masked_fill(~(seen & ~in_slots), -torch.inf)
        shares = torch.cat([self._of_slots(scores, in_slots), of_window], -1).softmax(-1)[..., :k]  # (H, T, k)
        maps = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        rows = in_slots[:, k:].double()  # more than k tokens are in slots there, so that none is empty
        missing = (maps - shares @ self.weight[:, :n].double())[..., k:] * rows
        squares = torch.einsum("hti,htj->tij", shares, shares)
        self.products[: n - k] += torch.einsum("tij,tc->cij", squares, rows)
        self.targets[: n - k] += torch.einsum("hti,htc->ci", shares, missing)

    def _of_slots(self, scores: Tensor, in_slots: Tensor) -> Tensor:
        """Returns the scores of slots, S Eᵀ of those tokens that are in slots, (H, T, k)."""
        weight: Tensor = self.attention.key_projection.weight
        return scores.where(in_slots, 0.0) @ weight[:, : scores.size(2)].double().t()

    def solve(self) -> None:
        """Solves the systems, and adds the solutions to the columns after the k-th."""
        ridge = RIDGE * max(1, self.sentences)
        products = self.products + ridge * torch.eye(self.products.size(-1), dtype=torch.float64)
        targets = self.targets if self.of_keys else self.targets[..., None]
        found = torch.linalg.solve(products, targets).reshape(-1, self.k)
        self.weight[:, self.k : self.k + len(found)] += found.t().to(self.weight.dtype)
