"""On a GPU every kind of attention computes its formula, and full attention runs as flash attention."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from linformer_fairseq.modules.registry import KINDS_AT
from tests.modules.two_level.sizes import NARROW
from tests.reference import REFERENCED, make_attention, naive_attention, padding_mask

pytestmark = pytest.mark.gpu
N = 64
EVERYWHERE = [
    (place, name) for place, kinds in KINDS_AT.items() for name, kind in kinds.items() if kind.attention in REFERENCED
]


def rolled(x: Tensor, shifts: list[int]) -> Tensor:
    """Moves each sentence of (n, B, C) by so many tokens."""
    return torch.stack([x[:, i].roll(shift, 0) for i, shift in enumerate(shifts)], 1)


@pytest.mark.parametrize("padded", ["nowhere", "left", "right"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("place", "kind"), EVERYWHERE)
def test_values_and_gradients_are_those_of_the_formula(place: str, kind: str, dtype: torch.dtype, padded: str) -> None:
    """With weights and inputs that are rounded alike, and differences as a share of the norm."""
    if (place, padded) == ("decoder", "left"):
        pytest.skip("causal attention has padding on the right")
    own = {"encoder_decoder_attention": True} if place == "cross" else {}
    attention = make_attention(kind, k=16, n=N, embed_dim=32, causal=place == "decoder", **NARROW, **own)
    with torch.no_grad():
        for weight in attention.parameters():
            weight.copy_((0.4 * weight).to(dtype))
    lengths = [N, N, N] if padded == "nowhere" else [N, 37, 50]
    mask = padding_mask(lengths)
    key, query, upstream = (torch.randn(N, 3, 32).to(dtype).double() for _ in range(3))
    leaves = [key, query] if place == "cross" else [key]
    if place != "cross":  # what queries of padding get is nobody's
        upstream = upstream.masked_fill(mask.t()[..., None], 0.0)
    shifts = [N - n if padded == "left" else 0 for n in lengths]

    def computed(device: str, dtype: torch.dtype, formula: bool) -> list[Tensor]:
        attention.to(device, dtype)
        inputs = [x.to(device, dtype).requires_grad_() for x in leaves]
        if formula:
            out, _ = naive_attention(attention, inputs[-1], inputs[0], lengths)
        else:
            keys = rolled(inputs[0], shifts)
            queries = inputs[1] if place == "cross" else keys
            hidden = mask.flip(1) if padded == "left" else mask
            out, _ = attention(queries, keys, keys, hidden.to(device), need_weights=False)
            out = out if place == "cross" else rolled(out, [-shift for shift in shifts])
        weights = [weight for name, weight in attention.named_parameters() if name != "k_proj.bias"]  # has no effect
        upward = upstream.to(out)
        found = torch.autograd.grad(out, [*inputs, *weights], upward, allow_unused=True, materialize_grads=True)
        return [x.double().cpu() for x in (out * upward.ne(0), *found)]

    expected, found = computed("cpu", torch.float64, True), computed("cuda", dtype, False)
    near = 1e-3
    if dtype == torch.float16:  # where two tokens are about as good, the other one may be chosen
        near = 0.2 if kind in ("two-level", "key-clusters") else 1e-2
    for a, b in zip(found, expected, strict=True):
        assert (a - b).norm() <= near * b.norm()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("place", KINDS_AT)
def test_full_attention_is_flash_attention(place: str, padded: bool) -> None:
    """But where padding needs a mask, as it does in an encoder and in cross-attention."""
    backends = pytest.importorskip("torch.nn.attention")  # which torch has from 2.3 on
    own = {"encoder_decoder_attention": True} if place == "cross" else {}
    attention = make_attention("full", causal=place == "decoder", embed_dim=32, dtype=torch.float16, **own).cuda()
    x = torch.randn(N, 2, 32, device="cuda", dtype=torch.float16, requires_grad=True)
    mask = padding_mask([N, 50 if padded else N]).cuda()
    refused = pytest.raises(RuntimeError) if padded and place != "decoder" else nullcontext()
    with backends.sdpa_kernel(backends.SDPBackend.FLASH_ATTENTION), refused:
        attention(x, x, x, mask, need_weights=False)[0].sum().backward()
    with backends.sdpa_kernel(backends.SDPBackend.EFFICIENT_ATTENTION):
        attention(x, x, x, mask, need_weights=False)[0].sum().backward()
