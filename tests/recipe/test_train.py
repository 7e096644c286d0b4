"""What is said before a training, and what it finds of an earlier one."""

import zipfile
from pathlib import Path

import pytest
import torch
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import lr_scheduler

from linformer_fairseq.recipe import train
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.launch import Machines
from linformer_fairseq.recipe.train import describe_place, repair_checkpoints, threads_each, training_arguments


@pytest.mark.parametrize(
    ("machines", "gpus", "said"),
    [
        (Machines(), 0, "on the CPU in 1 process, in fp32"),
        (Machines(2), 0, "on the CPU in 2 processes, in fp32"),
        (Machines(2), 3, "on 2 of 3 GPUs, in fp16"),
        (Machines(4, 2, 0, "node0"), 4, "on 4 of 4 GPUs of each of 2 machines, in fp16"),
    ],
)
def test_where_a_model_is_trained_is_said(tmp_path, monkeypatch, machines, gpus, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert describe_place(machines, parse(["--out", str(tmp_path)]).settings.training) == said


@pytest.mark.parametrize(
    ("given", "rates"),
    [([], [1.0, 0.5**0.5, 0.25**0.5]), (["--linear-decay"], [1.0, 2 / 3, 0.0])],
    ids=["inverse square root", "linear"],
)
def test_the_learning_rate_after_its_warm_up(given, rates):
    run = parse(["--epochs", "0", "--updates", "40", "--warmup-updates", "10", "--lr", "0.5", *given])
    arguments = training_arguments(run.models[0], run.settings, Path("out"), Path("models"), freq=1)
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    config = convert_namespace_to_omegaconf(args)
    optimizer = optim.build_optimizer(config.optimizer, [torch.nn.Parameter(torch.zeros(1))])
    scheduler = lr_scheduler.build_lr_scheduler(config.lr_scheduler, optimizer)
    found = {number: scheduler.step_update(number) for number in range(41)}
    assert [found[number] / 0.5 for number in (10, 20, 40)] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("threads", "jobs", "processes", "each"),
    [(8, 1, 1, 8), (16, 1, 1, 16), (8, 2, 1, 4), (2, 2, 1, 2), (8, 2, 2, 2), (8, 3, 1, 2), (8, 16, 1, 1), (8, 1, 3, 2)],
)
def test_trainings_at_a_time_share_the_cores(monkeypatch, threads, jobs, processes, each):
    monkeypatch.setattr(train, "cpu_count", lambda: 8)
    assert threads_each(threads, jobs, processes) == each


def make_checkpoint(path, content):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", content)


def test_half_copied_checkpoints_are_mended(tmp_path):
    make_checkpoint(tmp_path / "checkpoint_1_10.pt", "old")
    make_checkpoint(tmp_path / "checkpoint_1_20.pt", "new" * 1000)
    whole = (tmp_path / "checkpoint_1_20.pt").read_bytes()
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    assert repair_checkpoints(tmp_path)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == whole


def test_nothing_to_go_on_from(tmp_path):
    assert not repair_checkpoints(tmp_path / "none")
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK")
    assert not repair_checkpoints(tmp_path)
    assert not (tmp_path / "checkpoint_last.pt").exists()
