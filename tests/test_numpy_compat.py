"""What fairseq needs of numpy 1 exists, and nothing that numpy has is replaced."""

import numpy
import pytest
from fairseq.data import TokenBlockDataset

import linformer_fairseq  # noqa: F401
from linformer_fairseq.numpy_compat import restore_numpy_compat


def test_blocks_of_sentences_can_be_made() -> None:
    """Fairseq makes such blocks with `--sample-break-mode eos`."""
    sizes = [3, 5, 2]
    blocks = TokenBlockDataset([numpy.arange(n) for n in sizes], sizes, None, pad=1, eos=2, break_mode="eos")
    assert blocks.sizes.tolist() == sizes


def test_what_numpy_has_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    own = object()
    monkeypatch.setattr(numpy, "compat", own)
    restore_numpy_compat()
    assert numpy.compat is own
