"""Hypotheses become queries of their sentence and come apart again, and sentences end as a whole."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.beams import fold_beams, kept_sentences, unfold_beams


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(1, 4))
def test_sentences_that_stay(sentences: list[int], hypotheses: int) -> None:
    rows = torch.tensor(sentences)
    order = (rows[:, None] * hypotheses + torch.arange(hypotheses).flip(0)).flatten()
    assert torch.equal(kept_sentences(order, hypotheses), rows)


def test_hypotheses_of_several_sentences_are_no_beam() -> None:
    with pytest.raises(RuntimeError, match="the hypotheses of a sentence must stand side by side"):
        kept_sentences(torch.tensor([0, 1, 2, 5]), 2)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_hypotheses_are_queries_of_their_sentence_and_come_apart_again(sentences: int, hypotheses: int, t: int) -> None:
    query = torch.randn(t, sentences * hypotheses, 2)
    rows = fold_beams(query, hypotheses)
    for sentence in range(sentences):
        own = query[:, sentence * hypotheses : (sentence + 1) * hypotheses]
        assert torch.equal(rows[:, sentence].sort(0).values, own.flatten(0, 1).sort(0).values)
    by_head = rows.transpose(0, 1)[:, None].expand(-1, 4, -1, -1)  # (B, H, T h, d)
    assert torch.equal(unfold_beams(by_head, hypotheses), query.transpose(0, 1)[:, None].expand(-1, 4, -1, -1))
