"""Nyströmformer is what its package computes, between our linear layers."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import BaseAttention
from tests.peers.conftest import make_peer
from tests.reference import padding_mask


def make(**options: object) -> BaseAttention:
    return make_peer("nystromformer", **options)


def package_of(attention: BaseAttention) -> torch.nn.Module:
    """Returns the package's own module with the weights of ours, whose biases of queries, keys and values are zero."""
    from nystrom_attention import NystromAttention

    theirs = NystromAttention(8, dim_head=4, heads=2, num_landmarks=attention.landmarks).double()
    with torch.no_grad():
        theirs.to_qkv.weight.copy_(torch.cat([getattr(attention, f"{x}_proj").weight for x in "qkv"]))
        theirs.to_out[0].load_state_dict(attention.out_proj.state_dict())
        theirs.res_conv.load_state_dict(attention.core.res_conv.state_dict())
        for name in "qkv":
            getattr(attention, f"{name}_proj").bias.zero_()
    return theirs.eval()


@given(n=st.sampled_from([1, 7, 8, 40, 64, 100]), landmarks=st.sampled_from([1, 4, 8]))
@torch.no_grad()
def test_is_the_packages(n: int, landmarks: int) -> None:
    """With a mask for what the package adds to fill up a landmark, which it takes for tokens otherwise."""
    attention = make(landmarks=landmarks)
    theirs, x = package_of(attention), torch.randn(n, 2, 8, dtype=torch.float64)
    for lengths in ([n, n], [n, max(1, n // 2)]):
        mask = padding_mask(lengths)
        expected = theirs(x.masked_fill(mask.t()[..., None], 0.0).transpose(0, 1), mask=~mask).transpose(0, 1)
        found, _ = attention(x, x, x, mask, need_weights=False)
        torch.testing.assert_close(found, expected)
    if n % landmarks == 0:
        torch.testing.assert_close(attention(x, x, x, need_weights=False)[0], theirs(x.transpose(0, 1)).transpose(0, 1))


@torch.no_grad()
def test_as_many_landmarks_as_tokens_are_full_attention() -> None:
    attention = make(landmarks=16, random=False)
    attention.core.res_conv.weight.zero_()
    full = torch.nn.MultiheadAttention(8, 2).double()
    full.in_proj_weight.copy_(torch.cat([getattr(attention, f"{x}_proj").weight for x in "qkv"]))
    full.in_proj_bias.copy_(torch.cat([getattr(attention, f"{x}_proj").bias for x in "qkv"]))
    full.out_proj.load_state_dict(attention.out_proj.state_dict())
    x = 6 * torch.randn(16, 2, 8, dtype=torch.float64)  # distinct maps, whose inverse six steps find
    torch.testing.assert_close(attention(x, x, x, need_weights=False)[0], full(x, x, x)[0], rtol=0.2, atol=0.2)
