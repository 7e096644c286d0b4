"""Settings and fixtures that all tests share."""

import fcntl
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest
import torch
from fairseq.logging import metrics

from tests.fairseq_commands import run

Shared = Callable[[str, Callable[[Path], None]], Path]

torch.set_num_threads(1)  # tensors here are too small to share

hypothesis.settings.register_profile("project", deadline=None, max_examples=12, derandomize=True)
hypothesis.settings.load_profile("project")


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> Iterator[None]:
    """Each test has the same random numbers, and fairseq's metrics know nothing of trainings before it."""
    torch.manual_seed(0)
    yield
    metrics.reset()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {item.path for item in items if "slow" in item.keywords}
    items.sort(key=lambda item: item.path not in slow)  # quick files fill what time the slow ones leave in the end
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device here")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)


@contextmanager
def mounted(folder: Path, kibibytes: int) -> Iterator[Path]:
    """Mounts a disk of so many KiB in a new folder; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """`shared(name, make)` returns a folder that `make(folder)` has filled, once for all of pytest's workers."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def shared(name: str, make: Callable[[Path], None]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with open(root / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # what another worker failed to make
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return shared


@pytest.fixture(scope="session")
def data(shared: Shared) -> Path:
    """Returns the folder of a binarised corpus, whose translations are the source's words backwards, in capitals."""

    def make(folder: Path) -> None:
        generator = random.Random(1)
        words = [f"w{i}" for i in range(30)]
        for split, size in (("train", 300), ("valid", 30), ("test", 30)):
            sources = [[generator.choice(words) for _ in range(generator.randint(1, 24))] for _ in range(size)]
            (folder / f"{split}.en").write_text("".join(" ".join(s) + "\n" for s in sources))
            (folder / f"{split}.de").write_text("".join(" ".join(s[::-1]).upper() + "\n" for s in sources))
        prefixes = [part for split in ("train", "valid", "test") for part in (f"--{split}pref", folder / split)]
        run("preprocess", "-s", "en", "-t", "de", *prefixes, "--destdir", folder / "bin", "--joined-dictionary").ok()

    return shared("toy", make)
