"""The script that times whole models and attention modules."""

import csv
import math
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.modules import CAUSAL_KINDS, CROSS_KINDS
from tests.fairseq_commands import ALL_PLACES, ROOT, SHORT, environment, run_module
from tests.models.toy import toy_model

SCRIPT = ROOT / "scripts" / "benchmark.py"
SIZES = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--decoder-layers 2 --decoder-attention-heads 2 --share-all-embeddings"
)
TINY = [
    *("--lengths", "16", "40", "--tokens", "80", "--k", "4", "8", "--vocabulary", "20", "--threads", "1"),
    *("--repeats", "3", "--flags", SIZES),
]
MODELS = [
    "transformer",
    "full_transformer",
    *(f"{kind}_transformer, k = {k}" for kind in ("linformer", "two_level") for k in (4, 8)),
]
PARTS = ["encoder", "translation", "training"]


MODULES = [
    *("--parts", "modules", "--lengths", "16", "40", "--tokens", "80", "--k", "4", "24", "--dim", "16", "--heads", "2"),
    *("--threads", "1", "--repeats", "3"),
]
KIND = """
import torch
from linformer_fairseq.modules import WindowAttention
from linformer_fairseq.modules.registry import register_attention
from linformer_fairseq.modules.window_attention import WindowOptions

@register_attention("mine", WindowOptions, self_attention_only=True)
class Mine(WindowAttention):
    pass

@register_attention("broken", WindowOptions, self_attention_only=True)
class Broken(WindowAttention):
    def attend(self, call):
        return torch.full_like(call.query, torch.nan), None
"""
"""A package with two kinds of attention, one of which gives no numbers."""


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmark")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns what the script wrote."""
    out = tmp_path_factory.mktemp("benchmark") / "a folder"
    run_module("scripts.benchmark", "--out", out, *TINY).ok()
    return out


def settings(**changes: object) -> Namespace:
    """Returns a command line of float64, as far as the functions that build and start what is timed read it."""
    sizes = {"dim": 16, "heads": 2, "k": [8], "lengths": [40], "tokens": 80, "vocabulary": 20, "shortest": None}
    own = {"only": None, "device": "cpu", "dtype": "float64", "out": Path("nowhere")}
    return Namespace(**{**sizes, **own, **changes})


def built(script: ModuleType, *flags: str, trains: bool = False) -> Any:
    return script.build([*flags, *SIZES.split(), *script.OPTIMIZER], settings(), trains)


def rows_of(out: Path) -> list[dict[str, str]]:
    with open(out / "benchmark.csv", newline="") as file:
        return list(csv.DictReader(file))


def tables_of(text: str) -> list[list[list[str]]]:
    """Returns the tables of a report, line by line and cell by cell."""
    parts = [part.split("\n\n")[1].splitlines() for part in text.split("\n## ")[1:]]
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in lines] for lines in parts]


def row(script: ModuleType, *times: float, peak: float = 1.5e6, work: tuple[float, float] = 2 * (math.nan,)) -> Any:
    return script.Row("training", "a model", 8, 1, 8, *times, peak, *work)


def same_figures(script: ModuleType, out: Path) -> None:
    """Asserts that the tables have the figures of the CSV, beside those of the first contender."""
    found = [
        script.Row(*own[:2], *map(int, own[2:5]), *map(float, own[5:]))
        for own in map(list, map(dict.values, rows_of(out)))
    ]
    assert all(0 < own.lower <= own.median <= own.upper for own in found)
    assert all(own.tokens == 80 and math.isnan(own.kernels) == math.isnan(own.busy) for own in found)
    assert all(math.isnan(own.peak_bytes) if own.part == "search" else own.peak_bytes > 0 for own in found)
    tables = tables_of((out / "benchmark.md").read_text())
    for part, (header, _, *lines) in zip(dict.fromkeys(own.part for own in found), tables, strict=True):
        cells = {(own.name, own.length): own for own in found if own.part == part}
        names = list(dict.fromkeys(name for name, _ in cells))
        assert header == ["", "16 × 5", "40 × 2"]
        assert lines == [
            [name, *(own.beside(cells[names[0], n]) if (own := cells.get((name, n))) else "–" for n in (16, 40))]
            for name in names
        ]


def test_figures_of_models(script: ModuleType, out: Path) -> None:
    assert {path.name for path in out.iterdir()} == {"benchmark.csv", "benchmark.md", "benchmark.png"}
    keys = [(own["part"], own["length"], own["sentences"], own["name"]) for own in rows_of(out)]
    assert keys == [(part, *size, name) for part in PARTS for size in (("16", "5"), ("40", "2")) for name in MODELS]
    same_figures(script, out)
    text = (out / "benchmark.md").read_text()
    assert all(f"- {fact}: " in text for fact in ("Machine", "Commit", "Command"))


def test_a_search_on_a_processor_is_timed_without_its_memory(script: ModuleType, tmp_path: Path) -> None:
    run_module("scripts.benchmark", "--out", tmp_path / "out", *TINY, "--parts", "search").ok()
    assert {own["part"] for own in rows_of(tmp_path / "out")} == {"search"}
    same_figures(script, tmp_path / "out")
    assert "MB" not in (tmp_path / "out/benchmark.md").read_text()
    assert (tmp_path / "out/benchmark.png").stat().st_size > 0


def test_figures_of_modules(script: ModuleType, tmp_path: Path) -> None:
    """Every contender, length and part has its figures but for a k that is larger than the length, as is said once."""
    only = ["--only", "full", "fairseq", "linear", "two-level", "linformer"]
    said = run_module("scripts.benchmark", "--out", tmp_path / "out", *MODULES, *only).ok()
    found = [(own["part"], own["length"], own["name"]) for own in rows_of(tmp_path / "out")]
    two_level = ["two-level, k = 4", "two-level, k = 24"]
    names = {"16": ["linear, k = 4", *two_level], "40": ["linear, k = 4", "linear, k = 24", *two_level]}
    packages = ["linformer, k = 4", "linformer, k = 24"] if find_spec("linformer") else []
    assert found == [
        (part, length, name)
        for part in script.MODULES
        for length, kinds in names.items()
        for name in ["full", "fairseq", *kinds, *(packages if part.startswith("self") else [])]
    ]
    same_figures(script, tmp_path / "out")
    for place in ("self", "cross", "causal"):
        assert said.count(f"{place}, linear is left out: --linformer-k 24 is larger than") == 1


def test_every_kind_is_a_contender(script: ModuleType) -> None:
    """Those of the registry, by the names that they have there, as new models have them."""
    for place, wanted in (("self", CROSS_KINDS), ("cross", CROSS_KINDS), ("causal", CAUSAL_KINDS)):
        built = script.attentions(place, 2048, settings(k=[16]))
        assert {name.partition(",")[0] for name in built} >= {"fairseq", *wanted}
        script.check(place, settings())
        sizes = {"max_source_positions": 2048, "max_target_positions": 2048, "linformer_k": "16"}
        model = toy_model("two_level_transformer", linformer_attention="encoder,cross,decoder", **sizes)
        layer = model.decoder.layers[0]
        attention = {"self": model.encoder.layers[0].self_attn, "cross": layer.encoder_attn, "causal": layer.self_attn}
        assert built["two-level, k = 16"][0].extra_repr() == attention[place].extra_repr()


def test_kinds_of_another_package(script: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "more_kinds"
    folder.mkdir()
    (folder / "__init__.py").write_text(KIND)
    command = [
        "scripts.benchmark",
        "--out",
        tmp_path / "out",
        *MODULES,
        "--parts",
        "self-forward",
        "--user-dir",
        folder,
    ]
    run_module(*command, "--only", "full", "mine").ok()
    assert {own["name"] for own in rows_of(tmp_path / "out")} == {"full", "mine"}
    refused = run_module(*command, "--only", "broken", "--out", tmp_path / "other")
    assert refused.status == 2
    assert refused.sentence().startswith("error: self, broken: its output is no attention's, so nothing was timed")
    assert not list((tmp_path / "other").iterdir())


def test_a_missing_package_is_left_out(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "linformer", None)  # as Python documents it
    assert script.attentions("self", 40, settings(only=["full", "linformer"])).keys() == {"full"}
    assert "self, linformer is left out: " in capsys.readouterr().out


@pytest.mark.parametrize("place", ["self", "cross", "causal"])
def test_what_is_timed(script: ModuleType, place: str) -> None:
    """A pass forward makes no graph; a backward gives the gradients of inputs and weights, and keeps none."""
    args = settings(only=["full", "fairseq", "two-level", "linear"])
    contenders = script.attentions(place, 40, args)
    assert len(contenders) == 4
    contenders["full"][0].load_state_dict(contenders["fairseq"][0].state_dict())
    gradients = {}
    for name, contender in contenders.items():
        with torch.no_grad():
            out = script.start(f"{place}-forward", contender, 40, args)[0]({})
        assert not out.requires_grad
        assert sorted(out.shape) == [2, 16, 40]
        found = script.start(f"{place}-training", contender, 40, args)[0]({})
        inputs = 2 if place == "cross" else 1
        assert sorted(x.shape for x in found) == sorted(
            [*inputs * [out.shape], *(x.shape for x in contender[0].parameters())]
        )
        assert all(x.grad is None for x in contender[0].parameters())
        gradients[name] = sorted(x.abs().sum().item() for x in found)
    assert gradients["full"] == pytest.approx(gradients["fairseq"], rel=1e-4, abs=1e-4)


@torch.no_grad()
def test_steps_of_modules_continue_the_prefix(script: ModuleType) -> None:
    args = settings()
    for name, (module, call, axis) in script.attentions("causal", 40, args).items():
        run, filled = script.start("causal-step", (module, call, axis), 40, args)
        torch.manual_seed(1)
        x = torch.randn(3, 2, 40, 16, dtype=torch.float64)[0].transpose(0, 1 - axis)
        steps = torch.cat(run(filled), axis)
        assert steps.size(axis) == script.STEPS, name
        near = 1e-5 if name == "fairseq" else 1e-9  # its softmax is in float32
        torch.testing.assert_close(steps, call(x, x).narrow(axis, 32, 8), rtol=near, atol=near)


def test_peak_of_memory(script: ModuleType) -> None:
    """Two tensors of a thousand numbers at a time, whatever is there before and is given back."""
    state = {"there": torch.zeros(10**6)}

    def run(state: dict[str, torch.Tensor]) -> None:
        one = torch.zeros(1000)
        two = one + one
        del one
        two.add_(two * two)

    assert script.peak(run, state, "cpu") == 8000


@pytest.mark.gpu
def test_modules_on_a_gpu(script: ModuleType, tmp_path: Path) -> None:
    script.main([*MODULES, "--out", str(tmp_path), "--device", "cuda", "--dtype", "float16"])
    same_figures(script, tmp_path)
    assert all(float(own["kernels"]) > 1 for own in rows_of(tmp_path))


@pytest.mark.gpu
def test_training_on_a_gpu(script: ModuleType, tmp_path: Path) -> None:
    modes = ["--training=--fp16", "--training=--memory-efficient-fp16", "--training=--amp", "--training=--seed 2"]
    script.main([*TINY, "--parts", "training", *modes, "--out", str(tmp_path), "--device", "cuda"])
    same_figures(script, tmp_path)
    assert all(0 < float(own["busy"]) < float(own["upper"]) for own in rows_of(tmp_path))
    assert all(float(own["peak_bytes"]) > 4 * 80 * 24 for own in rows_of(tmp_path))  # probabilities of all words
    assert len(rows_of(tmp_path)) == 2 * 4 * len(MODELS)


def test_figures_beside_a_baseline(script: ModuleType) -> None:
    """Bold needs quartiles that do not overlap."""
    baseline, nothing = row(script, 0.2, 0.15, 0.25), row(script, *[math.nan] * 3, peak=math.nan)
    assert row(script, 0.12, 0.1, 0.14).beside(baseline) == "**120 ms, 1.5 MB**"
    assert row(script, 0.12, 0.1, 0.15).beside(baseline) == "≈ 120 ms, 1.5 MB"
    assert row(script, 0.27, 0.25, 0.29).beside(baseline) == "≈ 270 ms, 1.5 MB"
    assert row(script, 27.1234, 27.0, 27.2, peak=12_345_678_901).beside(baseline) == "27,100 ms, 12,300 MB"
    assert row(script, 0.2, 0.15, 0.25, peak=math.nan).beside(None) == "200 ms"
    assert baseline.beside(baseline) == row(script, 0.2, 0.1, 0.3).beside(None) == "200 ms, 1.5 MB"
    assert nothing.beside(baseline) == "out of memory"
    assert baseline.beside(nothing) == "200 ms, 1.5 MB"
    assert str(row(script, 0.2, 0.15, 0.25, work=(0.1234, 3472))) == "200 ms, 123 ms busy, 3,472 kernels, 1.5 MB"


def test_contenders_take_turns_and_memory_may_end(script: ModuleType) -> None:
    done: list[str] = []
    tried: list[str] = []

    def make(name: str, fits: int) -> object:
        def run(state: dict[str, int]) -> None:
            assert state == {"first": 1}
            state["second"] = 2
            tried.append(name)
            if done.count(name) == fits:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            done.append(name)

        return run, {"first": 1}

    found = script.in_turn(make, {"a": ("a", 9), "b": ("b", 2), "c": ("c", 4)}, 4, "cpu")
    # once more for the memory of what did not run out of it before
    assert "".join(tried) == "abc" + "bca" + "cab" + "ac" + "ac"
    assert {name: [math.isnan(x) for x in (*seconds, use.peak_bytes)] for name, (seconds, use) in found.items()} == {
        "a": [False] * 5,
        "b": [False, False, True, True, True],
        "c": [False, False, False, False, True],
    }


def test_a_plot_of_what_ran_out_of_memory(script: ModuleType, tmp_path: Path) -> None:
    rows = [row(script, *[math.nan] * 3, peak=math.nan)]
    script.plot(tmp_path / "benchmark.png", rows, Namespace(parts=["training"], lengths=[8]))
    assert (tmp_path / "benchmark.png").stat().st_size > 0


@pytest.mark.parametrize("arch", ["transformer", "full_transformer", "linformer_transformer", "two_level_transformer"])
@torch.no_grad()
def test_steps_of_decoding_continue_the_prefix(script: ModuleType, arch: str) -> None:
    """The state filled at once is that of a search, and a step computes one position."""
    flags = ["--arch", arch, "--max-source-positions", "40", "--max-target-positions", "40"]
    if arch in ("linformer_transformer", "two_level_transformer"):
        flags += [*ALL_PLACES, "--linformer-k", "8"]
    if arch == "two_level_transformer":  # short windows and blocks, so that there are two levels
        flags += ["--linformer-exact-below", str(SHORT["exact_below"])]
    model = built(script, *flags).double()
    model.make_generation_fast_(need_attn=False)
    batch = script.random_batch("translation", 40, settings(shortest=20))
    whole, _ = model(**batch["net_input"])
    run, filled = script.translation(model, batch)
    outputs: list[torch.Tensor] = []
    model.decoder.register_forward_hook(lambda module, given, output: outputs.append(output[0]))
    run(filled)
    assert [tuple(x.shape) for x in outputs] == [(2, 1, 24)] * script.STEPS
    near = 1e-5 if arch == "transformer" else 1e-9  # fairseq's softmax is in float32, whatever its input
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole[:, -script.STEPS :], rtol=near, atol=near)


@torch.no_grad()
def test_a_search_is_as_long_as_its_source(script: ModuleType) -> None:
    model = built(script, "--arch", "full_transformer")
    run, _ = script.search(model, script.random_batch("search", 16, settings(tokens=32)))
    for hypotheses in run({}):
        assert [len(found["tokens"]) for found in hypotheses] == [16] * 5


def test_training_lowers_the_loss(script: ModuleType) -> None:
    trainer = built(script, "--arch", "transformer", trains=True)
    batch = script.random_batch("training", 16, settings(tokens=32, shortest=9))
    run, _ = script.training(trainer, batch)
    first = trainer.valid_step(batch)["loss"]
    for _ in range(20):
        run({})
    assert trainer.valid_step(batch)["loss"] < first
    assert trainer.get_num_updates() == 20
    assert all(x.grad is None for x in trainer.model.parameters())


def test_several_trainings_are_compared(tmp_path: Path) -> None:
    trainings = ["--training=--optimizer adam", "--training=--clip-norm 0.1"]
    arguments = [*TINY, "--lengths", "40", "--parts", "training", "--arch", "full_transformer", *trainings]
    run_module("scripts.benchmark", "--out", tmp_path, *arguments).ok()
    names = ["full_transformer, --optimizer adam", "full_transformer, --clip-norm 0.1"]
    assert [own["name"] for own in rows_of(tmp_path)] == names
    every = "`--optimizer adam`; `--optimizer fused_adam --adam-betas '(0.9, 0.98)' --clip-norm 0.1`"
    text = (tmp_path / "benchmark.md").read_text()
    assert f"Training: fairseq's trainer, {every}\n" in text
    assert "float32" not in text  # training has a precision of its own


def test_padded_batches(script: ModuleType, tmp_path: Path) -> None:
    """Sources are padded on the left and targets on the right, in training alone, and what is counted are tokens."""
    pad = Dictionary().pad()
    batch = script.random_batch("training", 16, settings(tokens=160, shortest=9))
    source, target = batch["net_input"]["src_tokens"], batch["target"]
    lengths = batch["net_input"]["src_lengths"]
    assert source.shape == target.shape == (10, 16)
    assert 9 <= lengths.min() < lengths.max() == 16
    assert torch.equal(source.eq(pad).int().argmin(1), 16 - lengths)
    assert torch.equal(target.ne(pad).sum(1), lengths)
    assert batch["ntokens"] == lengths.sum() < 160
    other = script.random_batch("translation", 16, settings(tokens=160, shortest=9))
    assert torch.equal(other["net_input"]["src_tokens"], source)
    assert not other["target"].eq(pad).any()
    arguments = [*TINY, "--lengths", "16", "--parts", "encoder", "training", "--arch", "full_transformer"]
    run_module("scripts.benchmark", "--out", tmp_path, *arguments, "--shortest", 9).ok()
    assert {own["sentences"] for own in rows_of(tmp_path)} == {"5"}
    (tokens,) = {int(own["tokens"]) for own in rows_of(tmp_path)}
    assert 5 * 9 <= tokens < 80
    assert "80 target tokens, with padding, as sentences have at least 9:" in (tmp_path / "benchmark.md").read_text()


def test_rows_are_kept_when_a_run_is_cut_short(script: ModuleType, tmp_path: Path) -> None:
    def cut_short() -> Iterator[Any]:
        yield row(script, 0.2, 0.15, 0.25)
        yield row(script, 0.3, 0.3, 0.3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        script.recorded(cut_short(), tmp_path / "benchmark.csv")
    assert [own["median"] for own in rows_of(tmp_path)] == ["0.2", "0.3"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--k", "0"], "argument --k: '0' is not a whole number from 1 on"),
        (["--k", "64"], "--linformer-k 64 is larger than the longest sou"),
        (["--arch", "no_such"], "argument --arch: invalid choice: 'no_such'"),
        (["--arch", "lstm"], "argument --arch: invalid choice: 'lstm'"),
        (["--lengths", "100"], "--lengths 100 is longer than a batch: choose --tokens 100 or more."),
        (["--lengths", "8"], "argument --lengths: '8' is not a whole number above 8"),
        (["--repeats", "2"], "argument --repeats: '2' is not 3 or more"),
        (["--flags", "--no-such-flag 3"], "unrecognized arguments: --no-such-flag 3"),
        (["--flags", "--encoder-attention-heads 3"], "embed_dim must be divisible by"),
        (["--dtype", "float16", "--parts", "training"], "--dtype is for all but training: choose --training"),
        (["--training=--clip-norm 1", "--parts", "encoder"], "--training is for the part training alone"),
        (["--flags", "--layernorm-embedding --amp"], "--amp is for training alone: give it as --training=--amp."),
        (["--training=--bf16"], "--bf16 looks for a TPU in fairseq-train: choose --amp or --fp16."),
        (["--training=--fp16"], "--fp16 needs a GPU in fairseq's trainer: choose --device cuda, or leave it out."),
        (["--training=--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--shortest", "17"], "--shortest 17 is longer than --lengths 16: choose a smaller one."),
        (["--shortest", "9", "--parts", "modules"], "--shortest pads batches of models alone"),
        (["--dim", "10", "--heads", "4"], "--dim 10 is no multiple of --heads 4"),
        (
            ["--only", "nothing"],
            "--only nothing is no attention known here: choose from conv, fairseq, full, key-clusters",
        ),
        (["--parts", "causal-step", "--only", "linformer"], "causal: nothing is left to measure at 16 tokens"),
        (["--user-dir", "nowhere"], "--user-dir nowhere is no Python package: name a folder with an __init__.py."),
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
    said = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert said.returncode == 2
    assert said.stderr.startswith("error: argument --k")
    assert said.stderr.count("\n") == 1
