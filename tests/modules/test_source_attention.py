"""A search makes the memory of each source once, and its hypotheses share it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import CROSS_KINDS
from tests.reference import make_attention, padding_mask

every_kind = pytest.mark.parametrize("kind", CROSS_KINDS)


@every_kind
def test_steps_of_a_search_equal_one_pass(kind: str) -> None:
    attention = make_attention(kind, encoder_decoder_attention=True, kdim=6, vdim=6)
    key, query = torch.randn(20, 3, 6, dtype=torch.float64), torch.randn(5, 3, 8, dtype=torch.float64)
    mask = padding_mask([20, 7, 3])
    whole, whole_weights = attention(query, key, key, key_padding_mask=mask, static_kv=True)
    state: dict = {}
    source = key, key, mask
    for step in range(5):
        out, weights = attention(query[step : step + 1], *source, state, static_kv=True)
        source = None, None, None
        torch.testing.assert_close(out, whole[step : step + 1])
        torch.testing.assert_close(weights, whole_weights[:, step : step + 1])
    order = torch.tensor([2, 0])
    attention.reorder_incremental_state(state, order)
    out, weights = attention(query[:1, order], None, None, None, state, static_kv=True)
    torch.testing.assert_close(out, whole[:1, order])
    torch.testing.assert_close(weights, whole_weights[order, :1])


@every_kind
@given(
    hypotheses=st.integers(1, 4),
    exact_below=st.sampled_from([0, 8]),
    left=st.booleans(),
    options=st.sampled_from([{"need_weights": False}, {}, {"need_head_weights": True}]),
    data=st.data(),
)
def test_hypotheses_share_the_row_of_their_sentence(
    kind: str, hypotheses: int, exact_below: int, left: bool, options: dict, data: st.DataObject
) -> None:
    """The output is that of hypotheses with keys of their own, in one pass and in steps, also after sentences have
    ended, whose padding is still handed over."""
    sizes = {"open_slots": 1, "slot_width": 2, "block_size": 2, "exact_below": exact_below}
    attention = make_attention(kind, encoder_decoder_attention=True, **sizes)
    key, mask = torch.randn(9, 3, 8, dtype=torch.float64), padding_mask([9, 4, 7])
    mask = mask.flip(1) if left else mask
    query = torch.randn(7, 3 * hypotheses, 8, dtype=torch.float64)
    copies = key.repeat_interleave(hypotheses, 1), mask.repeat_interleave(hypotheses, 0)
    expected = attention(query, copies[0], copies[0], copies[1], static_kv=True, **options)
    found = attention(query, key, key, mask, static_kv=True, **options)
    torch.testing.assert_close(found, expected)
    state: dict = {}
    rows, begin = torch.arange(3 * hypotheses), 0
    for length in (1, 3, 1, 2):
        if begin:  # hypotheses change places, and sentences may end
            beams = rows.view(-1, hypotheses)
            stay = sorted(data.draw(st.sets(st.integers(0, len(beams) - 1), min_size=1)))
            order = torch.arange(len(rows)).view(-1, hypotheses)[stay].flip(1).flatten()
            attention.reorder_incremental_state(state, order)
            rows = rows[order]
        part = slice(begin, begin + length)
        out, weights = attention(query[part][:, rows], key, key, mask, state, static_kv=True, **options)
        torch.testing.assert_close(out, expected[0][part][:, rows])
        if weights is not None:
            torch.testing.assert_close(weights, expected[1].index_select(-3, rows)[..., part, :])
        begin += length
