"""Settings that all tests share."""

import hypothesis
import pytest
import torch

torch.set_num_threads(1)  # tensors here are too small to share

hypothesis.settings.register_profile("project", deadline=None, max_examples=12, derandomize=True)
hypothesis.settings.load_profile("project")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device here")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)
