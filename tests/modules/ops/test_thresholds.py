"""The constants of a device that nobody has timed follow from what is counted."""

import pytest
import torch

from linformer_fairseq.modules.ops.thresholds import CPU, GPU, thresholds


@pytest.mark.parametrize(("device", "expected"), [("cpu", CPU), ("cuda", GPU), ("cuda:1", GPU), ("mps", GPU)])
def test_every_accelerator_counts_as_a_gpu(device: str, expected: object) -> None:
    assert thresholds(torch.device(device)) is expected


def test_chunks_of_a_gpu_are_those_that_cost_least() -> None:
    d, k = 64, 128

    def in_chunks(c: int) -> float:
        """The cost of a token of a long text."""
        return 2 * c * (d + k) + 4 * d * k + GPU.number_moved * (4 * c + 8 * d * k / c)

    def in_one_chunk(length: int) -> float:
        return length * (2 * (d + k) + GPU.number_moved * 4)

    assert min(range(1, 1000), key=in_chunks) == GPU.chunk_size
    longest = max(length for length in range(1, 1000) if in_one_chunk(length) <= in_chunks(GPU.chunk_size))
    assert longest == GPU.longest_single_chunk
