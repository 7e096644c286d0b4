"""How far predictions moved equals what is computed by hand, and is told by length and by position."""

import math
from collections.abc import Sequence

import pytest
import torch

from linformer_fairseq.convert.checkpoint import build_model, build_original, convert_state
from linformer_fairseq.convert.compare import Comparison, OutputDrift, Sample, compare, moves_of
from linformer_fairseq.convert.families import LANGUAGE_MODEL, TRANSLATION
from linformer_fairseq.convert.reach import Reach, reaches
from linformer_fairseq.convert.report import exact_texts, span, summary
from linformer_fairseq.convert.texts import EOS, FIRST_WORD, RandomTexts
from linformer_fairseq.length_buckets import Bucket, buckets
from tests.convert.toy_checkpoints import CUT, config, lm_state_of, state_of
from tests.models.test_language_model import toy_lm
from tests.models.toy import EVERYWHERE, batch, previous_tokens, sentence, toy_model, toy_task

WORDS = len(toy_task().source_dictionary)


def test_sums_over_two_sentences() -> None:
    before = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).log()
    after = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.6, 0.3]]).log()
    drift = OutputDrift(Bucket(1, 8))
    drift.add(moves_of(before, after, torch.tensor([0, 1])))
    drift.add(moves_of(before[:1], after[:1], torch.tensor([2])))
    drift.add(torch.zeros(0, 4))  # a sentence without tokens here
    assert (drift.sentences, drift.tokens, drift.agreements) == (2, 3, 1)
    assert drift.loss_before == pytest.approx(-math.log(0.5 * 0.8 * 0.25))
    assert drift.loss == pytest.approx(-math.log(0.25 * 0.6 * 0.25))
    # from the trained model: 0.5 ln(0.5 / 0.25) + 0.25 ln(0.25 / 0.5) twice, and the other row once
    divergence = 2 * 0.25 * math.log(2) + 0.8 * math.log(0.8 / 0.6) + 0.1 * math.log(0.1 / 0.3)
    assert drift.divergence == pytest.approx(divergence, abs=1e-6)
    assert drift.farthest == pytest.approx(math.log(2), abs=1e-6)


def test_tokens_are_counted_by_source_and_by_position() -> None:
    """Sums over buckets are those of the whole batch, without padding, and the same in portions of memory."""
    task = toy_task()
    sample = batch(task, [sentence(task, 12, 1), sentence(task, 4, 2)], left_pad=True)["net_input"]
    target = torch.stack([sentence(task, 6, 3), torch.nn.functional.pad(sentence(task, 3, 4), (0, 3), value=1)])
    inputs = {**sample, "prev_output_tokens": previous_tokens(task, target)}
    one, other = toy_model("transformer"), toy_model("linformer_transformer", linformer_k="4")
    texts = [Sample(inputs, target, target != task.target_dictionary.pad(), [12, 4])]
    found = compare(one, [other, one], texts, 2, buckets((4, 8)), buckets((2, 5)))
    by_source, same = found.sources
    assert [(str(drift.bucket), drift.sentences, drift.tokens) for drift in by_source] == [
        ("1 to 4 tokens", 1, 3),
        ("9 tokens and more", 1, 6),
    ]
    by_position = found.positions[0]
    assert [(span(d.bucket), d.sentences, d.tokens) for d in by_position] == [
        ("1 to 2", 2, 4),
        ("3 to 5", 2, 4),
        ("from 6 on", 1, 1),
    ]
    with torch.no_grad():
        before, after = (torch.log_softmax(model(**inputs)[0], -1) for model in (one, other))
    moved = (before.exp() * (before - after)).sum(-1)
    assert by_source[0].divergence == pytest.approx(moved[1, :3].sum().item(), rel=1e-4)
    assert by_position[1].divergence == pytest.approx((moved[0, 2:5].sum() + moved[1, 2]).item(), rel=1e-4)
    assert all(drift.divergence == drift.farthest == 0 and drift.agreements == drift.tokens for drift in same)


def on_random_texts(state: dict, cut: dict, lengths: Sequence[int]) -> tuple[Comparison, tuple[Reach | None, Reach]]:
    """Returns how far a converted model is on random texts of these lengths, and what it reaches."""
    family = TRANSLATION if "encoder.embed_tokens.weight" in state["model"] else LANGUAGE_MODEL
    model = build_model(convert_state(state, family, config(family, **cut)))
    source, target = reaches(model)
    sources = [] if source is None else lengths
    texts = RandomTexts((WORDS, WORDS), sources, lengths[-1], (source and source.exact, target.exact), 2, seed=1)
    by_source = [Bucket(length, length) for length in sources]
    found = compare(build_original(state), [model], texts, texts.number, by_source, buckets(tuple(lengths)))
    return found, (source, target)


def test_outputs_move_by_length_and_by_position_beyond_the_exact_ones() -> None:
    found, reach = on_random_texts(state_of(), CUT, (8, 23, 24, 40))
    assert reach == (Reach(64, 23), Reach(64, 24))
    for drifts, exact in ((found.sources[0], [True, True, False, False]), (found.positions[0], [True] * 3 + [False])):
        assert [drift.farthest < 1e-4 for drift in drifts] == exact
        assert [abs(drift.divergence) < 1e-4 for drift in drifts] == exact
    assert [drift.tokens for drift in found.sources[0]] == [2 * 24] * 4
    assert [drift.tokens for drift in found.positions[0]] == [16, 30, 2, 32]


def test_outputs_of_a_language_model_move_by_position() -> None:
    found, reach = on_random_texts(lm_state_of(), CUT, (8, 24, 64))
    assert reach == (None, Reach(64, 24))
    assert found.sources == [[]]
    assert [drift.farthest < 1e-4 for drift in found.positions[0]] == [True, True, False]
    text = summary(found, on_text=False)
    assert "Source" not in text
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:]] == ["1 to 8", "9 to 24", "25 to 64"]


def test_summary_has_perplexities_of_text_only() -> None:
    found, _ = on_random_texts(state_of(), CUT, (8, 40))
    for on_text in (True, False):
        tables = summary(found, on_text).split("\n\n")
        assert [table.split("|")[1].strip() for table in tables] == ["Source", "Position"]
        assert [("erplexity" in table) for table in tables] == [on_text] * 2
        assert tables[0].splitlines()[2].split("|")[1].strip() == "8 tokens"


@pytest.mark.parametrize(
    ("flags", "exact"),
    [
        ({}, (64, 64)),
        ({"linformer_exact_below": 0}, (8, 32)),  # a target may open 3 of its windows of 8 tokens from the fifth on
        ({"linformer_exact_below": 0, "linformer_attention": "cross", "linformer_cross_k": "16"}, (16, 64)),
        ({"linformer_attention": "decoder", **CUT}, (64, 24)),
        ({"linformer_decoder_projection": "linear"}, (64, None)),
        ({"linformer_projection": "mean-pool"}, (None, None)),
        ({"linformer_projection": "mean-pool", "linformer_attention": "encoder"}, (None, 64)),
    ],
)
def test_reach(flags: dict[str, object], exact: tuple[int | None, int | None]) -> None:
    model = toy_model(
        **{"linformer_k": "8", "linformer_projection": "two-level", "linformer_attention": EVERYWHERE, **flags}
    )
    source, target = reaches(model)
    assert (source.longest, source.exact, target.longest, target.exact) == (64, exact[0], 64, exact[1])
    sentence_said = exact_texts(source, target)
    assert bool(sentence_said) == (None not in exact)
    assert not sentence_said or f"first {exact[1]} tokens of targets with sources of up to {exact[0]} " in sentence_said


def test_reach_of_a_language_model() -> None:
    assert reaches(toy_lm()) == (None, Reach(64, None))
    assert reaches(toy_lm("transformer_lm_gpt2_tiny")) == (None, Reach(64, 64))
    assert exact_texts(None, Reach(64, 24)).startswith("The first 24 tokens of texts get the same outputs")


def test_where_ranges_end() -> None:
    assert Reach(1024, 767).ends(None) == (8, 16, 32, 64, 128, 256, 512, 767, 1024)
    assert Reach(100_000, 0).ends(None)[-2:] == (1024, 2048)
    assert Reach(64, None).ends(None) == (8, 16, 32, 64)
    assert Reach(5, None).ends(None) == (5,)
    assert Reach(64, 24).ends((4, 65, 100)) == (4, 64)


def test_random_texts_are_the_same_every_time() -> None:
    texts = RandomTexts((20, 9), (4, 30), 50, (3, 10), texts=2, seed=1)
    found, again = list(texts), list(texts)
    assert len(found) == texts.number == 6
    sizes = [(sample.net_input["src_tokens"].size(1), sample.target.size(1)) for sample in found]
    assert sizes == [(4, 10)] * 2 + [(30, 10)] * 2 + [(3, 50)] * 2
    assert [sample.source_lengths for sample in found] == [[4], [4], [30], [30], None, None]
    assert [sample.counts_positions for sample in found] == [False] * 4 + [True] * 2
    for sample, other in zip(found, again, strict=True):
        assert torch.equal(sample.target, other.target)
        for words, most in ((sample.target, 9), (sample.net_input["src_tokens"], 20)):
            assert words[0, -1] == EOS
            assert words[0, :-1].min() >= FIRST_WORD
            assert words.max() < most
        assert torch.equal(sample.net_input["prev_output_tokens"], previous_tokens(toy_task(), sample.target))
    assert not torch.equal(found[0].target, found[1].target)
