"""Trained models work in `fairseq-generate`, `-interactive`, `-validate` and fairseq's hub interface."""

import re
from pathlib import Path

import pytest
from fairseq.hub_utils import GeneratorHubInterface

from linformer_fairseq import LinformerTransformerModel
from tests.fairseq_commands import (
    ALL_PLACES,
    generate_arguments,
    hypotheses,
    run,
    same_hypotheses,
    train,
    translate,
    valid_losses,
    validation_loss,
)
from tests.variants import variants

pytestmark = pytest.mark.slow

Found = dict[int, tuple[float, str]]


@pytest.fixture(scope="module", params=["trained", "trained_causal"])
def checkpoint(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def found(data: Path, checkpoint: Path) -> Found:
    """Returns the checkpoint's translations of the test set."""
    found = translate(data, checkpoint)
    assert len(found) == 30
    return found


def test_generate_does_not_depend_on_the_batch(data: Path, checkpoint: Path, found: Found) -> None:
    same_hypotheses(found, translate(data, checkpoint, "--batch-size", 1))


def test_score_reference_agrees_with_the_search(data: Path, checkpoint: Path, found: Found, tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text((data / "test.en").read_text())
    (tmp_path / "test.de").write_text("".join(found[number][1] + "\n" for number in range(30)))
    dictionary = data / "bin" / "dict.en.txt"
    run(
        "preprocess",
        *("-s", "en", "-t", "de", "--testpref", tmp_path / "test", "--destdir", tmp_path / "bin"),
        *("--srcdict", dictionary, "--tgtdict", dictionary),
    ).ok()
    arguments = generate_arguments(tmp_path, checkpoint, "--score-reference")
    same_hypotheses(found, hypotheses(run("generate", *arguments).ok()))


@pytest.mark.parametrize("form", ["hard", "soft"])
def test_prefixes_and_alignment(form: str, data: Path, checkpoint: Path) -> None:
    """Hypotheses begin as their references do, and their words are aligned to source tokens."""
    options = ["--prefix-size", 3, "--print-alignment", form]
    output = run("generate", *generate_arguments(data, checkpoint, *options)).ok()
    references, sources, alignments = (
        dict(re.findall(rf"^{letter}-(\d+)\t(.*)$", output, re.MULTILINE)) for letter in "TSA"
    )
    assert len(alignments) == len(hypotheses(output)) == 30
    for number, (_, text) in hypotheses(output).items():
        prefix = references[str(number)].split()[:3]
        assert text.split()[: len(prefix)] == prefix
        targets, tokens = len(text.split()) + 1, len(sources[str(number)].split()) + 1
        if form == "hard":
            pairs = [tuple(map(int, pair.split("-"))) for pair in alignments[str(number)].split()]
            assert {target for _, target in pairs} <= set(range(targets))
            assert {source for source, _ in pairs} <= set(range(tokens))
            assert pairs
        else:
            rows = [list(map(float, row.split(","))) for row in alignments[str(number)].split()]
            assert [len(row) for row in rows] == [tokens] * targets
            assert all(0 <= weight <= 1 for row in rows for weight in row)
            assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in rows)


def test_validate_finds_the_loss_of_the_training(data: Path, checkpoint: Path) -> None:
    loss = validation_loss(data, checkpoint)
    assert loss == pytest.approx(min(valid_losses((checkpoint.parent / "log").read_text())), abs=0.002)


def test_interactive_and_hub_say_what_generate_says(data: Path, checkpoint: Path, found: Found) -> None:
    lines = (data / "test.en").read_text().splitlines()[:4]
    expected = [found[number][1] for number in range(4)]
    arguments = generate_arguments(data, checkpoint, "--buffer-size", 4, "-s", "en", "-t", "de")
    spoken = hypotheses(run("interactive", *arguments, text="\n".join(lines) + "\n").ok())
    assert [spoken[number][1] for number in range(4)] == expected
    model = LinformerTransformerModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data / "bin"))
    assert model.translate(lines, beam=4, max_len_b=30) == expected
    sentences = [model.encode(line) for line in lines]
    for found_by, print_alignment in (
        (model, "hard"),
        (GeneratorHubInterface(model.cfg, model.task, model.models), None),
    ):
        for best, *_ in found_by.generate(sentences, beam=2, print_alignment=print_alignment):
            assert best["attention"].size(1) == len(best["tokens"])
            assert bool(len(best["alignment"])) == bool(print_alignment)


def test_a_translation_may_outgrow_the_model_with_its_source(data: Path, tmp_path: Path) -> None:
    short = ["--max-target-positions", 20, *ALL_PLACES, "--max-update", 1, "--disable-validation"]
    train(data, tmp_path, *short).ok()
    options = ["--match-source-len", "--min-len", 25, "-s", "en", "-t", "de"]
    arguments = generate_arguments(data, tmp_path / "checkpoint_last.pt", *options)
    sentence = run("interactive", *arguments, text="w1 " * 30 + "\n").sentence()
    assert "error: a target of 21 tokens is longer than the 20" in sentence


def test_fairseq_that_leaves_the_last_batch_out_is_warned_of(data: Path, trained: Path) -> None:
    batches = ["--batch-size", 8, "--required-batch-size-multiple", 8]
    output = run("generate", *generate_arguments(data, trained, *batches)).ok()
    found = len(hypotheses(output))
    assert found in (24, 30)
    assert ("the last sentences are left out" in output) == (found == 24)


@pytest.mark.parametrize(
    "flags",
    variants(
        [["--sampling", "--sampling-topp", 0.8]],
        default=[
            ["--diverse-beam-groups", 2, "--diverse-beam-strength", 0.5],
            ["--sampling", "--sampling-topk", 5, "--seed", 3],
        ],
    ),
)
def test_other_searches(data: Path, trained_causal: Path, flags: list[object]) -> None:
    """Other searches end with all hypotheses; tests/models checks their scores."""
    output = run("generate", *generate_arguments(data, trained_causal, "--nbest", 4, *flags)).ok()
    assert len(re.findall(r"^H-\d+\t-\d", output, re.MULTILINE)) == 30 * 4
