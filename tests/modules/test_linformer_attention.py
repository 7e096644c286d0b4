"""Linformer attention refuses projections that do not fit, and takes little memory."""

import pytest
import torch
from torch import Tensor

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import BaseAttention, LinearProjection, MeanPool
from tests.memory import peak_bytes
from tests.operations import computing_operations
from tests.reference import assert_same_gradients, make_attention, naive_attention, padding_mask
from tests.variants import NEWER_TORCH


def test_refuses_projections_that_do_not_fit() -> None:
    for other in (LinearProjection(5, 8), LinearProjection(4, 9), MeanPool(4, 8)):
        with pytest.raises(ValueError, match="must agree"):
            LinformerMultiheadAttention(8, 2, key_projection=LinearProjection(4, 8), value_projection=other)


@pytest.mark.parametrize("k", [4, 20])
def test_layers_that_do_more_are_called(k: int) -> None:
    """Hooks make a layer another one, as quantisation or an adapter does, before slots and after them."""
    attention, other = (make_attention(k=k) for _ in range(2))
    other.load_state_dict(attention.state_dict())
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        getattr(attention, name).register_forward_hook(lambda layer, inputs, out: 2 * out - layer.bias)
        with torch.no_grad():
            getattr(other, name).weight.mul_(2)
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    torch.testing.assert_close(attention(x, x, x)[0], other(x, x, x)[0])


@pytest.mark.parametrize("k", [1, 4, 24])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_both_orders_of_products_are_one_attention(k: int, masked: bool, bias: bool) -> None:
    """Values and gradients equal those of the formula, whichever pays for these sizes."""
    attention = make_attention(k=k, n=40, embed_dim=16, mask_empty_slots=masked, bias=bias)
    mask = padding_mask(lengths := [40, 9, 3])
    x = torch.randn(40, 3, 16, dtype=torch.float64, requires_grad=True)
    expected, _ = naive_attention(attention, x, x, lengths)
    for pays in (False, True):
        attention._folding_pays = lambda query, slots, pays=pays: pays
        out, _ = attention(x, x, x, mask, need_weights=False)
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
        assert_same_gradients(out, expected, [x, *attention.parameters()], rtol=1e-8, atol=1e-8)


def test_folding_pays_for_few_slots_in_full_precision_alone() -> None:
    attention = make_attention(k=2, n=64, embed_dim=16)
    query = torch.ones(64, 2, 16)
    assert attention._folding_pays(query, 2)
    assert not attention._folding_pays(query, 16)
    assert not attention._folding_pays(query[:1], 2)
    assert not attention._folding_pays(query.half(), 2)
    attention.out_proj.register_forward_hook(lambda *_: None)
    assert not attention._folding_pays(query, 2)


@pytest.mark.skipif(not NEWER_TORCH, reason="the counts are those of torch 2.13")
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(("lengths", "of_full", "most"), [([1024, 1024], 34, 8), ([1024, 1019], 37, 7)])
def test_dispatches_few_operations_more_than_full_attention(
    lengths: list[int], of_full: int, most: int, cross: bool
) -> None:
    """Forward and backward."""
    place = {"encoder_decoder_attention" if cross else "self_attention": True}
    found, mask = [], padding_mask(lengths)
    for kind in ("full", "linear"):
        attention = make_attention(kind, k=64, n=1024, dtype=torch.float32, **place)
        x = torch.randn(1024, 2, 8, requires_grad=True)
        y = torch.randn(1024, 2, 8, requires_grad=True) if cross else x

        def run(attention: BaseAttention = attention, x: Tensor = x, y: Tensor = y) -> None:
            attention(x, y, y, mask, need_weights=False, static_kv=cross)[0].sum().backward()

        run()
        found.append(len(computing_operations(run)))
    assert found[0] == of_full
    assert found[1] - found[0] <= most


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
def test_memory_is_that_of_two_tensors_of_tokens_and_the_slots(padded: bool) -> None:
    """The queries and the result of attention, and then that result and the output, are in memory together, without
    copies; so are tokens cleared of padding."""
    n, sentences, width, k = 256, 4, 32, 64
    attention = make_attention(k=k, n=n, embed_dim=width, dtype=torch.float32)
    x = torch.randn(n, sentences, width)
    mask = padding_mask([n, *[n - 9] * (sentences - 1)]) if padded else None
    peak = peak_bytes(lambda: attention(x, x, x, key_padding_mask=mask, need_weights=False))
    slots, copies = 2 * x.nbytes * k // n, 3 if padded else 2
    assert copies * x.nbytes + slots <= peak < (copies + 0.4) * x.nbytes + slots
