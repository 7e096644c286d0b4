"""Checkpoints are averaged, or refused in one sentence."""

import collections
import resource
from argparse import Namespace
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.average import average, main, newest
from linformer_fairseq.cli.errors import UserError
from tests.models.toy import toy_args, toy_model
from tests.test_checkpoints import Smuggled

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Save = Callable[..., Path]


@pytest.fixture(scope="module")
def torch_that_averages() -> None:
    if not hasattr(torch.serialization, "add_safe_globals"):
        pytest.skip("averaging needs torch 2.4")


@pytest.fixture
def save(tmp_path: Path, torch_that_averages: None) -> Save:
    """Returns a function that saves what fairseq-train saves; `more` overrides parts of it."""

    def save(name: str, model: dict[str, Tensor], flags: Namespace | dict[str, Any] | None = None, **more: Any) -> Path:
        state = {
            "args": None,
            "cfg": {"model": flags or toy_args(), "task": {"_name": "translation"}},
            "model": collections.OrderedDict(model),
            "criterion": None,
            "optimizer_history": [{"num_updates": len(name)}],
            "task_state": {},
            "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 1.5},
            "last_optimizer_state": {"exp_avg": torch.ones(1000)},
            **more,
        }
        path = tmp_path / name
        torch.save(state, path)
        return path

    return save


def load(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=True)


@st.composite
def models(draw: st.DrawFn) -> list[dict[str, Tensor]]:
    """Draws a few models of the same names, shapes and types."""
    kinds = [(draw(st.sampled_from(TYPES)), draw(st.lists(st.integers(0, 3), max_size=3))) for _ in range(3)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    scale = draw(st.sampled_from([1e-4, 1.0, 3e4]))  # 3e4 and 3e4 are infinite in half precision
    number = draw(st.integers(1, 5))

    def tensor(kind: torch.dtype, shape: list[int]) -> Tensor:
        return ((2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1) * scale).to(kind)

    return [{f"w{i}": tensor(*kind) for i, kind in enumerate(kinds)} for _ in range(number)]


@pytest.mark.usefixtures("torch_that_averages")
@given(models())
def test_mean_of_each_number(tmp_path_factory: pytest.TempPathFactory, models: list[dict[str, Tensor]]) -> None:
    """The mean is the exact one, rounded once; the mean of seven copies of one model is that model."""
    folder = tmp_path_factory.mktemp("mean")
    paths = [folder / f"{i}.pt" for i in range(len(models))]
    for path, model in zip(paths, models, strict=True):
        torch.save({"model": model}, path)
    average(paths, folder / "out.pt")
    average(7 * paths[:1], folder / "same.pt")
    same = load(folder / "same.pt")["model"]
    for name, mean in load(folder / "out.pt")["model"].items():
        assert torch.equal(same[name], models[0][name]) or mean.dtype == torch.float64
        assert mean.dtype == same[name].dtype == models[0][name].dtype
        assert mean.shape == models[0][name].shape
        columns = zip(*(model[name].flatten().tolist() for model in models), strict=True)
        exact = [float(sum(map(Fraction, column)) / len(models)) for column in columns]
        tolerance = torch.finfo(mean.dtype)
        torch.testing.assert_close(
            mean.flatten().double(),
            torch.tensor(exact, dtype=torch.float64),
            rtol=tolerance.eps,
            atol=tolerance.tiny if mean.dtype != torch.float64 else 1e-10,  # of the sum's own rounding
        )


def test_model_of_the_mean_parameters(save: Save, tmp_path: Path) -> None:
    """Tied embeddings and projections are averaged and saved once."""
    flags = {"linformer_k": "4", "linformer_sharing": "layerwise"}
    trained = [toy_model(**flags) for _ in range(3)]
    for step, model in enumerate(trained):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=step)
    paths = [save(f"{step}.pt", model.state_dict(), toy_args(**flags)) for step, model in enumerate(trained)]
    average(paths, tmp_path / "mean.pt")
    state = load(tmp_path / "mean.pt")["model"]
    fresh = toy_model(**flags)
    fresh.load_state_dict(state, strict=True)
    for name, parameter in fresh.named_parameters():
        torch.testing.assert_close(parameter, sum(dict(model.named_parameters())[name] for model in trained) / 3)
    distinct = [{tensor.data_ptr() for tensor in model.values()} for model in (state, load(paths[0])["model"])]
    assert len(distinct[0]) == len(distinct[1]) < len(state)

    tied = torch.ones(2)  # in the last checkpoint alone
    paths = [save("1.pt", {"a": torch.zeros(2), "b": torch.full((2,), 3.0)}), save("2.pt", {"a": tied, "b": tied})]
    average(paths, tmp_path / "mean.pt")
    mean = load(tmp_path / "mean.pt")["model"]
    assert (mean["a"].tolist(), mean["b"].tolist()) == ([0.5, 0.5], [2.0, 2.0])


def test_the_rest_is_that_of_the_last_without_its_optimiser(save: Save, tmp_path: Path) -> None:
    counters = [torch.tensor([step]) for step in (4, 9)]
    masks = [torch.tensor([True]), torch.tensor([False])]
    paths = [
        save(f"{'x' * (i + 1)}.pt", {"w": torch.ones(1), "n": counters[i], "m": masks[i]}, task_state={"step": i})
        for i in range(2)
    ]
    average(paths, tmp_path / "mean.pt")
    mean, last = load(tmp_path / "mean.pt"), load(paths[1])
    assert "last_optimizer_state" not in mean
    for name in last.keys() - {"last_optimizer_state", "model"}:
        assert mean[name] == last[name], name
    assert (mean["model"]["n"].item(), mean["model"]["m"].item()) == (9, False)
    assert mean["model"]["n"].dtype == torch.int64


def refuse(checkpoints: list[Path], output: Path) -> str:
    """Returns the one sentence of a refusal, which must leave no output, not even a part of one."""
    before = set(output.parent.iterdir()) if output.parent.is_dir() else None
    with pytest.raises(UserError, match=r"^[^\n]*\.$") as refusal:
        average(checkpoints, output)
    assert before is None or set(output.parent.iterdir()) == before
    return str(refusal.value)


def test_files_that_are_no_checkpoint(save: Save, tmp_path: Path) -> None:
    good, bad, out = save("good.pt", {"w": torch.ones(9)}), tmp_path / "bad.pt", tmp_path / "out.pt"
    whole = good.read_bytes()
    middle = len(whole) // 2
    hole = whole[:200] + bytes(300) + whole[500:]
    for content in (b"", b"checkpoint", b"%PDF-1.7 and so on" * 100, whole[:middle], whole[middle:], hole):
        bad.write_bytes(content)
        assert "bad.pt is not a checkpoint, or is damaged" in refuse([good, bad], out)
    for value in ({"weights": torch.ones(1)}, [1], {"model": {}}, {"model": {"w": 1}}):
        torch.save(value, bad)
        assert "bad.pt holds no model" in refuse([good, bad], out)
    assert "nowhere.pt is missing" in refuse([good, tmp_path / "nowhere.pt"], out)
    assert "is not a file" in refuse([tmp_path], out)
    assert "There is nothing to average" in refuse([], out)


def test_code_in_a_checkpoint_is_refused_and_not_run(save: Save, tmp_path: Path) -> None:
    good = save("good.pt", {"w": torch.ones(1)})
    for place in ("extra_state", "last_optimizer_state"):
        bad = save("bad.pt", {"w": torch.ones(1)}, **{place: Smuggled(tmp_path / "ran")})
        for checkpoints in ([bad], [good, bad], [bad, good]):
            sentence = refuse(checkpoints, tmp_path / "out.pt")
            assert "bad.pt is refused by torch's safe loader: it asks for posix.system, which may run code" in sentence
    assert not (tmp_path / "ran").exists()


def test_other_tensors(save: Save, tmp_path: Path) -> None:
    model = {"a": torch.ones(2, 3), "b": torch.ones(1)}
    for other, said in (
        ({"a": model["a"]}, "parameter b is absent, not (1,)"),
        ({**model, "c": torch.ones(5)}, "parameter c is (5,), not absent"),
        ({**model, "a": torch.ones(3, 2)}, "parameter a is (3, 2), not (2, 3)"),
        ({**model, "b": torch.ones(1, dtype=torch.int32)}, "parameter b is (1,) of torch.int32, not (1,)"),
    ):
        paths = [save("1.pt", model), save("2.pt", other)]
        assert f"2.pt is of another model than {paths[0]}: {said}; average" in refuse(paths, tmp_path / "out.pt")


def test_other_settings(save: Save, tmp_path: Path) -> None:
    """Flags are compared in a namespace, in hydra's form and in an old fairseq's `args`; learning rates may differ."""
    weights = {"w": torch.ones(1)}
    for flag, value in (
        ("linformer_mask_empty_slots", True),
        ("arch", "linformer_transformer_tiny"),
        ("encoder_attention_heads", 4),
        ("decoder_normalize_before", True),
        ("activation_fn", "gelu"),
    ):
        ours, theirs = toy_args(), toy_args()
        setattr(theirs, flag, value)
        first = save("1.pt", weights, ours)
        said = f"2.pt is of another model than {first}: {flag} is {value}, not {getattr(ours, flag)};"
        for form in ({"flags": theirs}, {"flags": vars(theirs)}, {"cfg": None, "args": theirs}):
            assert said in refuse([first, save("2.pt", weights, **form)], tmp_path / "out.pt")

    flags = [toy_args(lr=[0.1], fp16=True), toy_args(lr=[0.2], save_dir="elsewhere", fp16=False)]
    paths = [
        save("1.pt", {"w": torch.full((1,), 2.0, dtype=torch.float16)}, flags[0]),
        save("2.pt", {"w": torch.full((1,), 3.0)}, flags[1]),
        save("3.pt", {"w": torch.full((1,), 7.0)}, cfg=None, args=flags[1]),
    ]
    average(paths, tmp_path / "mean.pt")
    assert load(tmp_path / "mean.pt")["model"]["w"].tolist() == [4.0]


def test_outputs_that_cannot_be(save: Save, tmp_path: Path) -> None:
    path = save("1.pt", {"w": torch.ones(50_000)})
    before = path.read_bytes()
    assert "cannot be the output too" in refuse([path], tmp_path / "." / "1.pt")
    assert path.read_bytes() == before
    assert "cannot be written: name a file in a folder" in refuse([path], tmp_path / "nowhere" / "out.pt")
    assert "cannot be written: name a file in a folder" in refuse([path], tmp_path)


def test_full_disk(save: Save, tmp_path: Path) -> None:
    path, out = save("1.pt", {"w": torch.ones(50_000)}), tmp_path / "out.pt"
    out.write_text("the one before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"out\.pt could not be written whole: free some space on its disk\.$"):
            average([path], out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert out.read_text() == "the one before"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["1.pt", "out.pt"]


def test_newest(tmp_path: Path) -> None:
    names = [
        *("checkpoint_1_900.pt", "checkpoint_2_1000.pt", "checkpoint_2_1100.pt", "checkpoint_10_1200.pt"),
        *("checkpoint1.pt", "checkpoint2.pt", "checkpoint10.pt", "checkpoint11.pt"),
        *("checkpoint_best.pt", "checkpoint_last.pt", "checkpoint.best_loss_2.5.pt"),
        *("checkpoint_3_1300.pt.tmp", "checkpoint_3_1300-shard0.pt", "my_checkpoint_3_1300.pt"),
    ]
    for name in reversed(names):
        (tmp_path / name).touch()
    assert [path.name for path in newest(tmp_path, 3)] == names[1:4]
    assert newest(tmp_path, 4) == [tmp_path / name for name in names[:4]]
    with pytest.raises(UserError) as refusal:
        newest(tmp_path, 5)
    assert str(refusal.value) == (
        f"{tmp_path} has 4 of the 5 checkpoints to be averaged ({names[0]} to {names[3]}): ask for fewer with --last."
    )
    for name in names[:4]:
        (tmp_path / name).unlink()
    assert [path.name for path in newest(tmp_path, 3)] == names[5:8]
    for name in names[4:8]:
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match="has no checkpoints of epochs or of updates"):
        newest(tmp_path, 1)
    with pytest.raises(UserError, match="nowhere is not a folder"):
        newest(tmp_path / "nowhere", 1)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["a.pt"], "--output"),
        (["--output", "out.pt", "--last", "3"], "both --folder and --last"),
        (["a.pt", "--output", "out.pt", "--folder", ".", "--last", "3"], "either checkpoints, or both"),
        (["--output", "out.pt", "--folder", ".", "--last", "0"], "whole number from 1 on"),
    ],
)
def test_command_lines(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert said in output.err
    assert output.err.count("\n") == 1
