"""Fitting finds projections that attention maps were made with, and keeps what is exact."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from linformer_fairseq.convert.building import build_original
from linformer_fairseq.convert.checkpoint import with_settings
from linformer_fairseq.convert.fitting import LEAST, RIDGE, _Sums, fit
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import BaseAttention
from tests import naive
from tests.convert.toy_checkpoints import PATH, built, converted, state_of
from tests.models.toy import previous_tokens, sentence, toy_task
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
        return self.lengths[index] - 1  # as fairseq counts where it adds a token to the beginning (`--add-bos-token`)

    def collater(self, samples: list[dict]) -> dict:
        (sample,) = samples
        tokens = sample["net_input"]["src_tokens"]
        return {"net_input": {**sample["net_input"], "src_lengths": torch.tensor([tokens.size(1)])}}


def attention_with(causal: bool, window: int) -> BaseAttention:
    exact = {"init": "identity", "mask_empty_slots": True}
    return make_attention("linear", k=K, n=N + 1, random=False, causal=causal, window=window, **exact)


every_attention = pytest.mark.parametrize(("causal", "window"), [(False, 0), (True, 0), (True, 2)])


@every_attention
def test_value_columns_are_the_best_there_are(causal: bool, window: int) -> None:
    """No F close to the fitted one has a smaller sum of squared errors."""
    attention = attention_with(causal, window)
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
    matrices = [projection.weight[:, :n] for projection in (attention.key_projection, attention.value_projection)]
    for of_head in scores:
        query = of_head * n**0.5
        if attention.causal:
            full = of_head.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1)
            through, _ = naive.causal_linformer_attention(query, keys, keys, *matrices, attention.window, True)
        else:
            _, full = naive.full_attention(query, keys, keys)
            through, _ = naive.linformer_attention(query, keys, keys, *matrices)
        total += (full - through).square().sum().item()
    return total


@every_attention
def test_key_columns_are_the_least_squares_solution(causal: bool, window: int) -> None:
    """The expected columns come from a system of equations that is written down query by query."""
    torch.manual_seed(2)
    attention = attention_with(causal, window)
    scores = [2 * torch.randn(2, n, n, dtype=torch.float64) for n in (3, 5, 6, 9, 9, 8, 7)]
    features, wanted = [], []
    for sentence_scores in scores:
        for head, i in product(range(2), range(sentence_scores.size(2))):
            for rows, row in zip((features, wanted), equation(attention, sentence_scores[head, i], i), strict=True):
                rows.extend(row)
    sums = _Sums(attention, of_keys=True, longest=N + 2)
    before = attention.key_projection.weight.detach().clone()
    for sentence_scores in scores:
        sums.add(sentence_scores)
    with torch.no_grad():
        sums.solve()
    change = attention.key_projection.weight.detach() - before
    assert change[:, :K].count_nonzero() == change[:, N:].count_nonzero() == 0
    used = sum(s.size(2) - window > K for s in scores)
    ridge = (RIDGE * used) ** 0.5 * torch.eye(N - K, dtype=torch.float64)
    targets = torch.cat([torch.stack(wanted), ridge.new_zeros(N - K, K)])
    expected = torch.linalg.lstsq(torch.cat([torch.stack(features), ridge]), targets).solution.mT
    torch.testing.assert_close(change[:, K:N], expected)
    assert expected.abs().max() > 0.05


def equation(attention: BaseAttention, row: Tensor, i: int) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the equation of query i for the columns from k on: its row of scores, and what each slot lacks."""
    n, w = len(row), getattr(attention, "window", 0)
    old, seen = (max(i + 1 - w, 0), i + 1) if attention.causal else (n, n)
    if n - w <= K or (attention.causal and i < K + w):
        return [], []
    start = attention.key_projection.weight.detach()
    lacks = []
    for slot in range(K):
        together = torch.logsumexp(row[slot:old:K], 0).clamp(min=torch.logsumexp(row[:seen], 0) + math.log(LEAST))
        lacks.append(together - start[slot, :old] @ row[:old])
    missing = torch.stack(lacks)
    features = torch.cat([row[K:old], row.new_zeros(N - old)])
    return [features], [missing if w else missing - missing.mean()]


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"linformer_attention": "decoder", "linformer_window": 2},
    ],
)
def test_fitted_model_is_still_exact_for_short_sentences(flags: dict[str, object]) -> None:
    state = state_of(max_source_positions=16, max_target_positions=16)
    transformer = build_original(with_settings(state, PATH)).model
    linformer = built(converted(state, **{"linformer_projection": "linear", **flags, "linformer_k": "4"})).float()
    sentences = Sentences([4, 9, 12, 16, 14, 11, 10, 13, 15, 16, 9, 12])
    weights = projection_weights(linformer.state_dict())
    starts = {name: weight.clone() for name, weight in weights.items()}
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
    assert all((weights[name] != start).any() for name, start in starts.items())
    assert not any(module._forward_pre_hooks for module in transformer.modules())
