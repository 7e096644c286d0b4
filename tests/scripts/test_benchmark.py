"""The script that times whole models."""

import csv
import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fairseq.data import Dictionary

from linformer_fairseq.cli.errors import UserError
from tests.fairseq_commands import ALL_PLACES, ROOT, SHORT, environment

SCRIPT = ROOT / "scripts" / "benchmark.py"
SIZES = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--decoder-layers 2 --decoder-attention-heads 2 --share-all-embeddings"
)
TINY = [
    *("--lengths", "16", "40", "--tokens", "80", "--k", "4", "8", "--vocabulary", "20", "--threads", "1"),
    *("--repeats", "3", "--flags", SIZES),
]
MODELS = ["transformer", *(f"{kind}_transformer, k = {k}" for kind in ("linformer", "two_level") for k in (4, 8))]
PARTS = ["encoder", "translation", "training"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def words() -> Dictionary:
    words = Dictionary()
    for word in range(20):
        words.add_symbol(f"w{word}")
    return words


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns what the script wrote."""
    out = tmp_path_factory.mktemp("benchmark") / "a folder"
    subprocess.run([sys.executable, SCRIPT, "--out", out, *TINY], cwd=out.parent, env=environment(), check=True)
    return out


def row(script: ModuleType, *times: float) -> tuple[object, ...]:
    return script.Row("training", "a model", 8, 1, *times)


def test_table_has_the_figures_of_the_csv(script: ModuleType, out: Path) -> None:
    assert {path.name for path in out.iterdir()} == {"benchmark.csv", "benchmark.md", "benchmark.png"}
    with open(out / "benchmark.csv", newline="") as file:
        found = list(csv.DictReader(file))
    keys = [(own["part"], own["length"], own["sentences"], own["model"]) for own in found]
    assert keys == [(part, *size, name) for part in PARTS for size in (("16", "5"), ("40", "2")) for name in MODELS]
    rows = [row(script, *(float(own[name]) for name in ("median", "lower", "upper"))) for own in found]
    assert all(0 < own.lower <= own.median <= own.upper for own in rows)

    text = (out / "benchmark.md").read_text()
    tables = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|") and "×" in line]
    header, *lines = [[cell.strip() for cell in line] for line in tables]
    assert header == ["tokens × sentences", *MODELS]
    expected = []
    for start in range(0, len(rows), len(MODELS)):
        baseline, *others = rows[start : start + len(MODELS)]
        cells = [f"{own}, {own.verdict(baseline)}" for own in others]
        expected.append([f"{found[start]['length']} × {found[start]['sentences']}", str(baseline), *cells])
    assert [line for line in lines if line != header] == expected
    assert all(f"- {fact}: " in text for fact in ("Machine", "Commit", "Command"))


def test_verdict_needs_quartiles_that_do_not_overlap(script: ModuleType) -> None:
    baseline, nothing = row(script, 2.0, 1.5, 2.5), row(script, *[math.nan] * 3)
    assert row(script, 1.2, 1.0, 1.4).verdict(baseline) == "faster"
    assert row(script, 1.2, 1.0, 1.5).verdict(baseline) == "–"
    assert row(script, 2.7, 2.5, 2.9).verdict(baseline) == "–"
    assert row(script, 2.7, 2.6, 2.9).verdict(baseline) == "slower"
    assert nothing.verdict(baseline) == baseline.verdict(nothing) == "–"
    assert str(nothing) == "out of memory"
    assert str(row(script, 0.1234, 0.12, 1.234)) == "0.123 (0.120–1.23)"


def test_contenders_take_turns_and_memory_may_end(script: ModuleType) -> None:
    done: list[str] = []

    def make(name: str, fits: int) -> object:
        def run(state: dict[str, int]) -> None:
            assert state == {"first": 1}
            state["second"] = 2
            if done.count(name) == fits:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            done.append(name)

        return run, {"first": 1}

    seconds = script.in_turn(make, {"a": ("a", 9), "b": ("b", 2), "c": ("c", 9)}, 4)
    assert "".join(done) == "abc" + "bca" + "ca" + "ac"
    assert {name: [math.isnan(x) for x in own] for name, own in seconds.items()} == {
        "a": [False] * 4,
        "b": [False, False, True, True],
        "c": [False] * 4,
    }


@pytest.mark.parametrize("arch", ["transformer", "linformer_transformer", "two_level_transformer"])
@torch.no_grad()
def test_steps_of_decoding_continue_the_prefix(script: ModuleType, words: Dictionary, arch: str) -> None:
    """The state filled at once is that of a search, and a step computes one position."""
    flags = ["--arch", arch, *SIZES.split(), "--max-source-positions", "40", "--max-target-positions", "40"]
    if arch != "transformer":
        flags += [*ALL_PLACES, "--linformer-k", "8"]
    if arch == "two_level_transformer":  # short windows and blocks, so that there are two levels
        flags += ["--linformer-exact-below", str(SHORT["exact_below"])]
    model = script.build(flags, words).double()
    model.make_generation_fast_(need_attn=False)
    source, target = torch.randint(4, len(words), (2, 2, 40))
    whole, _ = model(source, None, target)
    run, filled = script.translation(model, source, target, half=False)
    outputs: list[torch.Tensor] = []
    model.decoder.register_forward_hook(lambda module, given, output: outputs.append(output[0]))
    run(filled)
    assert [tuple(x.shape) for x in outputs] == [(2, 1, len(words))] * script.STEPS
    near = 1e-5 if arch == "transformer" else 1e-9  # fairseq's softmax is in float32, whatever its input
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole[:, -script.STEPS :], rtol=near, atol=near)


def test_training_lowers_the_loss(script: ModuleType, words: Dictionary) -> None:
    model = script.build(["--arch", "transformer", *SIZES.split()], words)
    source, target = torch.randint(4, len(words), (2, 2, 16))
    run, _ = script.training(model, source, target, half=False)

    @torch.no_grad()
    def likelihood() -> torch.Tensor:
        model.eval()
        logits, _ = model(source, None, target.roll(1, dims=1))
        model.train()
        return logits.log_softmax(-1).gather(2, target[..., None]).sum()

    first = likelihood()
    for _ in range(20):
        run({})
    assert likelihood() > first
    assert all(x.grad is None for x in model.parameters())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--k", "0"], "argument --k: '0' is not a whole number from 1 on"),
        (["--k", "64"], "--linformer-k 64 is larger than --max-source-pos"),
        (["--arch", "no_such"], "argument --arch: invalid choice: 'no_such'"),
        (["--arch", "lstm"], "argument --arch: invalid choice: 'lstm'"),
        (["--lengths", "100"], "--lengths 100 is longer than a batch: choose --tokens 100 or more."),
        (["--lengths", "8"], "argument --lengths: '8' is not a whole number above 8"),
        (["--repeats", "2"], "argument --repeats: '2' is not 3 or more"),
        (["--flags", "--no-such-flag 3"], "unrecognized arguments: --no-such-flag 3"),
        (["--flags", "--encoder-attention-heads 3"], "embed_dim must be divisible by"),
        (["--dtype", "float16"], "--dtype float16 would need a scaled loss in training"),
        pytest.param(
            ["--device", "cuda"],
            "--device cuda needs a GPU that torch sees",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    script: ModuleType, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        script.main([*TINY, *arguments, "--out", str(tmp_path)])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_refusal_has_status_2(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--out", tmp_path, *TINY, "--k", "0"]
    said = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert said.returncode == 2
    assert said.stderr.startswith("error: argument --k")
    assert said.stderr.count("\n") == 1
