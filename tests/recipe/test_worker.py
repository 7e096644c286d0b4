"""Processes that train one model or none, started as the recipe starts them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from linformer_fairseq.recipe.launch import WORKER, Machines, train_command
from omegaconf import OmegaConf

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.recipe import worker
from linformer_fairseq.recipe.precision import PRECISIONS
from tests.fairseq_commands import (
    ALL_PLACES,
    ROOT,
    Result,
    environment,
    run_module,
    train_arguments,
    valid_losses,
)
from tests.recipe.scripts import free_port

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


def command(machines: Machines, arguments: list[object], precision: str = "fp32") -> list[str]:
    return train_command(machines, precision, [str(argument) for argument in arguments])


def run_alone(arguments: list[object], precision: str = "fp32") -> Result:
    """One process on one machine."""
    python, option, module, *rest = command(Machines(), arguments, precision)
    assert (python, option) == (sys.executable, "-m")
    return run_module(module, *rest)


def dumping(command: list[str]) -> list[str]:
    """The same command with every process writing its weights."""
    return ["tests.recipe.train_and_dump" if part == WORKER else part for part in command]


def run_together(commands: list[list[str]], gpus: bool = False) -> list[Result]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"} if gpus else environment()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [subprocess.Popen(command, cwd=ROOT, env=env, **pipes) for command in commands]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    return [Result(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def two_machines(first: list[object], second: list[object]) -> list[list[str]]:
    """The commands of two machines that train together with one process each."""
    port = free_port()
    machines = [Machines(1, nodes=2, node_rank=rank, master_addr="127.0.0.1", master_port=port) for rank in range(2)]
    return [command(machine, arguments) for machine, arguments in zip(machines, (first, second), strict=True)]


def words_a_batch(output: str) -> list[float]:
    return [float(words) for words in re.findall(r"\| train \| .* wpb ([\d.]+)", output)]


SHARED = ["--linformer-sharing", "layerwise", "--dropout", 0, *ALL_PLACES]
"""One parameter stands in all layers, on all processes."""


@pytest.mark.slow
def test_two_processes_train_as_one(data: Path, tmp_path: Path) -> None:
    two = tmp_path / "two"
    two.mkdir()
    alone = run_alone(train_arguments(data, tmp_path / "one", *SHARED, "--update-freq", 2)).ok()
    [result] = run_together([dumping(command(Machines(2), train_arguments(data, two, *SHARED)))])
    together = result.ok()
    for rank in range(2):
        assert f"distributed init (rank {rank})" in together
        assert f"distributed init (rank {rank})" not in alone
    assert valid_losses(together) == pytest.approx(valid_losses(alone), abs=1e-3)
    assert words_a_batch(together) == words_a_batch(alone)
    check_weights(two)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_machines_go_on_together(data: Path, tmp_path: Path) -> None:
    before = run_alone(train_arguments(data, tmp_path, *SHARED, "--update-freq", 2)).ok()
    arguments = train_arguments(data, tmp_path, *SHARED, "--max-epoch", 3)
    first, second = run_together(list(map(dumping, two_machines(arguments, arguments))))
    second.ok()
    assert "Loaded checkpoint" in first.ok()
    assert words_a_batch(first.output) == words_a_batch(before)[:1]
    check_weights(tmp_path)


def check_weights(folder: Path) -> None:
    """Both processes hold the same weights, and the layers share theirs."""
    weights = [torch.load(folder / f"weights-of-rank-{rank}.pt") for rank in range(2)]
    trained = [name for name in weights[0] if not name.endswith("_float_tensor")]  # that is never set
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in trained)
    shared = projection_weights(weights[0])
    for place in ("encoder.layers", "decoder.*self_attn", "encoder_attn"):
        copies = [weight for name, weight in shared.items() if re.search(place, name)]
        assert len(copies) == 4
        assert all(torch.equal(copies[0], copy) for copy in copies)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("differs", ["settings", "text"])
def test_machines_that_differ_train_nothing(data: Path, tmp_path: Path, differs: str) -> None:
    """As where the disk that they are to share is not shared; the same folders may be mounted elsewhere."""
    shutil.copytree(data / "bin", tmp_path / "bin")
    if differs == "text":
        with open(tmp_path / "bin" / "dict.en.txt", "a", encoding="utf-8") as words:
            words.write("more 1\n")
    rates = (0.1, 0.2) if differs == "settings" else (0.1, 0.1)
    first = train_arguments(data, tmp_path / "first", "--lr", rates[0])
    second = train_arguments(tmp_path, tmp_path / "second", "--lr", rates[1])
    for result in run_together(two_machines(first, second)):
        assert result.status == 2
        assert "error: The machines were given different settings, or see different text or chec" in result.output
        assert "Traceback" not in result.output
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.parametrize("restore_file", ["checkpoint_last.pt", "elsewhere/1.pt"])
def test_a_checkpoint_that_one_machine_misses_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restore_file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    paths = {"save_dir": str(tmp_path), "restore_file": restore_file}
    cfg = OmegaConf.create({"task": {"data": str(tmp_path)}, "checkpoint": paths})
    without = worker.inputs_on_disk(cfg)
    (tmp_path / restore_file).touch()
    assert worker.inputs_on_disk(cfg) != without


@pytest.mark.slow
def test_a_training_that_is_done_makes_no_update_more(data: Path, tmp_path: Path) -> None:
    """Killed between its last checkpoint and the note that it is done, say."""
    arguments = train_arguments(data, tmp_path, "--max-epoch", 0, "--max-update", 3)
    assert "num_updates: 3 >= max_update: 3" in run_alone(arguments).ok()
    before = (tmp_path / "checkpoint_last.pt").stat().st_mtime_ns
    again = run_alone(arguments).ok()
    assert "Loaded checkpoint" in again
    assert "max_update: 3" not in again.partition("Loaded checkpoint")[2]
    assert (tmp_path / "checkpoint_last.pt").stat().st_mtime_ns == before


@pytest.mark.slow
def test_no_checkpoint_is_left_out_at_the_end_of_an_epoch(data: Path, tmp_path: Path) -> None:
    """Where fairseq writes none of --save-interval-updates; a mean of the last ones would have older ones instead."""
    arguments = train_arguments(
        data, tmp_path, "--max-epoch", 3, "--save-interval-updates", 1, "--no-epoch-checkpoints"
    )
    output = run_alone([*arguments, "--keep-interval-updates", 99]).ok()
    updates = int(re.findall(r"num_updates (\d+)", output)[-1])
    saved = {int(path.stem.split("_")[-1]): path for path in tmp_path.glob("checkpoint_*_*.pt")}
    assert saved.keys() == set(range(1, updates + 1))
    assert saved[updates].read_bytes() == (tmp_path / "checkpoint_last.pt").read_bytes()
    assert {path.name.split("_")[1] for path in saved.values()} == {"1", "2", "3"}


@pytest.mark.slow
def test_bfloat16_on_the_cpu(data: Path, tmp_path: Path) -> None:
    """Where fairseq-train's own flag asks for a TPU. Its checkpoints are in float32 whatever the precision."""
    result = run_alone(train_arguments(data, tmp_path), "bf16")
    first, second = valid_losses(result.ok())
    assert second < first
    weight = torch.load(tmp_path / "checkpoint_best.pt")["model"]["encoder.layers.0.fc1.weight"]
    assert torch.equal(weight, weight.bfloat16().float())


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end them")
def test_workers_end_with_a_killed_torchrun(data: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = train_arguments(data, tmp_path / "out", "--max-epoch", 100000, "--save-interval", 100000)
    workers: list[int] = []
    with log.open("w") as file:
        agent = subprocess.Popen(command(Machines(2), arguments), cwd=ROOT, env=environment(), stdout=file, stderr=file)
    try:
        while "end of epoch 1" not in log.read_text():
            assert agent.poll() is None, log.read_text()[-3000:]
            time.sleep(0.1)
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text()
        workers = [int(child) for child in children.split()]
        assert len(workers) == 2
        agent.kill()
        agent.wait()
        deadline = time.monotonic() + 60
        while any(map(alive, workers)):
            assert time.monotonic() < deadline, "they train on"
            time.sleep(0.1)
    finally:
        agent.kill()
        for pid in filter(alive, workers):
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended may wait for somebody to ask how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_all_gpus(data: Path, tmp_path: Path, precision: str) -> None:
    arguments = [argument for argument in train_arguments(data, tmp_path, "--max-epoch", 4) if argument != "--cpu"]
    count = torch.cuda.device_count()
    [result] = run_together([command(Machines(count), arguments, precision)], gpus=True)
    output = result.ok()
    losses = valid_losses(output)
    assert losses[-1] < losses[0]
    assert f"training on {count} devices" in output


def test_a_place_among_torchruns_processes() -> None:
    arguments = worker.distributed_arguments(4, TORCHRUN, cpu=False)
    assert arguments == [
        *("--distributed-world-size", "4", "--distributed-rank", "3"),
        *("--distributed-init-method", "env://", "--distributed-no-spawn", "--device-id", "1"),
    ]
    on_cpu = worker.distributed_arguments(4, TORCHRUN, cpu=True)
    assert on_cpu == [*arguments, "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    one = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    for alone in ({}, one):
        assert worker.distributed_arguments(1, alone, cpu=False) == ["--distributed-world-size", "1"]


@pytest.mark.parametrize(
    ("argv", "environment", "said"),
    [
        (["--world-size", "2", "--", "DATA", "--cpu"], TORCHRUN, "4 processes in all, but --world-size is 2: "),
        (["--world-size", "2", "--", "DATA", "--cpu"], {}, "2 processes are to train together, but torchrun"),
        (["--world-size", "2", "--", "DATA", "--cpu"], {"RANK": "3"}, "(WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_"),
        (["--world-size", "0", "--", "DATA", "--cpu"], {}, "'0' is not a whole number from 1 on"),
        (["--world-size", "1", "DATA", "--cpu"], {}, "unrecognized arguments: DATA"),
        (["--world-size", "1", "--", "DATA", "--cpu", "--bf16"], {}, "--bf16 is set by the worker"),
        (["--world-size", "1", "--", "DATA", "--distributed-port=9"], {}, "--distributed-port is set by the worker"),
        (["--world-size", "1", "--precision", "fp16", "--", "DATA", "--cpu"], {}, "--precision fp16 needs a GPU"),
        (["--world-size", "1", "--", "DATA"], {}, "No GPU is visible here"),
    ],
)
def test_refusals(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    environment: dict[str, str],
    said: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert worker.main(argv, environment) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1


def test_one_process_alone_is_no_more() -> None:
    worker.check_together(1, configured=1, arguments=[])
    for world_size, configured in ((2, 2), (2, 1), (1, 2)):
        with pytest.raises(UserError, match=rf"^{world_size} processes were to train one model, but there are 1 in"):
            worker.check_together(world_size, configured, [])
