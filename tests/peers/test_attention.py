"""What other packages compute is encoder self-attention like any other, but for what they cannot do."""

import copy
import pickle
import sys

import pytest
import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import BaseAttention
from tests.modules.test_value_convolution import naive_convolution, without_convolution
from tests.peers.conftest import PACKAGES, PEERS, make_peer
from tests.reference import make_attention, padding_mask

every_peer = pytest.mark.parametrize("kind", PEERS)
OPTIONS = {"window_size": 8, "landmarks": 4, "features": 7, "bucket_size": 8, "hashes": 2}
"""Options of all peers, of which each takes its own."""
ONE_ROUND = {"bucket_size": 50, "hashes": 1}
"""Options with which Reformer attends to all of 100 tokens, however they are hashed."""
OWN_WEIGHTS = {
    "longformer": set(),
    "nystromformer": {"core.res_conv.weight"},
    "performer": {"core.projection_matrix"},
    "reformer": set(),
}


def make(kind: str, **options: object) -> BaseAttention:
    return make_peer(kind, **{**OPTIONS, **options})


def attend(attention: BaseAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The output; what a kind draws at random is the same in every call."""
    torch.manual_seed(1)
    return attention(x, x, x, key_padding_mask=mask, need_weights=False)[0]


def sentences(n: int = 50, batch: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, batch, 8, dtype=dtype)


@every_peer
@pytest.mark.parametrize("n", [1, 3, 16, 50])
def test_gradients_reach_all_parameters(kind: str, n: int) -> None:
    """Also those of sentences shorter than a window, and than there are landmarks."""
    attention = make(kind).train()
    x = sentences(n).requires_grad_()
    mask = padding_mask([n, max(1, n // 2), 1])
    for given in (None, mask):
        out = attend(attention, x, given)
        assert out.shape == x.shape
        parameters = dict(attention.named_parameters())
        kept = torch.randn_like(out) if given is None else torch.randn_like(out).masked_fill(given.t()[..., None], 0.0)
        gradients = torch.autograd.grad(out, [x, *parameters.values()], kept)
        for name, gradient in zip(["x", *parameters], gradients, strict=True):
            assert gradient.isfinite().all(), name
            # a single token gets all attention, whatever its query and key
            unused = ("k_proj." if kind == "reformer" else "k_proj.bias") in name or (n == 1 and "_proj" in name)
            assert gradient.abs().max() > 1e-12 or unused, name


@every_peer
@torch.no_grad()
def test_what_stands_in_padding_never_matters(kind: str) -> None:
    attention, x = make(kind), sentences(50, 4)
    mask = padding_mask([50, 23, 8, 1])
    expected = attend(attention, x.masked_fill(mask.t()[..., None], 0.0), mask)
    for poison in (1e9, torch.inf, torch.nan):
        found = attend(attention, x.masked_fill(mask.t()[..., None], poison), mask)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@every_peer
@pytest.mark.parametrize("n", [48, 50])
@torch.no_grad()
def test_neither_a_mask_without_padding_nor_the_batch_matters(kind: str, n: int) -> None:
    """Exactly, but for Nyströmformer, whose pseudo-inverse starts from a number of the whole batch. Nor does what a
    package adds to whole windows and landmarks count."""
    attention, x = make(kind, random=False), sentences(n)
    out = attend(attention, x)
    torch.testing.assert_close(attend(attention, x, padding_mask([n] * 3)), out, rtol=0, atol=1e-5)
    tolerance = 1e-2 if kind == "nystromformer" else 1e-9
    torch.testing.assert_close(out[:, :1], attend(attention, x[:, :1]), rtol=0, atol=tolerance)


@every_peer
def test_a_call_leaves_nothing_in_the_package(kind: str) -> None:
    """Another thread may be in the middle of a call with a text of another length."""
    attention = make(kind)
    before = dict(vars(attention.core))
    attend(attention, sentences(3))
    assert vars(attention.core) == before


@every_peer
def test_an_empty_sentence_harms_no_other(kind: str) -> None:
    attention, x = make(kind), sentences(20, 2).requires_grad_()
    out = attend(attention, x, padding_mask([20, 0]))
    assert out.isfinite().all()
    (gradient,) = torch.autograd.grad(out[:, 0].sum(), x)
    assert gradient.isfinite().all()
    for shape in ((0, 2, 8), (5, 0, 8)):
        assert attend(attention, torch.zeros(shape, dtype=torch.float64)).shape == shape


@every_peer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(kind: str, dtype: torch.dtype, autocast: bool) -> None:
    half = make(kind, dtype=dtype, random=False, **ONE_ROUND)
    exact = make(kind, random=False, **ONE_ROUND)
    exact.load_state_dict(half.state_dict())
    if autocast:
        half = half.float()
    x = sentences(100, 2).to(dtype).to(torch.float32 if autocast else dtype).requires_grad_()
    mask = padding_mask([100, 70])
    with torch.autocast("cpu", dtype, enabled=autocast):
        out = attend(half, x, mask)
    assert out.dtype == dtype
    out, expected = (y.masked_fill(mask.t()[..., None], 0.0) for y in (out, attend(exact, x.double(), mask)))
    assert (out - expected).norm() < 0.05 * expected.norm()
    out.float().square().mean().backward()
    assert all(y.grad.dtype == y.dtype and y.grad.isfinite().all() for y in (x, *half.parameters()))
    assert torch.get_default_dtype() == torch.float32


@every_peer
@torch.no_grad()
def test_weights_have_fairseqs_names_and_can_be_copied(kind: str) -> None:
    """What is beyond them is known to loading as no Transformer's."""
    attention, x = make(kind), sentences()
    expected, state = attend(attention, x), attention.state_dict()
    assert {*state} == {*MultiheadAttention(8, 2).state_dict()} | OWN_WEIGHTS[kind]
    inside = {f"encoder.layers.0.self_attn.{name}": weight for name, weight in state.items()}
    assert {name.rpartition("self_attn.")[2] for name in projection_weights(inside)} == OWN_WEIGHTS[kind]
    loaded = make(kind, random=False)
    loaded.load_state_dict(state)
    copied, pickled = copy.deepcopy(attention), pickle.loads(pickle.dumps(attention))
    for parameter in attention.parameters():
        parameter.zero_()
    for other in (loaded, copied, pickled):
        torch.testing.assert_close(attend(other, x), expected, rtol=0, atol=0)


@every_peer
def test_a_convolution_stands_beside_it(kind: str) -> None:
    """Nyströmformer's own gives way to it."""
    attention, lengths = make_peer(kind, value_convolution=5), [9, 5]
    mask, x = padding_mask(lengths), torch.randn(9, 2, 8, dtype=torch.float64)
    expected = without_convolution(attention, x, mask) + naive_convolution(attention, x, lengths)
    torch.testing.assert_close(attention(x, x, x, mask, need_weights=False)[0], expected)
    assert not any("res_conv" in name for name in attention.state_dict())


@every_peer
def test_refusals(kind: str) -> None:
    with pytest.raises(ValueError, match=f"^{kind} is for the encoder's self-attention alone: pass self_att"):
        make(kind, encoder_decoder_attention=True)
    attention, x = make(kind), sentences()
    for options, said in (
        ({}, f"{kind} gives no attention weights: pass need_weights=False"),
        ({"need_weights": False, "key": x + 1}, f"{kind} is self-attention: pass one tensor as query, key and value"),
        (
            {"need_weights": False, "incremental_state": {}, "static_kv": True},
            f"{kind} keeps no incremental_state: leave it out",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            attention(**{"query": x, "key": x, "value": x, **options})


@every_peer
def test_a_missing_package_is_told(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[kind], None)
    with pytest.raises(ValueError, match=r"cannot be imported \(.*\): pip install 'linformer_fairseq\[peers\]'$"):
        make_attention(kind)
