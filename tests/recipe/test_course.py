"""What a training gets, and what it finds of an earlier one."""

import zipfile

import pytest

from linformer_fairseq.recipe import course
from linformer_fairseq.recipe.course import repair_checkpoints, threads_each


@pytest.mark.parametrize(
    ("threads", "jobs", "each"), [(8, 1, 8), (16, 1, 16), (8, 2, 4), (2, 2, 2), (8, 3, 2), (8, 16, 1)]
)
def test_trainings_at_a_time_share_the_cores(monkeypatch, threads, jobs, each):
    monkeypatch.setattr(course, "cpu_count", lambda: 8)
    assert threads_each(threads, jobs) == each


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
