"""Performer is what its package computes, between our linear layers, and padding does not count."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import BaseAttention
from tests.peers.conftest import check_alone, make_peer
from tests.reference import padding_mask


def make(**options: object) -> BaseAttention:
    return make_peer("performer", **options)


@torch.no_grad()
def test_is_the_packages() -> None:
    attention = make(features=6)
    from performer_pytorch import SelfAttention

    theirs = SelfAttention(8, heads=2, dim_head=4, nb_features=6, qkv_bias=True, attn_out_bias=True).double()
    for name in "qkv":
        getattr(theirs, f"to_{name}").load_state_dict(getattr(attention, f"{name}_proj").state_dict())
    theirs.to_out.load_state_dict(attention.out_proj.state_dict())
    theirs.fast_attention.load_state_dict(attention.core.state_dict())
    x = torch.randn(50, 2, 8, dtype=torch.float64)
    expected = theirs(x.transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(attention(x, x, x, need_weights=False)[0], expected)


@given(lengths=st.lists(st.integers(1, 60), min_size=3, max_size=3), features=st.sampled_from([None, 1, 9]))
def test_a_sentence_is_computed_as_by_itself(lengths: list[int], features: int | None) -> None:
    check_alone(make(features=features), [60, *lengths], outputs=(1e-9, 1e-9), gradients=(1e-8, 1e-8))


@torch.no_grad()
def test_padding_does_not_scale_the_features() -> None:
    """The largest feature, by which the package divides, is one of a token, even where those of zeros are larger."""
    attention = make(features=1)
    attention.k_proj.load_state_dict({"weight": torch.eye(8), "bias": torch.zeros(8)})
    attention.core.projection_matrix.fill_(-1.0)
    x = 2 * torch.rand(20, 1, 8, dtype=torch.float64)
    out, _ = attention(x, x, x, padding_mask([5], 20), need_weights=False)
    alone, _ = attention(x[:5], None, None, need_weights=False)
    torch.testing.assert_close(out[:5], alone, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_many_features_come_close_to_full_attention() -> None:
    x = torch.randn(30, 2, 8, dtype=torch.float64)
    few, many = make(features=4, random=False), make(features=4096, random=False)
    full = torch.nn.MultiheadAttention(8, 2).double()
    full.in_proj_weight.copy_(torch.cat([getattr(many, f"{x}_proj").weight for x in "qkv"]))
    full.in_proj_bias.copy_(torch.cat([getattr(many, f"{x}_proj").bias for x in "qkv"]))
    full.out_proj.load_state_dict(many.out_proj.state_dict())
    few.load_state_dict({**many.state_dict(), "core.projection_matrix": few.core.projection_matrix})
    expected = full(x, x, x)[0]
    far, near = ((a(x, x, x, need_weights=False)[0] - expected).norm() for a in (few, many))
    assert near < 0.25 * expected.norm()
    assert near < 0.5 * far


def test_the_features_stay() -> None:
    """A checkpoint has them, as another model would draw others."""
    attention, other = make(random=False).train(), make(random=False)
    before = attention.core.projection_matrix.clone()
    assert before.shape == (int(4 * math.log(4)), 4)
    assert not torch.equal(before, other.core.projection_matrix)
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    for _ in range(3):
        attention(x, x, x, need_weights=False)[0].sum().backward()
    other.load_state_dict(attention.state_dict())
    assert torch.equal(before, other.core.projection_matrix)
    assert "core.projection_matrix" not in dict(attention.named_parameters())


@torch.no_grad()
def test_the_causal_form_is_the_sum_over_the_tokens_so_far() -> None:
    """Of features exp(w k - |k|² / 2), of which no later token changes the scale."""
    attention, x = make(features=6, causal=True), 3 * torch.randn(150, 2, 8, dtype=torch.float64)
    query, key, value = (
        getattr(attention, f"{name}_proj")(x).unflatten(2, (2, 4)).permute(1, 2, 0, 3) for name in "qkv"
    )

    def features(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = y / 4**0.25
        return y @ attention.core.projection_matrix.double().t(), y.square().sum(3, keepdim=True) / 2

    found = attention(x, x, x, need_weights=False)[0]
    (products, squares), (of_key, of_square) = features(query), features(key)
    of_query = (products - squares - products.amax(3, keepdim=True)).exp() + 1e-4  # as the package has it
    weights = (of_query @ (of_key - of_square).exp().transpose(2, 3)).tril()
    expected = weights @ value / (weights.sum(3, keepdim=True) + 1e-6 * of_query.sum(3, keepdim=True) * 6**0.5)
    torch.testing.assert_close(found, attention.out_proj(expected.permute(2, 0, 1, 3).flatten(2)))
    changed = x.clone()
    changed[100:] *= 5
    torch.testing.assert_close(attention(changed, None, None, need_weights=False)[0][:100], found[:100], rtol=0, atol=0)


def test_a_causal_sentence_is_computed_as_by_itself() -> None:
    check_alone(make(causal=True), [60, 33, 1], outputs=(1e-9, 1e-9), gradients=(1e-8, 1e-8))
