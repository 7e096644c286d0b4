import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.beams import (
    descend,
    fold_beams,
    one_of_each_beam,
    unfold_beam_weights,
    unfold_beams,
)


@given(st.integers(1, 4), st.integers(1, 4))
def test_what_hypotheses_share_is_there_once(sentences: int, hypotheses: int) -> None:
    rows = torch.arange(sentences)
    assert torch.equal(one_of_each_beam(rows.repeat_interleave(hypotheses), hypotheses), rows)


def test_hypotheses_of_several_sentences_are_no_beam() -> None:
    with pytest.raises(RuntimeError, match="the hypotheses of a sentence must stand side by side"):
        one_of_each_beam(torch.tensor([0, 0, 1, 2]), 2)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_hypotheses_are_queries_of_their_sentence_and_come_apart_again(sentences: int, hypotheses: int, t: int) -> None:
    query = torch.randn(t, sentences * hypotheses, 2)
    rows = fold_beams(query, hypotheses)
    for sentence in range(sentences):
        own = query[:, sentence * hypotheses : (sentence + 1) * hypotheses]
        assert torch.equal(rows[:, sentence].sort(0).values, own.flatten(0, 1).sort(0).values)
    assert torch.equal(unfold_beams(rows, hypotheses), query)
    weights = rows.transpose(0, 1)  # (B, T h, n), where n weights say whose they are
    assert torch.equal(unfold_beam_weights(weights, hypotheses), query.transpose(0, 1))
    by_head = weights.expand(2, -1, -1, -1)
    assert torch.equal(unfold_beam_weights(by_head, hypotheses), query.transpose(0, 1).expand(2, -1, -1, -1))


@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_copies_of_a_hypothesis_share_its_row(sentences: int, hypotheses: int, data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, hypotheses - 1), min_size=hypotheses, max_size=hypotheses)
    order = torch.tensor([i * hypotheses + j for i in range(sentences) for j in data.draw(numbers)])
    kept, descent = descend(order)
    assert kept.tolist() == sorted(set(order.tolist()))
    assert torch.equal(kept[descent.rows], order)
    assert torch.equal(descent.sentences(hypotheses), kept // hypotheses)
    assert (descent.number, descent.most) == (len(kept), max(order.tolist().count(row) for row in kept))
    query = torch.randn(1, len(order), 2, 3)
    folded = descent.folded(query)
    assert folded.shape[:2] == (descent.most, len(kept))
    for row, own in enumerate(kept):  # the queries of its copies, in their order, and zeros
        copies = query[0, order == own]
        assert torch.equal(folded[: len(copies), row], copies)
        assert not folded[len(copies) :, row].any()
    assert torch.equal(descent.unfolded(folded.permute(1, 2, 0, 3)), query.permute(1, 2, 0, 3))
