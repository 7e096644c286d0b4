"""Every peer is attention as it says; that the other Linformers compute what ours does is for the check to find."""

import sys

import pytest
import torch
from torch import Tensor, nn

from linformer_fairseq.benchmark.efficiency.peers import PEERS, NotInstalledError, Peer, Sizes

SIZES = Sizes(dim=16, heads=2, length=512, k=16)
BATCH = 2
NAMES = {peer.name: peer for peer in PEERS}
LINFORMERS = [peer.name for peer in PEERS if peer.adopt]
every_peer = pytest.mark.parametrize("name", NAMES)


def build(peer: Peer, sizes: Sizes = SIZES) -> nn.Module:
    try:
        return peer.build(sizes)
    except NotInstalledError as error:
        pytest.skip(str(error))


def sentences(dtype: torch.dtype = torch.float32) -> Tensor:
    """(B, n, C)."""
    return torch.randn(BATCH, SIZES.length, SIZES.dim, dtype=dtype, requires_grad=True)


def call(peer: Peer, module: nn.Module, x: Tensor) -> Tensor:
    """(B, n, C) to (B, n, C); what a module draws at random is the same in every call."""
    torch.manual_seed(1)
    return module(x.transpose(0, 1)).transpose(0, 1) if peer.time_first else module(x)


@every_peer
@pytest.mark.parametrize("training", [False, True])
def test_gradient_reaches_the_input_and_all_weights(name: str, training: bool) -> None:
    module = build(NAMES[name]).train(training)
    x = sentences()
    out = call(NAMES[name], module, x)
    assert out.shape == x.shape
    assert out.dtype == torch.float32
    assert out.isfinite().all()
    parameters = dict(module.named_parameters())
    gradients = torch.autograd.grad(out, [x, *parameters.values()], torch.randn_like(out))
    for what, gradient in zip(["input", *parameters], gradients, strict=True):
        assert gradient.isfinite().all(), what
        # that of a key bias is zero but for rounding, as it drops out of the softmax
        assert what.endswith(("k_proj.bias", "key.bias")) or gradient.any(), what


@every_peer
@torch.no_grad()
def test_every_token_takes_part(name: str) -> None:
    """A token that changes changes its own output, and those of its neighbours."""
    peer = NAMES[name]
    module, x = build(peer).eval(), sentences()
    changed = x.clone()
    changed[:, 200] += 1.0
    differs = (call(peer, module, x) != call(peer, module, changed)).any(-1)
    assert differs[:, 200].all()
    assert differs.sum() > 10 * BATCH


@every_peer
@torch.no_grad()
def test_sentences_do_not_depend_on_each_other(name: str) -> None:
    peer = NAMES[name]
    module, x = build(peer).eval(), sentences()
    # a number that the pseudo-inverse starts from is taken over the whole batch
    atol = 1e-3 if "nystrom" in peer.package else 1e-6
    torch.testing.assert_close(call(peer, module, x)[:1], call(peer, module, x[:1]), rtol=1e-5, atol=atol)


@every_peer
@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, *(pytest.param(x, marks=pytest.mark.exhaustive) for x in (torch.float16, torch.float64))],
)
def test_other_types(name: str, dtype: torch.dtype) -> None:
    module = build(NAMES[name]).to(dtype)
    x = sentences(dtype)
    out = call(NAMES[name], module, x)
    gradients = torch.autograd.grad(out, [x, *module.parameters()], torch.randn_like(out))
    assert {y.dtype for y in (out, *gradients)} == {dtype}
    assert all(y.isfinite().all() for y in (out, *gradients))
    assert torch.get_default_dtype() == torch.float32


@every_peer
@pytest.mark.gpu
def test_on_a_gpu(name: str) -> None:
    peer = NAMES[name]
    module, x = build(peer).eval().cuda(), sentences().detach().cuda().requires_grad_()
    out = call(peer, module, x)
    assert out.device == x.device
    torch.autograd.grad(out, [x, *module.parameters()], torch.randn_like(out))
    if "Reformer" not in name:  # which draws its hashes on the device
        expected = call(peer, module.cpu(), x.cpu())
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-2, atol=1e-2)


def test_a_k_builds_the_linformers_alone() -> None:
    assert [peer.name for peer in PEERS if peer.takes_k] == LINFORMERS
    assert len(NAMES) == len(PEERS)


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        *((name, SIZES._replace(k=513), "k = 513 is larger than the length of 512 tokens") for name in LINFORMERS),
        ("Linformer (fairseq/examples)", SIZES._replace(k=24), "k that divides the length"),
        ("Longformer-257 (transformers)", SIZES._replace(length=384), "multiples of 256 tokens, not 384"),
        ("Reformer (reformer-pytorch)", SIZES._replace(length=64), "multiples of 128 tokens, not 64"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name: str, sizes: Sizes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build(NAMES[name], sizes)


@pytest.mark.parametrize("name", ["Nyströmformer-64 (nystrom-attention)", "local attention (local-attention)"])
def test_packages_that_pad_take_any_length(name: str) -> None:
    x = sentences()[:, :300]
    assert call(NAMES[name], build(NAMES[name], SIZES._replace(length=300)), x).shape == x.shape


def test_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = next(peer for peer in PEERS if peer.package == "transformers")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(NotInstalledError) as caught:
        peer.build(SIZES)
    assert str(caught.value).startswith(f"{peer.package} cannot be imported (")
    assert str(caught.value).endswith("): pip install 'linformer_fairseq[peers]'")
