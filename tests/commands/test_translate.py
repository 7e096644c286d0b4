"""`fairseq-generate`, `-interactive`, `-validate`, `-score-reference` and the hub interface on a trained model."""

import re
from pathlib import Path

import pytest

from linformer_fairseq import LinformerTransformerModel
from tests.fairseq_commands import generate_arguments, run

pytestmark = pytest.mark.slow


@pytest.fixture(params=["trained", "trained_causal"])
def checkpoint(request: pytest.FixtureRequest) -> Path:
    """A trained Linformer, without and with projections in the decoder's self-attention."""
    return request.getfixturevalue(request.param)


def hypotheses(output: str) -> dict[int, tuple[float, str]]:
    """Score and text of every hypothesis by its sentence."""
    found = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, re.MULTILINE)
    return {int(index): (float(score), text) for index, score, text in found}


def test_generate_does_not_depend_on_the_batch(data: Path, checkpoint: Path) -> None:
    together = hypotheses(run("generate", *generate_arguments(data, checkpoint)).ok())
    alone = hypotheses(run("generate", *generate_arguments(data, checkpoint, "--batch-size", 1)).ok())
    assert len(together) == len(alone) == 30
    for index, (score, text) in together.items():
        assert alone[index][1] == text
        assert alone[index][0] == pytest.approx(score, abs=1e-4)


def test_score_reference_agrees_with_the_search(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    found = hypotheses(run("generate", *generate_arguments(data, checkpoint)).ok())
    (tmp_path / "test.en").write_text((data / "test.en").read_text())
    (tmp_path / "test.de").write_text("".join(found[index][1] + "\n" for index in range(30)))
    dictionary = data / "bin" / "dict.en.txt"
    run(
        "preprocess",
        *("-s", "en", "-t", "de", "--testpref", tmp_path / "test", "--destdir", tmp_path / "bin"),
        *("--srcdict", dictionary, "--tgtdict", dictionary),
    ).ok()
    scored = hypotheses(run("generate", *generate_arguments(tmp_path, checkpoint, "--score-reference")).ok())
    for index, (score, text) in found.items():
        assert scored[index][1] == text
        assert scored[index][0] == pytest.approx(score, abs=1e-4)


def test_alignment_is_printed(data: Path, checkpoint: Path) -> None:
    output = run("generate", *generate_arguments(data, checkpoint, "--print-alignment")).ok()
    pairs = re.findall(r"^A-\d+\t(.*)$", output, re.MULTILINE)
    assert len(pairs) == 30
    assert any(re.search(r"\d+-\d+", line) for line in pairs)


def test_validate(data: Path, checkpoint: Path) -> None:
    arguments = [data / "bin", "--user-dir", "linformer_fairseq", "--path", checkpoint, "--max-tokens", 400, "--cpu"]
    arguments += ["--task", "translation"]
    output = run("validate", *arguments, "--required-batch-size-multiple", 1, "--valid-subset", "valid").ok()
    assert "ppl" in output


def test_interactive_and_hub_say_what_generate_says(data: Path, checkpoint: Path) -> None:
    lines = (data / "test.en").read_text().splitlines()[:4]
    found = hypotheses(run("generate", *generate_arguments(data, checkpoint)).ok())
    expected = [found[index][1] for index in range(4)]
    arguments = generate_arguments(data, checkpoint, "--buffer-size", 4, "-s", "en", "-t", "de")
    spoken = hypotheses(run("interactive", *arguments, text="\n".join(lines) + "\n").ok())
    assert [spoken[index][1] for index in range(4)] == expected
    model = LinformerTransformerModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data / "bin"))
    assert model.translate(lines, beam=4, max_len_b=30) == expected


def test_prefixes(data: Path, checkpoint: Path) -> None:
    """Hypotheses begin as their references do."""
    output = run("generate", *generate_arguments(data, checkpoint, "--prefix-size", 3)).ok()
    references = dict(re.findall(r"^T-(\d+)\t(.*)$", output, re.MULTILINE))
    found = hypotheses(output)
    assert len(found) == 30
    for index, (_, text) in found.items():
        prefix = references[str(index)].split()[:3]
        assert text.split()[: len(prefix)] == prefix


def test_ensemble(data: Path, trained: Path, trained_causal: Path) -> None:
    both = hypotheses(run("generate", *generate_arguments(data, f"{trained}:{trained_causal}")).ok())
    twice = hypotheses(run("generate", *generate_arguments(data, f"{trained_causal}:{trained_causal}")).ok())
    alone = hypotheses(run("generate", *generate_arguments(data, trained_causal)).ok())
    assert len(both) == 30
    for index, (score, text) in alone.items():
        assert twice[index][1] == text
        assert twice[index][0] == pytest.approx(score, abs=1e-4)
    assert {index: score for index, (score, _) in both.items()} != {index: score for index, (score, _) in alone.items()}


@pytest.mark.parametrize(
    "flags",
    [
        ["--diverse-beam-groups", 2, "--diverse-beam-strength", 0.5],
        ["--sampling", "--sampling-topk", 5, "--seed", 3],
        ["--sampling", "--sampling-topp", 0.8],
    ],
)
def test_other_searches(data: Path, trained_causal: Path, flags: list[object]) -> None:
    """They run to their end; that their scores are right is tested with whole models in one process."""
    output = run("generate", *generate_arguments(data, trained_causal, "--nbest", 4, *flags)).ok()
    assert len(re.findall(r"^H-\d+\t-\d", output, re.MULTILINE)) == 30 * 4
