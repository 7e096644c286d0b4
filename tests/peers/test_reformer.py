"""Reformer is what its package computes, between our linear layers, and padding does not count."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules import BaseAttention
from tests.peers.conftest import make_peer
from tests.reference import assert_checkpointing_changes_nothing, assert_same_gradients, padding_mask

EXACT = [{"bucket_size": 32}, {"bucket_size": 16, "hashes": 1}]
"""Sizes with which a query attends to all of 32 tokens: without hashing, and with two buckets in one round."""
every_exact_size = pytest.mark.parametrize("sizes", EXACT, ids=["full", "hashed"])


def make(**options: object) -> BaseAttention:
    return make_peer("reformer", **options)


def seeded(attention: Callable[..., Tensor], *args: object, **options: object) -> Tensor:
    """What a call gives that hashes as all others do."""
    torch.manual_seed(1)
    return attention(*args, **options)


def attend(attention: BaseAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    return seeded(attention, x, x, x, mask, need_weights=False)[0]


def package_of(attention: BaseAttention) -> torch.nn.Module:
    """Returns the package's own module with the weights of ours, whose biases of queries and values are zero."""
    from reformer_pytorch import LSHSelfAttention

    sizes = {"bucket_size": attention.bucket_size, "n_hashes": attention.hashes}
    theirs = LSHSelfAttention(8, heads=2, **sizes).double()
    with torch.no_grad():
        for linear, ours in ((theirs.toqk, attention.q_proj), (theirs.tov, attention.v_proj)):
            linear.weight.copy_(ours.weight)
            ours.bias.zero_()
        theirs.to_out.load_state_dict(attention.out_proj.state_dict())
    return theirs.eval()


def by_formula(attention: BaseAttention, x: Tensor) -> Tensor:
    """softmax(Q Kᵀ / √d) V of all tokens of sentences (n, B, C) but oneself, where keys are queries of length 1."""
    heads = (x.size(1), len(x), attention.num_heads, attention.head_dim)
    query, value = (
        layer(x).transpose(0, 1).reshape(heads).transpose(1, 2) for layer in (attention.q_proj, attention.v_proj)
    )
    scores = query @ (query / query.norm(dim=-1, keepdim=True)).transpose(2, 3) / attention.head_dim**0.5
    if len(x) > 1:
        scores = scores.masked_fill(torch.eye(len(x)).bool(), -torch.inf)
    return attention.out_proj((scores.softmax(-1) @ value).permute(2, 0, 1, 3).flatten(2))


@given(n=st.sampled_from([1, 7, 8, 9, 16, 40, 100]), hashes=st.sampled_from([1, 2, 4]))
@torch.no_grad()
def test_is_the_packages(n: int, hashes: int) -> None:
    """Which is given whole pairs of buckets, and a mask for what is added to them; a short sentence by itself."""
    attention = make(bucket_size=8, hashes=hashes)
    theirs, x = package_of(attention), torch.randn(n, 2, 8, dtype=torch.float64)
    whole = n if n <= 8 else n + -n % 16
    for lengths in ([n, n], [n, max(1, n // 2)]):
        mask, padded = padding_mask(lengths), padding_mask(lengths, whole)
        clean = torch.zeros(2, whole, 8, dtype=torch.float64)
        clean[:, :n] = x.transpose(0, 1)
        clean[padded] = 0.0
        expected = seeded(theirs, clean, input_mask=~padded)[:, :n].transpose(0, 1)
        found = attend(attention, x, mask)
        if lengths[1] <= 8 < n:
            short = slice(lengths[1]), slice(1, 2)
            torch.testing.assert_close(found[short], theirs(x[short].transpose(0, 1)).transpose(0, 1))
            found, expected = found[:, 0], expected[:, 0]
        torch.testing.assert_close(found, expected)
    if n == whole:
        torch.testing.assert_close(attend(attention, x), seeded(theirs, x.transpose(0, 1)).transpose(0, 1))


@every_exact_size
@given(lengths=st.lists(st.integers(1, 32), min_size=1, max_size=3))
def test_is_the_formula_where_buckets_hold_all_tokens(sizes: dict[str, int], lengths: list[int]) -> None:
    """Whatever else is in the batch."""
    attention = make(**sizes)
    lengths = [32, *lengths]
    x = torch.randn(32, len(lengths), 8, dtype=torch.float64, requires_grad=True)
    out = attend(attention, x, padding_mask(lengths))
    for sentence, n in enumerate(lengths):
        one = x[:n, sentence : sentence + 1]
        expected = by_formula(attention, one)
        for found in (out[:n, sentence : sentence + 1], attend(attention, one)):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
            assert_same_gradients(found, expected, [x, *attention.parameters()], rtol=1e-8, atol=1e-8)


@given(short=st.lists(st.integers(0, 8), min_size=1, max_size=3), longer=st.integers(9, 40), left=st.booleans())
def test_a_short_sentence_is_not_hashed_among_longer_ones(short: list[int], longer: int, left: bool) -> None:
    """On whichever side its padding stands."""
    attention = make(bucket_size=8)
    mask = padding_mask([*short, longer])
    mask = mask.flip(1) if left else mask
    x = torch.randn(longer, len(mask), 8, dtype=torch.float64, requires_grad=True)
    out = attend(attention, x, mask)
    for sentence, n in enumerate(short):
        if n:
            one = x[~mask[sentence], sentence : sentence + 1]
            found, expected = out[~mask[sentence], sentence : sentence + 1], by_formula(attention, one)
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
            assert_same_gradients(found, expected, [x, *attention.parameters()], rtol=1e-8, atol=1e-8)


@torch.no_grad()
def test_hashing_finds_the_token_that_is_asked_for() -> None:
    """Far away, and though every call hashes at random."""
    attention = make(num_heads=1, bucket_size=16, hashes=16)
    for layer in (attention.q_proj, attention.v_proj, attention.out_proj):
        layer.load_state_dict({"weight": torch.eye(8), "bias": torch.zeros(8)})
    attention.q_proj.weight.mul_(10_000).diagonal()[7] = 0.0  # the last feature is of values alone
    x = torch.randn(128, 1, 8, dtype=torch.float64)
    outs = [attention(x, x, x, need_weights=False)[0] for _ in range(2)]
    assert not torch.equal(*outs)
    x[90, :, :7] = x[40, :, :7]
    for _ in range(3):
        out, _ = attention(x, x, x, need_weights=False)
        torch.testing.assert_close(out[[40, 90]], x[[90, 40]])


@pytest.mark.parametrize("n", [5, 50])
@pytest.mark.parametrize("autocast", [False, True])
def test_scores_may_be_beyond_half_precision(n: int, autocast: bool) -> None:
    """Which queries are not."""
    attention = make(bucket_size=8, dtype=torch.float32)
    attention.q_proj.load_state_dict({"weight": 60_000 * torch.eye(8), "bias": torch.zeros(8)})
    x = torch.randn(n, 2, 8).sign().requires_grad_()
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        out = attend(attention, x) if autocast else attend(attention.half(), x.half())
    assert out.dtype == torch.float16
    assert all(y.isfinite().all() for y in (out, *torch.autograd.grad(out, x, torch.randn_like(out))))


@pytest.mark.parametrize("n", [5, 50])
def test_the_layer_of_the_keys_takes_no_part(n: int) -> None:
    """But has a gradient."""
    attention, x = make(bucket_size=8).train(), torch.randn(n, 2, 8, dtype=torch.float64)
    out = attend(attention, x)
    out.square().sum().backward()
    for name in ("q", "k", "v", "out"):
        for parameter in getattr(attention, f"{name}_proj").parameters():
            assert bool(parameter.grad.any()) == (name != "k")
    with torch.no_grad():
        for parameter in attention.k_proj.parameters():
            parameter.normal_()
    torch.testing.assert_close(attend(attention, x), out, rtol=0, atol=0)
    bare = make(bucket_size=8, bias=False)
    attend(bare, x).sum().backward()
    assert not bare.k_proj.weight.grad.any()


def test_activations_may_be_checkpointed() -> None:
    """They are hashed again as they were."""
    attention = make(bucket_size=4, hashes=2).train()
    attention.forward = lambda *args, forward=attention.forward, **options: seeded(forward, *args, **options)
    assert_checkpointing_changes_nothing(attention, [30, 17])


@every_exact_size
@torch.no_grad()
def test_dropout_falls_on_the_weights_in_training_alone(sizes: dict[str, int]) -> None:
    attention = make(dropout=0.5, **sizes)
    x = torch.randn(32, 1, 8, dtype=torch.float64).expand(32, 2000, 8)
    expected = attend(attention, x)
    torch.testing.assert_close(expected[:, 0], expected[:, 1])
    attention.train()
    out = attend(attention, x)
    assert not torch.equal(out[:, 0], out[:, 1])
    torch.testing.assert_close(out.mean(1), expected[:, 0], rtol=0, atol=0.15 * expected.std().item())
    attention.eval()
    torch.testing.assert_close(attend(attention, x), expected)
    attention.dropout_module.apply_during_inference = True  # fairseq's `--retain-dropout`
    out = attend(attention, x)
    assert not torch.equal(out[:, 0], out[:, 1])
