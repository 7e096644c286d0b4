"""Fitting finds projections that attention maps were made with, and keeps what is exact."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from linformer_fairseq.convert.fitting import LEAST, RIDGE, _Sums, fit, fittable_attention
from linformer_fairseq.modules import BaseAttention
from linformer_fairseq.modules.ops import naive
from tests.models.toy import previous_tokens, sentence, toy_model, toy_task
from tests.reference import make_attention

K, N = 3, 9
"""The number of slots, and the length of the longest sentence; E and F have one column more."""


class Sentences:
    """A data set of random pairs, with the interface of fairseq's."""

    def __init__(self, lengths: list[int]) -> None:
        self.task = toy_task()
        self.lengths = lengths

    def __getitem__(self, index: int) -> dict:
        source = sentence(self.task, self.lengths[index], index)[None]
        target = sentence(self.task, self.lengths[index], index + 100)[None]
        return {"net_input": {"src_tokens": source, "prev_output_tokens": previous_tokens(self.task, target)}}

    def num_tokens(self, index: int) -> int:
        return self.lengths[index]

    def collater(self, samples: list[dict]) -> dict:
        (sample,) = samples
        tokens = sample["net_input"]["src_tokens"]
        return {"net_input": {**sample["net_input"], "src_lengths": torch.tensor([tokens.size(1)])}}


def attention_with(kind: str, sharing: str, causal: bool, window: int = 0) -> BaseAttention:
    exact = {"init": "identity", "mask_empty_slots": True}
    return make_attention(kind, sharing, K, N + 1, random=False, causal=causal, window=window, **exact)


every_attention = pytest.mark.parametrize(
    ("kind", "sharing", "causal", "window"),
    [
        ("linear", "none", False, 0),
        ("pooled-linear", "headwise", False, 0),
        ("linear", "headwise", True, 0),
        ("linear", "none", True, 2),
    ],
)


@every_attention
def test_value_columns_are_the_best_there_are(kind: str, sharing: str, causal: bool, window: int) -> None:
    """No F close to the fitted one has a smaller sum of squared errors."""
    attention = attention_with(kind, sharing, causal, window)
    scores = [2 * torch.randn(2, n, n, dtype=torch.float64) for n in (4, 6, 9, 9, 8, 7)]
    sums = _Sums(attention, of_keys=False, longest=N)
    for sentence_scores in scores:
        sums.add(sentence_scores)
    before = attention.value_projection.weight.detach().clone()
    missed_before = sum(missed(attention, s) for s in scores)
    with torch.no_grad():
        sums.solve()
    found = attention.value_projection.weight.detach().clone()
    assert torch.equal(found[..., :K], before[..., :K])
    assert torch.equal(found[..., N:], before[..., N:])
    least = sum(missed(attention, s) for s in scores)
    assert least < missed_before
    for seed in range(5):
        torch.manual_seed(seed)
        change = 0.05 * torch.randn_like(found)
        change[..., :K] = 0
        with torch.no_grad():
            attention.value_projection.weight.copy_(found + change)
        assert sum(missed(attention, s) for s in scores) > least


def missed(attention: BaseAttention, scores: Tensor) -> float:
    """Returns the squared distance between the map through the slots and the map itself."""
    n, total = scores.size(2), 0.0
    keys = torch.eye(n, dtype=torch.float64)  # by which queries are scores
    for head in range(scores.size(0)):
        query = scores[head] * n**0.5
        matrices = [
            projection.matrix(n, torch.tensor([n]), torch.float64)[0].expand(2, -1, -1)[head]
            for projection in (attention.key_projection, attention.value_projection)
        ]
        if attention.causal:
            full = scores[head].masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1)
            _, through = naive.causal_linformer_attention(query, keys, keys, *matrices, attention.window, True)
        else:
            _, full = naive.full_attention(query, keys, keys)
            _, through = naive.linformer_attention(query, keys, keys, *matrices)
        total += (full - through).square().sum().item()
    return total


@every_attention
def test_key_columns_are_the_least_squares_solution(kind: str, sharing: str, causal: bool, window: int) -> None:
    """The expected columns come from a system of equations that is written down query by query."""
    torch.manual_seed(2)
    attention = attention_with(kind, sharing, causal, window)
    scores = [2 * torch.randn(2, n, n, dtype=torch.float64) for n in (3, 5, 6, 9, 9, 8, 7)]
    systems = {head: ([], []) for head in range(2)}
    for sentence_scores in scores:
        for head, i in product(range(2), range(sentence_scores.size(2))):
            for rows, row in zip(systems[head], equation(attention, sentence_scores[head, i], head, i), strict=True):
                rows.extend(row)
    sums = _Sums(attention, of_keys=True, longest=N + 2)
    before = attention.key_projection.weight.detach().clone()
    for sentence_scores in scores:
        sums.add(sentence_scores)
    with torch.no_grad():
        sums.solve()
    change = (attention.key_projection.weight.detach() - before).expand(2, K, N + 1)
    assert change[..., :K].count_nonzero() == change[..., N:].count_nonzero() == 0
    used = sum(s.size(2) - window > K for s in scores)
    ridge = (RIDGE * used) ** 0.5 * torch.eye(N - K, dtype=torch.float64)
    for head, own in systems.items():
        together = own if sharing == "none" else [systems[0][side] + systems[1][side] for side in range(2)]
        features, wanted = (torch.stack(rows) for rows in together)
        expected = torch.linalg.lstsq(torch.cat([features, ridge]), torch.cat([wanted, wanted.new_zeros(N - K, K)]))
        torch.testing.assert_close(change[head, :, K:N], expected.solution.mT)
        assert expected.solution.abs().max() > 0.05


def equation(attention: BaseAttention, row: Tensor, head: int, i: int) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the equation of query i for the columns from k on: its row of scores, and what each slot lacks."""
    n, w = len(row), getattr(attention, "window", 0)
    old, seen = (max(i + 1 - w, 0), i + 1) if attention.causal else (n, n)
    if n - w <= K or (attention.causal and i < K + w):
        return [], []
    start = attention.key_projection.matrix(n, torch.tensor([n]), torch.float64)[0]
    start = start[head if len(start) > 1 else 0]
    pooled = attention.key_projection.weight.count_nonzero() == 0
    lacks = []
    for slot in range(K):
        members = [j for j in range(old) if (start[slot, j] > 0 if pooled else j % K == slot)]
        together = torch.logsumexp(row[members], 0).clamp(min=torch.logsumexp(row[:seen], 0) + math.log(LEAST))
        lacks.append(together - start[slot, :old] @ row[:old])
    missing = torch.stack(lacks)
    features = torch.cat([row[K:old], row.new_zeros(N - old)])
    return [features], [missing if w else missing - missing.mean()]


@pytest.mark.parametrize(
    "flags",
    [
        {"linformer_projection": "pooled-linear"},
        {"linformer_projection": "linear", "linformer_init": "identity", "linformer_mask_empty_slots": True},
        {
            "linformer_attention": "decoder",
            "linformer_init": "identity",
            "linformer_mask_empty_slots": True,
            "linformer_window": 2,
        },
    ],
)
def test_fitted_model_is_still_exact_for_short_sentences(flags: dict[str, object]) -> None:
    transformer = toy_model("transformer", max_source_positions=16, max_target_positions=16)
    linformer = toy_model(linformer_k="4", max_source_positions=16, max_target_positions=16, random=False, **flags)
    own = {name: w for name, w in linformer.state_dict().items() if name not in transformer.state_dict()}
    linformer.load_state_dict({**transformer.state_dict(), **own})
    sentences = Sentences([4, 9, 12, 16, 14, 11, 10, 13, 15, 16, 9, 12])
    starts = {
        weight: weight.detach().clone()
        for attention in fittable_attention(linformer).values()
        for weight in (attention.key_projection.weight, attention.value_projection.weight)
    }
    assert starts

    def distances() -> tuple[float, float]:
        """Returns the divergence of the predictions for a sentence of 4 tokens, and of all others."""
        with torch.no_grad():
            found = []
            for index in range(12):
                inputs = sentences.collater([sentences[index]])["net_input"]
                one, other = (torch.log_softmax(m(**inputs)[0], -1) for m in (transformer, linformer))
                found.append((one.exp() * (one - other)).sum(-1).mean().item())
        return found[0], sum(found[1:])

    short, long = distances()
    assert abs(short) < 1e-4
    fit(transformer, linformer, sentences, range(12))
    short_fitted, long_fitted = distances()
    assert abs(short_fitted) < 1e-4
    assert long_fitted != long
    assert all((weight != start).any() for weight, start in starts.items())
    assert not any(module._forward_pre_hooks for module in transformer.modules())
