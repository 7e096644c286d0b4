"""What other packages compute is encoder self-attention like any other, but for what they cannot do."""

import copy
import pickle
import sys

import pytest
import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import KINDS, ProjectedAttention
from linformer_fairseq.modules.peers.packages import NotInstalledError
from tests.peers import PEERS, make_peer
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
PACKAGES = {
    "longformer": "transformers",
    "nystromformer": "nystrom_attention",
    "performer": "performer_pytorch",
    "reformer": "reformer_pytorch",
}


def make(kind: str, **options: object) -> ProjectedAttention:
    return make_peer(kind, **{"n": 200, **OPTIONS, **options})


def attend(attention: ProjectedAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
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
@torch.no_grad()
def test_sentences_of_one_length_hardly_depend_on_each_other(kind: str) -> None:
    """Exactly, but for Nyströmformer, whose pseudo-inverse starts from a number of the whole batch."""
    attention, x = make(kind, random=False), sentences()
    tolerance = 1e-3 if kind == "nystromformer" else 1e-9
    torch.testing.assert_close(attend(attention, x)[:, :1], attend(attention, x[:, :1]), rtol=0, atol=tolerance)


@every_peer
@pytest.mark.parametrize("n", [48, 50])
@torch.no_grad()
def test_a_mask_without_padding_changes_nothing(kind: str, n: int) -> None:
    """Nor does what a package adds to whole windows and landmarks count."""
    attention, x = make(kind), sentences(n)
    torch.testing.assert_close(attend(attention, x, padding_mask([n] * 3)), attend(attention, x), rtol=0, atol=1e-5)


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
def test_weights_have_fairseqs_names(kind: str) -> None:
    """What is beyond them is known to loading as no Transformer's."""
    state = make(kind).state_dict()
    assert {*state} == {*MultiheadAttention(8, 2).state_dict()} | OWN_WEIGHTS[kind]
    inside = {f"encoder.layers.0.self_attn.{name}": weight for name, weight in state.items()}
    assert {name.rpartition("self_attn.")[2] for name in projection_weights(inside)} == OWN_WEIGHTS[kind]


@every_peer
@torch.no_grad()
def test_copies_and_saved_states_compute_the_same(kind: str) -> None:
    """A copy uses weights of its own."""
    attention, x = make(kind), sentences()
    expected = attend(attention, x)
    loaded = make(kind, random=False)
    loaded.load_state_dict(attention.state_dict())
    copied, pickled = copy.deepcopy(attention), pickle.loads(pickle.dumps(attention))
    for parameter in attention.parameters():
        parameter.zero_()
    for other in (loaded, copied, pickled):
        torch.testing.assert_close(attend(other, x), expected, rtol=0, atol=0)


@every_peer
def test_takes_what_fairseq_leaves_out(kind: str) -> None:
    attention, x = make(kind, **ONE_ROUND), sentences()
    torch.testing.assert_close(attention(x, None, None, need_weights=False)[0], attend(attention, x))


@every_peer
def test_quantisation_noise(kind: str) -> None:
    attention, x = make(kind, q_noise=0.5, qn_block_size=4, **ONE_ROUND).train(), sentences()
    outs = [attention(x, x, x, need_weights=False)[0] for _ in range(2)]
    assert not torch.equal(*outs)


@every_peer
def test_only_padding_may_reach_beyond_the_longest_length(kind: str) -> None:
    attention, x = make(kind, n=16), sentences(20, 2)
    with pytest.raises(ValueError, match="a source of 20 tokens is longer than the 16 positions"):
        attend(attention, x)
    assert attend(attention, x, padding_mask([16, 5], 20)).shape == x.shape


@every_peer
def test_refusals(kind: str) -> None:
    with pytest.raises(ValueError, match=f"^{kind} is for the encoder's self-attention alone: use --linformer-att"):
        make(kind, encoder_decoder_attention=True)
    attention, x = make(kind), sentences()
    for options, said in (
        ({}, f"{kind} gives no attention weights: pass need_weights=False"),
        ({"need_weights": False, "key": x + 1}, f"{kind} is self-attention: pass one tensor as query, key and value"),
        ({"need_weights": False, "incremental_state": {}}, "does not support incremental_state"),
        (
            {"need_weights": False, "incremental_state": {}, "static_kv": True},
            f"{kind} keeps no incremental_state: leave it out",
        ),
        ({"need_weights": False, "attn_mask": torch.zeros(50, 50)}, "supports no attn_mask"),
    ):
        with pytest.raises(ValueError, match=said):
            attention(**{"query": x, "key": x, "value": x, **options})


@every_peer
def test_a_missing_package_is_told(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[kind], None)
    with pytest.raises(
        NotInstalledError, match=r"cannot be imported \(.*\): pip install 'linformer_fairseq\[peers\]'$"
    ):
        make_attention(kind)
    assert KINDS[kind].encoder_only
