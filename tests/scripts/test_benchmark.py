"""The script that times whole models."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fairseq.data import Dictionary

from tests.fairseq_commands import ROOT, environment

SCRIPT = ROOT / "scripts" / "benchmark.py"
TINY = [
    *("--lengths", "16", "40", "--tokens", "80", "--k", "4", "8", "--vocabulary", "20", "--threads", "1"),
    "--flags",
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--decoder-layers 2 --decoder-attention-heads 2 --share-all-embeddings",
]
MODELS = [
    "transformer",
    *(f"{kind}_transformer, k = {k}, all attention" for kind in ("linformer", "two_level") for k in (4, 8)),
]
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
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns what the script wrote."""
    out = tmp_path_factory.mktemp("benchmark") / "a folder"
    command = [sys.executable, SCRIPT, "--out", out, "--repeats", "3", *TINY]
    subprocess.run(command, cwd=out.parent, env=environment(), check=True)
    return out


def refusal(script: ModuleType, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as error:
        script.main(["--out", "/nowhere", *TINY, *arguments])
    assert error.value.code == 2
    return capsys.readouterr().err


def test_table_has_the_figures_of_the_csv(script: ModuleType, out: Path) -> None:
    assert {path.name for path in out.iterdir()} == {"benchmark.csv", "benchmark.md", "benchmark.png"}
    with open(out / "benchmark.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = [(row["part"], row["length"], row["sentences"], row["model"]) for row in rows]
    assert keys == [(part, *size, name) for part in PARTS for size in (("16", "5"), ("40", "2")) for name in MODELS]
    spreads = [
        script.Spread(*(float(row[name]) for name in ("seconds", "lower_quartile", "upper_quartile"))) for row in rows
    ]
    assert all(0 < own.lower <= own.median <= own.upper for own in spreads)
    assert all(row["repeats"] == "3" and not row["note"] for row in rows)

    text = (out / "benchmark.md").read_text()
    tables = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|") and "×" in line]
    header, *lines = [[cell.strip() for cell in line] for line in tables]
    assert header == ["tokens × sentences", *MODELS]
    expected = []
    for start in range(0, len(rows), len(MODELS)):
        baseline, *others = spreads[start : start + len(MODELS)]
        cells = [f"{script.shown(own)}, {script.verdict(own, baseline)}" for own in others]
        expected.append([f"{rows[start]['length']} × {rows[start]['sentences']}", script.shown(baseline), *cells])
    assert [line for line in lines if line != header] == expected
    assert all(f"- {fact}: " in text for fact in ("Machine", "Commit", "Command"))


def test_verdict_needs_quartiles_that_do_not_overlap(script: ModuleType) -> None:
    baseline = script.Spread(2.0, 1.5, 2.5)
    assert script.verdict(script.Spread(1.2, 1.0, 1.4), baseline) == "faster"
    assert script.verdict(script.Spread(1.2, 1.0, 1.5), baseline) == "–"
    assert script.verdict(script.Spread(2.7, 2.5, 2.9), baseline) == "–"
    assert script.verdict(script.Spread(2.7, 2.6, 2.9), baseline) == "slower"
    assert script.verdict(None, baseline) == "–"
    assert script.verdict(baseline, None) == "–"
    assert script.spread([3.0, 1.0, 2.0, 5.0, 4.0]) == (3.0, 2.0, 4.0)
    assert script.shown(script.Spread(0.1234, 0.12, 123.4)) == "0.123 (0.120–123)"


def test_contenders_take_turns_and_drop_out_where_memory_ends(script: ModuleType) -> None:
    ready: list[str] = []
    done: list[str] = []

    def contender(name: str, fits: int) -> object:
        def make_ready() -> object:
            ready.append(name)
            return run

        def run() -> None:
            if done.count(name) == fits:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            done.append(name)

        return make_ready

    makers = {name: lambda name=name, fits=fits: contender(name, fits) for name, fits in (("a", 9), ("b", 2), ("c", 9))}
    seconds = script.in_turn(makers, 3, "cpu")
    assert "".join(done) == "abc" + "bca" + "ca" + "ac"
    assert "".join(ready) == "abc" + "bca" + "cab" + "ac"
    assert {name: len(own) for name, own in seconds.items()} == {"a": 3, "b": 0, "c": 3}
    row = script.Row("training", "b", 8, 1, None)
    assert script.shown(row.time) == "out of memory"


@pytest.mark.parametrize("arch", ["transformer", "linformer_transformer", "two_level_transformer"])
@torch.no_grad()
def test_steps_of_decoding_continue_the_prefix(script: ModuleType, arch: str) -> None:
    """The state filled at once is that of a search, and a step computes one position."""
    # short windows and blocks, so that two levels have some
    two_levels = "--linformer-exact-below 0" if arch == "two_level_transformer" else ""
    args = script.parse(["--out", "unused", *TINY, "--arch", arch, "--k", "8"])
    args.flags += two_levels.split()
    [settings] = script.fairseq_settings(args).values()
    words = dictionary()
    model, task = script.build(settings, words, seed=1)
    model.double()
    model.make_generation_fast_(need_attn=False)
    source, target = script.random_tokens(4, 40, words, seed=1).split(2)
    case = script.Case(model, task, source, target, torch.float64)
    whole, _ = model(source, case.lengths, target)
    outputs: list[torch.Tensor] = []
    hook = model.decoder.register_forward_hook(lambda module, given, output: outputs.append(output[0]))
    contender = script.translation(case)
    del outputs[:]  # of the prefix
    for run in range(2):
        contender()()
        assert [tuple(x.shape) for x in outputs] == [(2, 1, len(words))] * script.STEPS * (run + 1)
    hook.remove()
    steps = torch.cat(outputs, dim=1)
    last = whole[:, -script.STEPS :]
    near = 1e-5 if arch == "transformer" else 1e-9  # fairseq's softmax is in float32, whatever its input
    torch.testing.assert_close(steps, torch.cat([last, last], dim=1), rtol=near, atol=near)


def test_training_lowers_the_loss(script: ModuleType) -> None:
    [settings] = script.fairseq_settings(script.parse(["--out", "unused", *TINY, "--arch", "transformer"])).values()
    words = dictionary()
    model, task = script.build(settings, words, seed=1)
    source, target = script.random_tokens(4, 16, words, seed=1).split(2)
    run = script.training(script.Case(model, task, source, target, torch.float32))()

    @torch.no_grad()
    def likelihood() -> torch.Tensor:
        model.eval()
        logits, _ = model(source, torch.full((2,), 16), target.roll(1, dims=1))
        model.train()
        return logits.log_softmax(-1).gather(2, target[..., None]).sum()

    first = likelihood()
    for _ in range(20):
        run()
    assert likelihood() > first
    assert all(x.grad is None for x in model.parameters())


def test_same_seed_gives_the_same_tokens(script: ModuleType) -> None:
    words = dictionary()
    one, same, other = (script.random_tokens(3, 12, words, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one[:, :-1].ge(words.nspecial).all()
    assert one[:, -1].eq(words.eos()).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--k", "0"], "argument --k: must be a whole number of at least 1, not 0"),
        (["--k", "64"], "linformer_transformer cannot be built: --linformer-k 64 is larger than --max-source-pos"),
        (["--arch", "no_such"], "--arch no_such: neither fairseq nor this package has such a Transformer for transl"),
        (["--arch", "lstm"], "--arch lstm: neither fairseq nor this package has such a Transformer for translation"),
        (["--lengths", "100"], "--lengths 100 is longer than a batch: choose --tokens 100 or more"),
        (["--lengths", "8"], "--lengths 8 is too short"),
        (["--repeats", "2"], "--repeats 2 is too few for quartiles: choose 3 or more"),
        (["--flags", "--no-such-flag 3"], "unrecognized arguments: --no-such-flag 3"),
        (["--flags", "--encoder-attention-heads 3"], "transformer cannot be built: embed_dim must be divisible by"),
        (["--dtype", "float16"], "--dtype float16 is for --device cuda --parts encoder translation"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    said = refusal(script, capsys, *arguments, "--out", str(tmp_path))
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert sentence in said
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(script: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert f"--out {file}: " in refusal(script, capsys, "--out", str(file))


def dictionary() -> Dictionary:
    words = Dictionary()
    for word in range(20):
        words.add_symbol(f"w{word}")
    return words
