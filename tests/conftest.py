"""Settings that all tests share, and a toy corpus."""

import random
from pathlib import Path

import hypothesis
import pytest
import torch

from tests.fairseq_commands import run

torch.set_num_threads(1)  # tensors here are too small to share

hypothesis.settings.register_profile("project", deadline=None, max_examples=12, derandomize=True)
hypothesis.settings.load_profile("project")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {item.path for item in items if "slow" in item.keywords}
    items.sort(key=lambda item: item.path not in slow)  # quick files fill what time the slow ones leave in the end
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device here")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of 1 to 24 words whose translation is the words in capitals, backwards; binarised."""
    folder = tmp_path_factory.mktemp("toy")
    random.seed(1)
    words = [f"w{i}" for i in range(30)]
    for split, size in (("train", 300), ("valid", 30), ("test", 30)):
        sources = [[random.choice(words) for _ in range(random.randint(1, 24))] for _ in range(size)]
        (folder / f"{split}.en").write_text("".join(" ".join(s) + "\n" for s in sources))
        (folder / f"{split}.de").write_text("".join(" ".join(s[::-1]).upper() + "\n" for s in sources))
    prefixes = [argument for split in ("train", "valid", "test") for argument in (f"--{split}pref", folder / split)]
    arguments = ["-s", "en", "-t", "de", *prefixes, "--destdir", folder / "bin", "--joined-dictionary"]
    run("preprocess", *arguments).ok()
    for language in ("en", "de"):
        source = folder / "bin" / f"dict.{language}.txt"
        assert source.exists()
    return folder
