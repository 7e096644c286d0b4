"""What is said before a training, and what it finds of an earlier one."""

import zipfile

import pytest
import torch
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.launch import Machines

from linformer_fairseq.recipe import course
from linformer_fairseq.recipe.course import Course, describe_place, repair_checkpoints, threads_each


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
    assert describe_place(machines, Course.of(parse(["--out", str(tmp_path)]).settings.training)) == said


@pytest.mark.parametrize(
    ("threads", "jobs", "processes", "each"),
    [(8, 1, 1, 8), (16, 1, 1, 16), (8, 2, 1, 4), (2, 2, 1, 2), (8, 2, 2, 2), (8, 3, 1, 2), (8, 16, 1, 1), (8, 1, 3, 2)],
)
def test_trainings_at_a_time_share_the_cores(monkeypatch, threads, jobs, processes, each):
    monkeypatch.setattr(course, "cpu_count", lambda: 8)
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
