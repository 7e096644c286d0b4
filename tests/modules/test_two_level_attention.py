"""Two-level attention multiplies little for long sources, and refuses impossible sizes."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import TwoLevelAttention


def test_multiplies_less_than_full_attention_for_long_sources() -> None:
    """For 4,096 tokens, 64 windows and 3 open ones, torch counts less than a sixth of full attention's products."""
    n, k, width = 4096, 64, 16
    attention = TwoLevelAttention(width, 2, self_attention=True, projected_dim=k, max_positions=n).eval()
    assert attention.open_slots == 3
    x = torch.randn(n, 1, width)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        attention(x, x, x, need_weights=False)
    full = 2 * 2 * n * n * width
    linear_layers = 2 * 4 * n * width * width
    assert counter.get_total_flops() - linear_layers < full / 6


def test_refuses_impossible_sizes() -> None:
    for sizes, sentence in (
        ({"projected_dim": 4, "open_slots": 0}, "opens must be at least 1, not 0"),
        ({"projected_dim": 0}, "k must be at least 1, not 0"),
        ({"projected_dim": 9}, "k = 9 is larger than the longest length N = 8"),
    ):
        with pytest.raises(ValueError, match=sentence):
            TwoLevelAttention(8, 2, self_attention=True, max_positions=8, **sizes)


def test_shows_its_sizes() -> None:
    attention = TwoLevelAttention(8, 2, self_attention=True, projected_dim=4, max_positions=9)
    assert attention.extra_repr() == "k=4, N=9, open_slots=3"
