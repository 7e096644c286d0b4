"""A disk that is soon full."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    with mounted(tmp_path / "disk", 256) as disk:
        yield disk
