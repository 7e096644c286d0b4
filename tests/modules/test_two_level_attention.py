"""Two levels to a source: what later queries leave alone, searches, padding of several forms, and cost."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import TwoLevelAttention
from tests.operations import computing_operations
from tests.reference import ask_for_a_hidden_token, look_at_inputs, make_attention, padding_mask
from tests.steps import steps_of
from tests.variants import NEWER_TORCH

SIZES = st.fixed_dictionaries(
    {
        "k": st.integers(1, 16),
        "open_slots": st.sampled_from([None, 1, 2, 3]),
        "slot_width": st.sampled_from([None, 2, 3, 4]),
        "block_size": st.sampled_from([None, 1, 3, 4, 40]),
        "exact_below": st.sampled_from([0, 12]),
    }
)


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


def test_a_block_opens_what_its_first_query_and_those_right_before_it_attend_to() -> None:
    """Of two windows far apart, a block's first query looks at one, and the rest of the block at the other."""
    attention = make(cross=True, k=8, n=32, num_heads=1, open_slots=1, slot_width=4, block_size=4, exact_below=0)
    key, query = (0.1 * torch.randn(length, 1, 8, dtype=torch.float64) for length in (32, 8))
    look_at_inputs(attention)
    key[8:12, :, 0], key[20:24, :, 1] = 5, 5
    query[[0, 4], :, 0], query[[1, 2, 3, 5, 6, 7], :, 1] = 5, 5
    _, weights = attention(query, key, key, static_kv=True)
    windows = weights[0].unflatten(1, (8, 4))
    opened = [row.nonzero().flatten().tolist() for row in windows.std(2) > 1e-9 * windows.mean(2)]
    assert opened == [[2]] * 4 + [[5]] * 4


@given(sizes=SIZES, steps=st.lists(st.integers(1, 9), min_size=1, max_size=4), beam=st.sampled_from([1, 2, 3]))
@example(
    sizes={"k": 8, "open_slots": 1, "slot_width": 3, "block_size": 40, "exact_below": 0}, steps=[1, 2, 1, 3], beam=3
)
def test_steps_of_a_search_equal_one_pass(sizes: dict, steps: list[int], beam: int) -> None:
    """Hypotheses share their sentence, change places, and end with it; every query stays in the history it was in."""
    attention = make(cross=True, n=24, **sizes)
    attention.set_beam_size(beam)
    lengths = [24, 5, 13]
    key = torch.randn(24, 3, 8, dtype=torch.float64).repeat_interleave(beam, 1)
    mask = padding_mask(lengths).repeat_interleave(beam, 0)
    source = (key, key, mask)
    sentences, history = [0, 1, 2], torch.zeros(0, 3 * beam, 8, dtype=torch.float64)
    state: dict = {}
    generator = torch.Generator().manual_seed(len(steps))
    for number, length in enumerate(steps_of(26, steps)):
        if number:
            kept = [i for i in range(len(sentences)) if number != 3 or i != 1]  # the second sentence ends
            order = torch.cat([i * beam + torch.randint(beam, (beam,), generator=generator) for i in kept])
            sentences, history = [sentences[i] for i in kept], history[:, order]
            attention.reorder_incremental_state(state, order)
        query = torch.randn(length, len(sentences) * beam, 8, dtype=torch.float64)
        history = torch.cat([history, query])
        out, weights = attention(query, *source, state, static_kv=True)
        source = (None, None, None)
        rows = [i * beam for i in sentences for _ in range(beam)]
        alone = make(cross=True, n=24, **sizes)
        alone.load_state_dict(attention.state_dict())
        expected, expected_weights = alone(history, key[:, rows], key[:, rows], mask[rows], static_kv=True)
        torch.testing.assert_close(out, expected[-length:], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights, expected_weights[:, -length:], rtol=1e-9, atol=1e-9)


def test_copies_of_a_hypothesis_read_what_they_attend_to_once() -> None:
    attention = make(cross=True, k=8, n=32, open_slots=2, slot_width=4, block_size=8, exact_below=0)
    attention.set_beam_size(3)
    key, state = torch.randn(32, 6, 8, dtype=torch.float64), {}
    key = key[:, ::3].repeat_interleave(3, 1)

    def choices() -> int:
        attention(torch.randn(1, 6, 8, dtype=torch.float64), key, key, None, state, static_kv=True)
        (part,) = attention.cached(state)["parts"]
        return len(part.past.choice.opened)

    assert choices() == 6
    attention.reorder_incremental_state(state, torch.tensor([0, 0, 2, 4, 4, 4]))
    assert choices() == 3
    attention.reorder_incremental_state(state, torch.tensor([2, 2, 2, 3, 4, 5]))
    assert choices() == 2


@pytest.mark.parametrize("cross", [False, True])
def test_a_token_may_be_found_in_4096(cross: bool) -> None:
    """Blocks open the one window whose mean stands out, and attend to its one token that does."""
    attention = make(cross=cross, k=64, n=4096, embed_dim=8, num_heads=1)
    look_at_inputs(attention)
    key = torch.zeros(4096, 1, 8, dtype=torch.float64)
    key[77, :, 0] = 64 * 8.0
    query = key.clone()
    query[:, :, 0] = 1.0
    if not cross:
        key, query = torch.cat([key[..., :1], query[..., 1:]], 2), key + 1
        key = query
    _, weights = attention(query, key, key, static_kv=cross)
    assert (weights[0, :, 77] > 0.99).all()


@pytest.mark.parametrize("cross", [False, True])
def test_a_token_is_found_that_its_window_hides(cross: bool) -> None:
    attention = make(cross=cross, k=64, n=4096, embed_dim=8, num_heads=1)
    key = ask_for_a_hidden_token(attention, 4096, 3077)
    _, weights = attention(key, key, key, static_kv=cross)
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
def test_sentences_of_several_forms_cost_less_than_each_padded_alone(cross: bool) -> None:
    """Each form is computed for its own sentences, and every form without the keys beyond the longest of them."""
    attention = make(cross=cross, k=16, n=256, exact_below=0).eval()

    def products(*lengths: int) -> int:
        x = torch.randn(256, len(lengths), 8, dtype=torch.float64)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            attention(x, x, x, padding_mask([256, *lengths])[1:], static_kv=cross, need_weights=False)
        return counter.get_total_flops()

    assert products(64, 255, 32, 128) < sum(map(products, (64, 255, 32, 128)))
    for other in (32, 64, 128):  # each cuts something; the longest has all keys either way
        assert products(other, 256) < products(other) + products(256)


@pytest.mark.skipif(not NEWER_TORCH, reason="on a processor this torch has no fused attention with biases")
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("n", [64, 1024, 4096])
def test_dispatches_few_operations(cross: bool, n: int) -> None:
    attention = make(cross=cross, k=64, n=4096, dtype=torch.float32)
    x = torch.randn(n, 1, 8)

    def run() -> Tensor:
        return attention(x, x, x, need_weights=False, static_kv=cross)[0]

    with attention.length_cache.open():
        run()
        assert len(computing_operations(run)) <= (45 if cross else 40)


def test_refuses_impossible_sizes() -> None:
    for sizes, sentence in (
        ({"projected_dim": 4, "open_slots": 0}, "--linformer-open-slots must be at least 1, not 0"),
        ({"projected_dim": 4, "block_size": 0}, "--linformer-block-size must be at least 1, not 0"),
        ({"projected_dim": 0}, "k must be at least 1, not 0"),
        ({"projected_dim": 9}, "k = 9 is larger than the longest length N = 8"),
    ):
        with pytest.raises(ValueError, match=sentence):
            TwoLevelAttention(8, 2, self_attention=True, max_positions=8, **sizes)
