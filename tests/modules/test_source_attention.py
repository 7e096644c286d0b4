"""A search projects each source once, and its hypotheses share the result."""

import pytest
import torch

from linformer_fairseq.modules import linformer_attention
from tests.reference import CROSS_KINDS, make_attention, padding_mask

every_kind = pytest.mark.parametrize("kind", CROSS_KINDS)


def memories(state: dict) -> list[dict[str, torch.Tensor]]:
    """Returns what attention keeps of its sources between the steps of a search."""
    (buffer,) = state.values()
    if "rows" in buffer:
        return [buffer["rows"]]
    return [part.rows for part in buffer["parts"]] if "parts" in buffer else [buffer]


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
    for memory in memories(state):
        assert all(memory[name].is_contiguous() for name in ("keys", "values"))  # as every step reads them
    order = torch.tensor([2, 2, 0, 0, 1, 1])
    attention.reorder_incremental_state(state, order)
    out, weights = attention(query[:1, order], None, None, None, state, static_kv=True)
    torch.testing.assert_close(out, whole[:1, order])
    torch.testing.assert_close(weights, whole_weights[order, :1])


@every_kind
def test_hypotheses_share_their_sentence(kind: str) -> None:
    """The output is that of hypotheses with keys of their own, also after a sentence has ended."""
    alone, shared = (make_attention(kind, encoder_decoder_attention=True) for _ in range(2))
    shared.load_state_dict(alone.state_dict())
    shared.set_beam_size(3)
    ends = torch.tensor([2, 1, 1, 7, 6, 8])  # the second sentence; hypotheses change places
    for options in ({"need_weights": False}, {}, {"need_head_weights": True}):
        key = torch.randn(9, 3, 8, dtype=torch.float64).repeat_interleave(3, 1)
        source = key, key, padding_mask([9, 4, 7]).repeat_interleave(3, 0)
        states: tuple[dict, dict] = ({}, {})
        for order, length in ((torch.arange(9), 3), (ends, 1)):
            query = torch.randn(length, len(order), 8, dtype=torch.float64)
            if source[0] is None:
                for attention, state in zip((alone, shared), states, strict=True):
                    attention.reorder_incremental_state(state, order)
            expected, found = (
                attention(query, *source, state, static_kv=True, **options)
                for attention, state in zip((alone, shared), states, strict=True)
            )
            torch.testing.assert_close(found, expected)
            source = None, None, None
        for state, kept in zip(states, (6, 2), strict=True):
            assert {memory["keys"].size(0) for memory in memories(state)} == {kept}


@every_kind
def test_the_beam_of_another_search_does_no_harm_where_none_is_at_hand(kind: str) -> None:
    attention = make_attention(kind, encoder_decoder_attention=True)
    key, query = torch.randn(9, 5, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    mask = padding_mask([9, 4, 7, 5, 1])
    expected, _ = attention(query, key, key, mask, static_kv=True)
    attention.set_beam_size(3)
    out, _ = attention(query, key, key, mask, static_kv=True)
    torch.testing.assert_close(out, expected)
    with pytest.raises(ValueError, match=r"5 hypotheses are no whole beams of 3; call set_beam_size\(1\) for"):
        attention(query, key, key, mask, {}, static_kv=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_scores_beyond_half_precision(dtype: torch.dtype) -> None:
    attention = make_attention(encoder_decoder_attention=True, dtype=dtype)
    query, keys, values = 300 * torch.randn(3, 2, 8).to(dtype), *torch.randn(2, 2, 2, 5, 4).to(dtype)
    keys = 300 * keys
    scores = attention.queries(query).double() @ keys.double().transpose(2, 3) / 2
    assert scores.abs().max() > 65504
    expected = scores.softmax(-1)
    for autocast in (False, True):
        with torch.autocast("cpu", dtype, enabled=autocast):
            out, probabilities = attention.softmax_attention_with_probabilities(query, keys, values, None)
        assert out.isfinite().all()
        torch.testing.assert_close(probabilities.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_no_order_of_products_with_scores_between_them(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's fused attention keeps scores inside, in float32."""
    few, short = make_attention(k=2, n=64, embed_dim=16, dtype=dtype), make_attention(k=20, dtype=dtype)
    assert few.folding_pays(torch.ones(64, 2, 16), 2)
    assert not few.folding_pays(torch.ones(64, 2, 16, dtype=dtype), 2)
    monkeypatch.setattr(linformer_attention, "projected_scores_attention", None)
    x = torch.randn(5, 1, 8).to(dtype)
    assert short(x, x, x, need_weights=False)[0].isfinite().all()
    with pytest.raises(TypeError):  # as float32 would take
        short.float()(x.float(), x.float(), x.float(), need_weights=False)
