"""Two levels to a source: what later queries leave alone, what is opened, and what it costs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import TwoLevelAttention
from tests.modules.two_level.sizes import SIZES
from tests.operations import computing_operations
from tests.reference import ask_for_a_hidden_token, look_at_inputs, make_attention, padding_mask
from tests.variants import NEWER_TORCH


def make(cross: bool = False, **options: object) -> TwoLevelAttention:
    return make_attention("two-level", **({"encoder_decoder_attention": True} if cross else {}), **options)


@given(sizes=SIZES, changed=st.integers(0, 19), lengths=st.lists(st.integers(1, 24), min_size=1, max_size=2))
def test_later_queries_change_nothing_before_them_in_cross_attention(
    sizes: dict, changed: int, lengths: list[int]
) -> None:
    """Not even what is opened: the difference is exactly 0."""
    attention = make(cross=True, n=24, **sizes)
    mask = padding_mask([24, *lengths])
    key = torch.randn(24, len(mask), 8, dtype=torch.float64)
    query = torch.randn(20, len(mask), 8, dtype=torch.float64)
    other = query.clone()
    other[changed:] = 10 * torch.randn_like(other[changed:])
    (out, weights), (other_out, other_weights) = (attention(x, key, key, mask, static_kv=True) for x in (query, other))
    assert torch.equal(out[:changed], other_out[:changed])
    assert torch.equal(weights[:, :changed], other_weights[:, :changed])
    assert not torch.equal(out[changed:], other_out[changed:])


def test_a_block_opens_what_its_first_query_and_seven_before_it_attend_to() -> None:
    """These look at the first window or the fourth, and all others at the last."""
    attention = make(cross=True, k=8, n=32, num_heads=1, open_slots=2, slot_width=4, block_size=20, exact_below=0)
    key, query = (0.1 * torch.randn(length, 1, 8, dtype=torch.float64) for length in (32, 40))
    look_at_inputs(attention)
    for window, feature in ((0, 0), (3, 1), (7, 2)):
        key[4 * window : 4 * window + 4, :, feature] = 5
    query[:, :, 2] = 5
    query[[0, *range(13, 21)], :, 2] = 0
    query[[0, *range(13, 17)], :, 0] = 5
    query[[0, *range(17, 21)], :, 1] = 5
    _, weights = attention(query, key, key, static_kv=True)
    windows = weights[0].unflatten(1, (8, 4))
    opened = [row.nonzero().flatten().tolist() for row in windows.std(2) > 1e-9 * windows.mean(2)]
    assert opened == 40 * [[0, 3]]


def test_cross_attention_finds_a_token_that_its_window_hides() -> None:
    attention = make(cross=True, k=64, n=4096, embed_dim=8, num_heads=1)
    key = ask_for_a_hidden_token(attention, 4096, 3077)
    _, weights = attention(key, key, key, static_kv=True)
    asking = [i for i in range(4096) if i not in (3077, 3078)]
    assert (weights[0, asking, 3077] > 0.99).all()


def test_multiplies_less_than_full_attention_for_long_sources() -> None:
    """For 4,096 tokens and 64 windows, torch counts less than a sixth of full attention's products."""
    n, k, width = 4096, 64, 16
    attention = TwoLevelAttention(width, 2, self_attention=True, projected_dim=k, max_positions=n).eval()
    x = torch.randn(n, 1, width)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        attention(x, x, x, need_weights=False)
    full = 2 * 2 * n * n * width
    linear_layers = 2 * 4 * n * width * width
    assert counter.get_total_flops() - linear_layers < full / 6


@pytest.mark.parametrize("cross", [False, True])
def test_sentences_of_several_sizes_cost_what_each_costs_alone(cross: bool) -> None:
    attention = make(cross=cross, k=16, n=256, exact_below=0).eval()

    def products(*lengths: int) -> int:
        x = torch.randn(256, len(lengths), 8, dtype=torch.float64)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            attention(x, x, x, padding_mask(lengths, 256), static_kv=cross, need_weights=False)
        return counter.get_total_flops()

    assert products(64, 255, 32, 128) == sum(map(products, (64, 255, 32, 128)))


@pytest.mark.skipif(not NEWER_TORCH, reason="on a processor this torch has no fused attention with biases")
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("n", [64, 1024, 4096])
def test_dispatches_few_operations_forward_and_backward(cross: bool, n: int) -> None:
    attention = make(cross=cross, k=64, n=4096, dtype=torch.float32)
    x = torch.randn(n, 1, 8)

    def run() -> None:
        attention(x, x, x, need_weights=False, static_kv=cross)[0].sum().backward()

    assert len(computing_operations(run)) <= (85 if cross else 165)
