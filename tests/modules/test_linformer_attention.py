"""Linformer attention refuses projections that do not fit, and takes little memory."""

import pytest
import torch

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import LinearProjection, MeanPool
from linformer_fairseq.modules import linformer_attention as module
from tests.memory import peak_bytes
from tests.reference import make_attention, padding_mask


def test_refuses_projections_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="made for 3 heads, but the attention has 2"):
        LinformerMultiheadAttention(8, 2, key_projection=LinearProjection(4, 8, num_heads=3))
    for other in (LinearProjection(5, 8), LinearProjection(4, 9), LinearProjection(4, 8, 2), MeanPool(4, 8)):
        with pytest.raises(ValueError, match="must agree"):
            LinformerMultiheadAttention(8, 2, key_projection=LinearProjection(4, 8), value_projection=other)


def test_quantisation_noise_needs_projections_that_heads_share() -> None:
    with pytest.raises(ValueError, match=r"quantisation noise \(--quant-noise-pq\) needs projections that the heads"):
        make_attention(sharing="none", q_noise=0.5)


def test_folding_comes_before_projected_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = make_attention(k=2, n=64, embed_dim=16)
    x = torch.randn(64, 2, 16, dtype=torch.float64)
    monkeypatch.setattr(module, "projecting_scores_pays", lambda *_: True)
    monkeypatch.setattr(module, "projected_scores_attention", None)
    attention(x, x, x, need_weights=False)


def test_layers_that_do_more_are_called_and_not_folded() -> None:
    attention = make_attention(k=2, n=64, embed_dim=16)
    query = torch.randn(64, 2, 16, dtype=torch.float64)
    assert attention.folding_pays(query, 2)
    attention.out_proj.register_forward_hook(lambda *_: None)
    assert not attention.folding_pays(query, 2)


def test_short_sources_take_projected_scores_but_a_search_keeps_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = make_attention(k=20, encoder_decoder_attention=True)
    x = torch.randn(5, 1, 8, dtype=torch.float64)
    state: dict = {}
    first, _ = attention(x, x, x, incremental_state=state, static_kv=True, need_weights=False)
    again, _ = attention(x, None, None, incremental_state=state, static_kv=True, need_weights=False)
    monkeypatch.setattr(module, "key_value_slots", None)
    whole, _ = attention(x, x, x, static_kv=True, need_weights=False)
    torch.testing.assert_close(first, whole)
    torch.testing.assert_close(again, whole)


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
def test_memory_is_that_of_two_tensors_of_tokens_and_the_slots(padded: bool) -> None:
    """The queries and the result of attention, and then that result and the output, are in memory together, without
    copies; tokens cleared of padding are freed before."""
    n, sentences, width, k = 256, 4, 32, 64
    attention = make_attention(k=k, n=n, embed_dim=width, dtype=torch.float32)
    x = torch.randn(n, sentences, width)
    mask = padding_mask([n, *[n - 9] * (sentences - 1)]) if padded else None
    peak = peak_bytes(lambda: attention(x, x, x, key_padding_mask=mask, need_weights=False))
    slots = 2 * x.nbytes * k // n
    assert 2 * x.nbytes + slots <= peak < 2.4 * x.nbytes + slots
