"""How far outputs moved equals what is computed by hand, and is told by the length of the text."""

import csv
import math
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.models import BaseFairseqModel

from linformer_fairseq.convert import compare as module
from linformer_fairseq.convert.building import build_original
from linformer_fairseq.convert.checkpoint import with_settings
from linformer_fairseq.convert.compare import (
    ANY_LENGTH,
    BOS,
    EOS,
    FIRST_WORD,
    Sample,
    can_compare,
    compare,
    default_lengths,
    exact_length,
    longest_text,
    random_samples,
    told,
)
from tests.convert.test_checkpoint import STATES
from tests.convert.toy_checkpoints import CUT, PATH, built, converted
from tests.models.test_language_model import toy_lm
from tests.models.toy import EVERYWHERE, batch, previous_tokens, sentence, toy_model, toy_roberta, toy_task


def two_texts() -> Sample:
    """Returns a batch of sources of 12 and 4 tokens, whose targets have 6 and 3."""
    task = toy_task()
    inputs = batch(task, [sentence(task, 12, 1), sentence(task, 4, 2)], left_pad=True)["net_input"]
    target = torch.stack([sentence(task, 6, 3), torch.nn.functional.pad(sentence(task, 3, 4), (0, 3), value=1)])
    inputs["prev_output_tokens"] = previous_tokens(task, target)
    return inputs, target, [12, 4]


@pytest.mark.parametrize("portion", [4, module.PORTION])
def test_rows_have_the_sums_over_their_tokens(portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding does not count, and neither does how many predictions are in memory at a time."""
    monkeypatch.setattr(module, "PORTION", portion)
    inputs, target, _ = sample = two_texts()
    one, other = toy_model("transformer"), toy_model("linformer_transformer", linformer_k="4")
    rows = compare(one, other, [sample], 2, (4, 8), on_text=True)
    assert [(row["Up to"], row["Texts"]) for row in rows] == [("4", 1), ("longer", 1)]
    with torch.no_grad():
        before, after = (torch.log_softmax(model(**inputs)[0], -1) for model in (one, other))
    for row, number, tokens in ((rows[0], 1, 3), (rows[1], 0, 6)):
        own = (slice(number, number + 1), slice(tokens))
        for title, scores in (("Perplexity before", before), ("Perplexity after", after)):
            loss = -scores.gather(2, target[..., None])[own].mean().item()
            assert row[title] == pytest.approx(math.exp(loss), rel=1e-5)
        moved = (before.exp() * (before - after)).sum(-1)[own].mean().item()
        assert row["Divergence"] == pytest.approx(moved, rel=1e-4)
        assert row["Same best"] == (before.argmax(-1) == after.argmax(-1))[own].double().mean().item()


def test_the_table_and_its_file(tmp_path: Path) -> None:
    one, other = toy_model("transformer"), toy_model("linformer_transformer", linformer_k="4")
    rows = compare(one, other, [two_texts()], 2, (4, 12), on_text=True)
    header, _, *lines = told(rows, tmp_path / "x.csv").splitlines()
    assert told(rows, None).splitlines()[0] == header
    assert [cell.strip() for cell in header.split("|")[1:-1]] == [*rows[0]]
    assert [cell.strip() for cell in lines[1].split("|")[1:4]] == ["12", "1", f"{rows[1]['Perplexity before']:.2f}"]
    with (tmp_path / "x.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{title: str(value) for title, value in row.items()} for row in rows]


@pytest.mark.parametrize(("name", "exact"), [("transformer", 23), ("transformer_lm", 24), ("roberta", 23)])
def test_outputs_move_in_texts_beyond_the_exact_length(name: str, exact: int) -> None:
    state = STATES[name]()
    before, model = build_original(with_settings(state, PATH)), built(converted(state, **CUT)).float()
    lengths = (8, exact, exact + 2, 64)
    assert can_compare(model, on_text=False)
    assert can_compare(model, on_text=True)
    assert (longest_text(model), exact_length(model)) == (64, exact)
    assert exact_length(before.model) == ANY_LENGTH
    samples = random_samples(model, before.task, lengths, 2, seed=1)
    rows = compare(before.model, model, samples, 8, lengths, on_text=False)
    assert [(row["Up to"], row["Texts"]) for row in rows] == [(str(length), 2) for length in lengths]
    assert [row["Divergence"] < 1e-5 for row in rows] == [True, True, False, False]
    assert [row["Same best"] for row in rows[:2]] == [1, 1]
    assert "erplexity" not in told(rows, None)


@pytest.mark.parametrize(
    ("flags", "exact"),
    [
        ({}, 767),
        ({"linformer_projection": "full", "linformer_k": "64"}, ANY_LENGTH),
        ({"linformer_exact_below": 0}, 8),
        ({"linformer_exact_below": 0, "linformer_attention": "cross", "linformer_k": "16"}, 16),
        ({"linformer_attention": "decoder", **CUT}, 24),
        # a target may open 3 of its windows of 8 tokens from the fifth on, where a block begins
        ({"linformer_exact_below": 0, "linformer_attention": "decoder", "linformer_block_size": 8}, 32),
        ({"linformer_exact_below": 0, "linformer_attention": "decoder"}, 64),
        ({"linformer_decoder_projection": "linear"}, 0),
        ({"linformer_projection": "mean-pool"}, 0),
        ({"linformer_projection": "mean-pool", "linformer_attention": "encoder"}, 0),
    ],
)
def test_exact_length(flags: dict[str, object], exact: int) -> None:
    given = {"linformer_k": "8", "linformer_projection": "two-level", "linformer_attention": EVERYWHERE, **flags}
    assert exact_length(toy_model(**given)) == exact


def test_where_ranges_end() -> None:
    assert default_lengths(1024, 767) == (8, 16, 32, 64, 128, 256, 512, 767, 1024)
    assert default_lengths(100_000, 0)[-2:] == (1024, 2048)
    assert default_lengths(64, 0) == (8, 16, 32, 64)
    assert default_lengths(5, 0) == (5,)


def random_of(model: BaseFairseqModel, *lengths: int) -> list[Sample]:
    task = Namespace(source_dictionary=range(20), target_dictionary=range(9))
    return list(random_samples(model, task, lengths, 2, seed=1))


def test_random_texts_are_the_same_every_time() -> None:
    model = toy_model("transformer", max_source_positions=24)
    found, again = random_of(model, 4, 30), random_of(model, 4, 30)
    sizes = [(inputs["src_tokens"].size(1), target.size(1)) for inputs, target, _ in found]
    assert sizes == [(4, 4)] * 2 + [(24, 30)] * 2
    assert [lengths for *_, lengths in found] == [[4], [4], [30], [30]]
    for (inputs, target, _), (_, other, _) in zip(found, again, strict=True):
        assert torch.equal(target, other)
        for words, most in ((target, 9), (inputs["src_tokens"], 20)):
            assert words[0, -1] == EOS
            assert words[0, :-1].min() >= FIRST_WORD
            assert words.max() < most
        assert torch.equal(inputs["prev_output_tokens"], previous_tokens(toy_task(), target))
    assert not torch.equal(found[0][1], found[1][1])


def test_random_texts_of_models_of_one_language() -> None:
    """A language model reads the tokens before those that it predicts, a masked one the text itself."""
    for inputs, target, _ in random_of(toy_lm("transformer_lm_gpt2_tiny"), 1, 6):
        assert torch.equal(inputs["src_tokens"], previous_tokens(toy_task(), target))
    for inputs, target, _ in random_of(toy_roberta("roberta"), 2, 6):
        assert torch.equal(inputs["src_tokens"], target)
        assert (target[0, 0], target[0, -1]) == (BOS, EOS)
