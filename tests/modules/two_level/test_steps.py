"""A search in two levels equals one pass, reads what hypotheses share once, and copies no whole block."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from linformer_fairseq.modules.two_level.steps import Copies
from tests.modules.two_level.sizes import NARROW, SIZES
from tests.reference import make_attention, padding_mask
from tests.steps import check_steps_equal_one_pass, steps_of

CROSS = {"encoder_decoder_attention": True}


@given(sizes=SIZES, steps=st.lists(st.integers(1, 9), min_size=1, max_size=4), hypotheses=st.sampled_from([1, 2, 3]))
@example(
    sizes={"k": 8, "open_slots": 1, "slot_width": 3, "block_size": 40, "exact_below": 0},
    steps=[1, 2, 1, 3],
    hypotheses=3,
)
def test_steps_of_cross_attention_equal_one_pass(sizes: dict, steps: list[int], hypotheses: int) -> None:
    """Hypotheses share their sentence, change places, and end with it; every query stays in the history it was in."""
    attention = make_attention("two-level", n=24, **CROSS, **sizes)
    key, mask = torch.randn(24, 3, 8, dtype=torch.float64), padding_mask([24, 5, 13])
    source: tuple = (key, key, mask)
    sentences, history = [0, 1, 2], torch.zeros(0, 3 * hypotheses, 8, dtype=torch.float64)
    state: dict = {}
    generator = torch.Generator().manual_seed(len(steps))
    for number, length in enumerate(steps_of(26, steps)):
        if number:
            kept = [i for i in range(len(sentences)) if number != 3 or i != 1]  # the second sentence ends
            places = torch.randint(hypotheses, (len(kept), hypotheses), generator=generator)
            order = (torch.tensor(kept)[:, None] * hypotheses + places).flatten()
            sentences, history = [sentences[i] for i in kept], history[:, order]
            attention.reorder_incremental_state(state, order)
        query = torch.randn(length, len(sentences) * hypotheses, 8, dtype=torch.float64)
        history = torch.cat([history, query])
        out, weights = attention(query, *source, state, static_kv=True)
        source = (None, None, None)
        own = key[:, sentences], key[:, sentences], mask[sentences]
        expected, expected_weights = attention(history, *own, static_kv=True)
        torch.testing.assert_close(out, expected[-length:], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights, expected_weights[:, -length:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_copies_of_a_hypothesis_read_what_they_attend_to_once(causal: bool) -> None:
    attention = make_attention("two-level", k=8, n=32, causal=causal, **({} if causal else CROSS), **NARROW)
    key, state = torch.randn(32, 2, 8, dtype=torch.float64), {}
    if causal:
        past = torch.randn(40, 6, 8, dtype=torch.float64)
        attention(past, past, past, None, state)

    def rows() -> int:
        token = torch.randn(1, 6, 8, dtype=torch.float64)
        attention(token, *(2 * [token if causal else key]), None, state, static_kv=not causal)
        search = attention.cached(state)["search"]
        return len((search if causal else search.groups[0]).reading.keys)

    assert rows() == 6
    attention.reorder_incremental_state(state, torch.tensor([0, 0, 2, 4, 4, 4]))
    assert rows() == 3
    attention.reorder_incremental_state(state, torch.tensor([2, 2, 2, 3, 4, 5]))
    assert rows() == 2


@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_the_queries_of_copies_are_several_of_one_row(sentences: int, hypotheses: int, data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, hypotheses - 1), min_size=hypotheses, max_size=hypotheses)
    order = torch.tensor([i * hypotheses + j for i in range(sentences) for j in data.draw(numbers)])
    kept, copies = Copies.of(order)
    assert kept.tolist() == sorted(set(order.tolist()))
    assert torch.equal(kept[copies.rows], order)
    assert (copies.number, copies.most) == (len(kept), max(order.tolist().count(row) for row in kept))
    query = torch.randn(len(order), 2, 1, 3)
    folded = copies.folded(query)
    assert folded.shape == (len(kept), 2, copies.most, 3)
    for row, own in enumerate(kept):  # the queries of its copies, in their order, and zeros
        found = query[order == own, :, 0].transpose(0, 1)
        assert torch.equal(folded[row, :, : found.size(1)], found)
        assert not folded[row, :, found.size(1) :].any()
    assert torch.equal(copies.unfolded(folded), query)


@given(
    sizes=SIZES,
    lengths=st.lists(st.integers(1, 48), min_size=2, max_size=2),
    steps=st.lists(st.sampled_from([1, 1, 2, 5, 9, 30]), min_size=1, max_size=5),
)
def test_steps_of_causal_attention_equal_one_pass(sizes: dict, lengths: list[int], steps: list[int]) -> None:
    """Also beyond the length that the sizes follow from."""
    check_steps_equal_one_pass(make_attention("two-level", n=40, causal=True, **sizes), [48, *lengths], steps)


def test_hypotheses_change_places_multiply_and_vanish() -> None:
    """A search may reorder its hypotheses twice between two tokens, and end some of them."""
    attention = make_attention("two-level", n=100, causal=True, **NARROW)
    state: dict = {}
    history = torch.zeros(0, 3, 8, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for position in range(100):
        for _ in range(position % 3):
            hypotheses = (3, 4, 6, 5, 2)[position % 5] if position % 7 == 0 else history.size(1)
            order = torch.randint(0, history.size(1), (hypotheses,), generator=generator)
            attention.reorder_incremental_state(state, order)
            history = history[:, order]
        token = torch.randn(1, history.size(1), 8, dtype=torch.float64, generator=generator)
        history = torch.cat([history, token])
        out, _ = attention(token, token, token, None, state, need_weights=False)
        expected, _ = attention(history, history, history, need_weights=False)
        torch.testing.assert_close(out, expected[-1:], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_whole_blocks_are_not_copied() -> None:
    """Hypotheses that change places take the places of their blocks with them; room doubles now and then."""
    attention = make_attention("two-level", n=3000, k=64, causal=True, exact_below=0)
    x = torch.randn(1500, 4, 8, dtype=torch.float64)
    state: dict = {}
    attention(x[:100], x[:100], x[:100], incremental_state=state)
    stores = []
    for token in x[100:].split(1):
        attention.reorder_incremental_state(state, torch.tensor([1, 1, 3, 0]))
        attention(token, token, token, incremental_state=state, need_weights=False)
        blocks = attention.cached(state)["search"].blocks
        stores += [] if blocks is None else [blocks.keys.data_ptr()]
    assert len(stores) > 1000
    assert len(dict.fromkeys(stores)) <= 4  # 256 tokens, then 512 and so on


def test_dropout_falls_on_the_weights_of_steps() -> None:
    attention = make_attention("two-level", n=40, causal=True, dropout=0.5, **NARROW)
    x = torch.randn(40, 1, 8, dtype=torch.float64).expand(40, 3000, 8)
    expected = attention(x[:, :1], x[:, :1], x[:, :1])[0][-1]
    state: dict = {}
    attention(x[:39], x[:39], x[:39], incremental_state=state)
    attention.train()
    out = attention(x[39:], x[39:], x[39:], incremental_state=state)[0][0]
    assert not torch.equal(out[0], out[1])
    torch.testing.assert_close(out.mean(0, keepdim=True), expected, rtol=0, atol=0.1 * expected.std().item())
