"""The search allows what a readable copy of its rules allows."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.tasks.sentence_search import SentenceCountSearch, SentenceLimits, pad_lengths
from tests.tasks.toy_documents import document_task

TASK = document_task()
EOS, SEPARATOR = TASK.tgt_dict.eos(), TASK.target_separator
WORD = TASK.tgt_dict.index("w3")
LIMITS = (
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.5, 1.2]), st.integers(0, 4))
    .filter(lambda limits: limits[1] > 0 or limits[0] <= limits[2])
    .map(lambda limits: SentenceLimits(*limits))
)


def search(limits: SentenceLimits, sources: list[list[int]], beam: int) -> SentenceCountSearch:
    found = SentenceCountSearch(TASK.tgt_dict, SEPARATOR, limits)
    found.init_constraints(pad_lengths(sources), beam)
    return found


def naive_allowed(limits: SentenceLimits, source: list[int], tokens: list[int], finite: set[int]) -> set[int]:
    """Returns the words that may follow a hypothesis, of those that are finite."""
    sentences: list[list[int]] = [[]]
    for token in tokens[1:]:
        if token == SEPARATOR:
            sentences.append([])
        else:
            sentences[-1].append(token)
    last = len(sentences) >= len(source)
    subwords, length = source[min(len(sentences), len(source)) - 1], len(sentences[-1])
    end = EOS if last else SEPARATOR
    longest = max(int(limits.max_len_a * subwords + limits.max_len_b), limits.min_len, 1)
    shortest = limits.min_len if subwords else 0
    if length >= longest and end in finite:
        return {end}
    allowed = finite - {EOS, SEPARATOR} | ({end} & finite if length >= shortest else set())
    return allowed or ({EOS} & finite)


@given(
    LIMITS,
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(0, 6),
    st.data(),
)
def test_masks(limits: SentenceLimits, sources: list[list[int]], beam: int, step: int, data: st.DataObject) -> None:
    words = len(TASK.tgt_dict)
    token = st.sampled_from([WORD, WORD, SEPARATOR])
    rows = len(sources) * beam
    tokens = [[EOS, *data.draw(st.lists(token, min_size=step, max_size=step))] for _ in range(rows)]
    finite = [data.draw(st.sets(st.sampled_from([EOS, SEPARATOR, WORD, WORD + 1]))) for _ in range(rows)]
    scores = torch.full((rows, words), -math.inf)
    for row, some in enumerate(finite):
        scores[row, sorted(some)] = torch.arange(len(some)) - 9.0
    given_scores = scores.view(len(sources), beam, words).clone()
    masked = search(limits, sources, beam)._masked(given_scores, torch.tensor(tokens).view(len(sources), beam, -1))
    assert torch.equal(given_scores.view(rows, words), scores)
    for row, found in enumerate(masked.view(rows, words)):
        allowed = naive_allowed(limits, sources[row // beam], tokens[row], finite[row])
        assert set(found.ne(-math.inf).nonzero().flatten().tolist()) == allowed
        assert torch.equal(found[sorted(allowed)], scores[row, sorted(allowed)])


def test_hypotheses_without_a_word_left_hold_no_padding() -> None:
    """One hypothesis has nothing but its end, the beam takes two, and the models refuse padding in a target."""
    scores = torch.full((1, 2, len(TASK.tgt_dict)), -math.inf)
    scores[..., EOS] = 0
    found, words, _ = search(SentenceLimits(), [[2]], 2).step(0, scores, None, torch.full((2, 1), EOS), None)
    assert found[0].tolist() == [0, *[-math.inf] * 3]
    assert words[0].tolist() == [EOS, *[TASK.tgt_dict.unk()] * 3]


def test_finished_documents_leave_the_batch() -> None:
    """The rows that are left keep their own numbers of sentences."""
    found = search(SentenceLimits(), [[1], [1, 1], [1, 1, 1]], 1)
    found.prune_sentences(torch.tensor([0, 2]))
    tokens = torch.tensor([[[EOS, WORD]], [[EOS, WORD]]])
    masked = found._masked(torch.zeros(2, 1, len(TASK.tgt_dict)), tokens)
    assert masked[:, 0, EOS].eq(0).tolist() == [True, False]
    assert masked[:, 0, SEPARATOR].eq(0).tolist() == [False, True]


@given(LIMITS, st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_limit_of_a_document_is_the_sum_of_its_sentences(limits: SentenceLimits, sources: list[list[int]]) -> None:
    expected = [
        sum(max(int(limits.max_len_a * n + limits.max_len_b), limits.min_len, 1) for n in source) + len(source) - 1
        for source in sources
    ]
    assert limits.document(pad_lengths(sources)).tolist() == expected


def test_refusals() -> None:
    with pytest.raises(ValueError, match="--min-len 9 is above --max-len-b 5"):
        SentenceLimits(9, 0, 5)
    SentenceLimits(9, 1, 5)
    with pytest.raises(ValueError, match="inference_step"):
        SentenceCountSearch(TASK.tgt_dict, SEPARATOR, SentenceLimits()).init_constraints(None, 1)
