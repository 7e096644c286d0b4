"""Every peer is attention as it says; the other Linformers compute what ours does."""

import sys

import pytest
import torch
from torch import Tensor, nn

from linformer_fairseq.benchmark.efficiency.peers import PEERS, NotInstalledError, Peer
from linformer_fairseq.benchmark.efficiency.sizes import Sizes
from linformer_fairseq.modules import LinearProjection, LinformerMultiheadAttention

SIZES = Sizes(dim=16, heads=2, length=512, k=16)
BATCH = 2
NAMES = {peer.name: peer for peer in PEERS}
LINFORMERS = [peer.name for peer in PEERS if peer.adopt]
every_peer = pytest.mark.parametrize("name", NAMES)
every_linformer = pytest.mark.parametrize("name", LINFORMERS)


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


def make_ours(sizes: Sizes = SIZES) -> LinformerMultiheadAttention:
    """In float64, without the biases that some Linformers have no place for."""
    ours = LinformerMultiheadAttention(
        sizes.dim,
        sizes.heads,
        self_attention=True,
        key_projection=LinearProjection(sizes.k, sizes.length),
        value_projection=LinearProjection(sizes.k, sizes.length),
    ).double()
    for linear in (ours.q_proj, ours.k_proj, ours.v_proj):
        nn.init.zeros_(linear.bias)
    nn.init.normal_(ours.out_proj.bias)
    return ours


def assert_same(
    peer: Peer, theirs: nn.Module, ours: LinformerMultiheadAttention, rtol: float = 1e-10, atol: float = 1e-10
) -> None:
    """In the output and in the gradient of the input."""
    x = sentences(torch.float64)
    upstream = torch.randn_like(x)
    tokens = x.transpose(0, 1)
    expected = ours(tokens, tokens, tokens, need_weights=False)[0].transpose(0, 1)
    out = call(peer, theirs, x)
    torch.testing.assert_close(out, expected, rtol=rtol, atol=atol)
    gradients = (torch.autograd.grad(y, x, upstream)[0] for y in (out, expected))
    torch.testing.assert_close(*gradients, rtol=rtol, atol=atol)


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


@every_linformer
def test_linformers_with_our_weights_compute_the_same(name: str) -> None:
    peer = NAMES[name]
    theirs, ours = build(peer).double(), make_ours()
    peer.adopt(theirs, ours)
    tolerance = 1e-6 if peer.time_first else 1e-10  # fairseq's softmax is in float32
    assert_same(peer, theirs, ours, tolerance, tolerance)


def test_fairseqs_linformer_adopts_biases() -> None:
    peer = next(peer for peer in PEERS if peer.time_first)
    theirs, ours = build(peer).double(), make_ours()
    for linear in (ours.q_proj, ours.k_proj, ours.v_proj):
        nn.init.normal_(linear.bias)
    peer.adopt(theirs, ours)
    assert_same(peer, theirs, ours, 1e-6, 1e-6)


@pytest.mark.parametrize("name", [name for name in LINFORMERS if not NAMES[name].time_first])
def test_biases_without_a_place_are_refused(name: str) -> None:
    theirs, ours = build(NAMES[name]).double(), make_ours()
    nn.init.normal_(ours.q_proj.bias)
    with pytest.raises(ValueError, match="set ours to zero"):
        NAMES[name].adopt(theirs, ours)


def test_a_k_builds_the_linformers_alone() -> None:
    assert [peer.name for peer in PEERS if peer.takes_k] == LINFORMERS
    assert len(NAMES) == len(PEERS)


@every_linformer
@pytest.mark.parametrize(("k", "length"), [(3, 12), (12, 12)])
def test_linformers_have_k_slots(name: str, k: int, length: int) -> None:
    module = build(NAMES[name], SIZES._replace(k=k, length=length))
    assert sum(sorted(parameter.shape) == sorted((k, length)) for parameter in module.parameters()) == 2


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


@pytest.mark.parametrize(("name", "module"), [("Performer", "performer_pytorch"), ("Longformer", "transformers")])
def test_missing_package_is_told(monkeypatch: pytest.MonkeyPatch, name: str, module: str) -> None:
    peer = next(peer for peer in PEERS if peer.name.startswith(name))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotInstalledError) as caught:
        peer.build(SIZES)
    assert str(caught.value).startswith(f"{peer.package} cannot be imported (")
    assert str(caught.value).endswith("): pip install 'linformer_fairseq[peers]'")
