"""Fitting finds projections that attention maps were made with, and keeps what is exact."""

import pytest
import torch
from torch import Tensor

from linformer_fairseq.convert.fitting import _Sums, fit, learned
from linformer_fairseq.modules import LinformerMultiheadAttention
from tests.models.toy import previous_tokens, sentence, toy_model, toy_task
from tests.reference import make_attention

K, N = 3, 9


class Sentences:
    """A data set of random pairs, as fairseq's tasks have them."""

    def __init__(self, lengths: list[int]) -> None:
        self.task = toy_task()
        self.lengths = lengths

    def __getitem__(self, index: int) -> dict:
        source = sentence(self.task, self.lengths[index], index)[None]
        target = sentence(self.task, self.lengths[index], index + 100)[None]
        return {"net_input": {"src_tokens": source, "prev_output_tokens": previous_tokens(self.task, target)}}

    def collater(self, samples: list[dict]) -> dict:
        (sample,) = samples
        tokens = sample["net_input"]["src_tokens"]
        return {"net_input": {**sample["net_input"], "src_lengths": torch.tensor([tokens.size(1)])}}


def attention_with(kind: str, sharing: str, causal: bool, window: int = 0) -> LinformerMultiheadAttention:
    options = {"init": "identity", "mask_empty_slots": True} if kind == "linear" else {}
    options |= {"causal": True, "window": window} if causal else {}
    return make_attention(kind, sharing, K, N, random=False, **options)


@pytest.mark.parametrize("sharing", ["none", "headwise"])
@pytest.mark.parametrize(
    ("kind", "causal", "window"),
    [("linear", False, 0), ("pooled-linear", False, 0), ("linear", True, 0), ("linear", True, 2)],
)
def test_value_columns_are_the_best_there_are(kind: str, sharing: str, causal: bool, window: int) -> None:
    """No other F of a few tried is nearer to the maps, in the sum of squares over sentences; a little ridge apart."""
    attention = attention_with(kind, sharing, causal, window)
    scores = [2 * torch.randn(2, n, n, dtype=torch.float64) for n in (4, 6, 9, 9, 8, 7)]
    sums = _Sums(attention, of_keys=False)
    for sentence_scores in scores:
        sums.add(sentence_scores)
    before = attention.value_projection.weight.detach().clone()
    missed_before = sum(missed(attention, s) for s in scores)
    with torch.no_grad():
        sums.solve()
    found = attention.value_projection.weight.detach().clone()
    assert torch.equal(found[..., :K], before[..., :K])
    least = sum(missed(attention, s) for s in scores)
    assert least < missed_before
    for seed in range(5):
        torch.manual_seed(seed)
        change = 0.05 * torch.randn_like(found)
        change[..., :K] = 0
        with torch.no_grad():
            attention.value_projection.weight.copy_(found + change)
        assert sum(missed(attention, s) for s in scores) > least


def missed(attention: LinformerMultiheadAttention, scores: Tensor) -> float:
    """The squared distance of the map through the slots from the map itself, entry by entry."""
    n, w, total = scores.size(2), attention.window, 0.0
    for head in range(scores.size(0)):
        key, value = (
            p.matrix(n, torch.tensor([n]), torch.float64)[0]
            for p in (attention.key_projection, attention.value_projection)
        )
        key, value = (m[head if len(m) > 1 else 0] for m in (key, value))
        for i in range(n):
            seen = i + 1 if attention.causal else n
            old = i + 1 - w if attention.causal else n
            row = scores[head, i]
            full = torch.softmax(row[:seen], 0)
            slots = min(K, max(old, 0)) if attention.causal else min(K, n)
            entries = torch.cat([key[:slots, : max(old, 0)] @ row[: max(old, 0)], row[max(old, 0) : seen]])
            shares = torch.softmax(entries, 0)
            through = torch.cat([shares[:slots] @ value[:slots, : max(old, 0)], shares[slots:]])
            total += (full - through).square().sum().item()
    return total


@pytest.mark.parametrize("sharing", ["none", "headwise"])
def test_keys_are_found_again(sharing: str) -> None:
    """Scores from k + 1 tokens on that are made so that one E gives every slot what its tokens have together."""
    attention = attention_with("linear", sharing, causal=False)
    sums = _Sums(attention, of_keys=True)
    for _ in range(40):
        # token 3 counts to slot 0; where it has the score of token 0, the two have log 2 more than the one
        scores = torch.randn(2, 5, 4, dtype=torch.float64)
        scores[..., 3] = scores[..., 0]
        sums.add(scores)
    with torch.no_grad():
        sums.solve()
    weight = attention.key_projection.weight
    column = weight[..., 3]
    assert torch.equal(weight[..., :K], torch.eye(K, dtype=torch.float64).expand_as(weight[..., :K]))
    assert column.isfinite().all()
    assert column.abs().max() < 1  # a constant is not in the reach of scores without a mean


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
    sizes = {name: a.key_projection.weight.shape for name, a in learned(linformer).items()}
    assert sizes

    def distances() -> tuple[float, float]:
        """Of the predictions for a sentence of 4 tokens, and of all others."""
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
    assert not any(module._forward_pre_hooks for module in transformer.modules())
