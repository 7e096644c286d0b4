import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.beams import deduplicate_beams, fold_beams, unfold_beam_weights, unfold_beams


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 1))
def test_what_hypotheses_share_is_there_once(sentences: int, hypotheses: int, n: int, dim: int) -> None:
    one = torch.arange(float(n * sentences)).view(n, sentences).movedim(1, dim)
    all_of_them = one.repeat_interleave(hypotheses, dim)
    assert torch.equal(deduplicate_beams(all_of_them, hypotheses, dim), one)


def test_what_one_hypothesis_has_for_itself_stays() -> None:
    x = torch.zeros(3, 4)
    x[1, 3] = 1.0
    assert deduplicate_beams(x, 2, 1) is x


def test_a_batch_of_no_whole_beams_stays() -> None:
    x = torch.zeros(3, 5)
    assert deduplicate_beams(x, 2, 1) is x


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
