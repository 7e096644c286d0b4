"""Every kind of projection against a matrix written down by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.benchmark.memory import peak_bytes
from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.modules.ops.naive import pooling_matrix
from tests.reference import PROJECTIONS

LENGTHS = st.lists(st.integers(1, 24), min_size=1, max_size=4)


def padded(lengths: list[int], groups: int, features: int) -> torch.Tensor:
    """(n, B, G, D), zero behind the end of each sentence."""
    x = torch.randn(max(lengths), len(lengths), groups, features, dtype=torch.float64)
    for sentence, length in enumerate(lengths):
        x[length:, sentence] = 0
    return x


@pytest.mark.parametrize("kind", PROJECTIONS)
@pytest.mark.parametrize("heads", [None, 2])
def test_forward_is_the_product_with_matrix(kind: str, heads: int | None) -> None:
    if kind == "max-pool":
        pytest.skip("a maximum has no matrix")
    torch.manual_seed(0)
    projection = PROJECTIONS[kind](4, 24, heads).double()
    for parameter in projection.parameters():
        torch.nn.init.normal_(parameter)
    lengths = torch.tensor([9, 3, 24])
    x = padded(lengths.tolist(), heads or 1, 5)
    matrix = projection.matrix(24, lengths, x.dtype).expand(3, heads or 1, -1, -1)
    expected = torch.einsum("bgsn,nbgd->bgsd", matrix, x)
    torch.testing.assert_close(projection(x, lengths), expected)


@given(lengths=LENGTHS, k=st.integers(1, 24), groups=st.sampled_from([1, 3]))
def test_mean_pool_takes_means_of_even_windows(lengths: list[int], k: int, groups: int) -> None:
    x = padded(lengths, groups, 2)
    out = PROJECTIONS["mean-pool"](k, 24)(x, torch.tensor(lengths))
    for sentence, length in enumerate(lengths):
        expected = torch.einsum("sn,ngd->gsd", pooling_matrix(length, k), x[:length, sentence])
        torch.testing.assert_close(out[sentence, :, : min(k, length)], expected)


@given(lengths=LENGTHS, k=st.integers(1, 24))
def test_max_pool_takes_maxima_of_the_same_windows(lengths: list[int], k: int) -> None:
    x = padded(lengths, 1, 3)
    out = PROJECTIONS["max-pool"](k, 24)(x, torch.tensor(lengths))
    for sentence, length in enumerate(lengths):
        for slot, row in enumerate(pooling_matrix(length, k)):
            window = x[:length, sentence, 0][row > 0]
            torch.testing.assert_close(out[sentence, 0, slot], window.amax(0))


@given(length=st.integers(1, 64), k=st.integers(1, 64))
def test_windows_differ_by_one_token_at_most(length: int, k: int) -> None:
    sizes = PROJECTIONS["mean-pool"](k, 64).windows(length, torch.tensor([length])).of_tokens[0].bincount()
    assert len(sizes) == min(k, length)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


@given(length=st.integers(1, 64), k=st.integers(1, 64))
def test_conv_slides_its_kernel_by_its_width(length: int, k: int) -> None:
    projection = PROJECTIONS["conv"](k, 64).double()
    torch.nn.init.normal_(projection.weight)
    x = padded([length], 1, 1)
    width = projection.kernel_size
    out = torch.nn.functional.pad(x.view(1, 1, -1), (0, -length % width))
    expected = torch.nn.functional.conv1d(out, projection.weight.view(1, 1, -1), stride=width)
    torch.testing.assert_close(projection(x, torch.tensor([length])).view(1, 1, -1), expected)
    assert projection.num_slots(length) <= k
    assert projection.filled_slots(torch.tensor([length])).item() == expected.size(2)


def test_starts() -> None:
    torch.manual_seed(0)
    k, n = 16, 256
    xavier = LinearProjection(k, n).weight
    assert xavier.abs().max() <= (6 / (k + n)) ** 0.5
    assert xavier.std().item() == pytest.approx((2 / (k + n)) ** 0.5, rel=0.05)
    # each head starts as a matrix of its own would, not as one tensor of three axes
    heads = LinearProjection(k, n, num_heads=3).weight
    assert heads.std().item() == pytest.approx((2 / (k + n)) ** 0.5, rel=0.05)
    assert LinearProjection(k, n, init="normal").weight.std().item() == pytest.approx(k**-0.5, rel=0.05)
    identity = LinearProjection(k, n, init="identity").weight
    assert torch.equal(identity[:, :k], torch.eye(k))
    assert 0 < identity[:, k:].abs().max() <= (6 / (k + n)) ** 0.5
    assert PROJECTIONS["pooled-linear"](k, n).weight.abs().max() == 0
    assert torch.equal(PROJECTIONS["conv"](k, n).weight, torch.full((n // k,), k / n))


@pytest.mark.parametrize("kind", PROJECTIONS)
@pytest.mark.parametrize(("k", "sentence"), [(0, "at least 1"), (-3, "at least 1"), (65, "larger than the longest")])
def test_refuses_an_impossible_k(kind: str, k: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PROJECTIONS[kind](k, 64)


def test_refuses_an_unknown_start() -> None:
    with pytest.raises(ValueError, match="unknown start 'magic'"):
        LinearProjection(4, 8, init="magic")


def test_convolution_does_not_copy_the_tokens_for_every_head() -> None:
    x = torch.randn(1024, 2, 1, 16)
    projection, lengths = PROJECTIONS["conv"](8, 1024, num_heads=8), torch.full((2,), 1024)
    assert peak_bytes(lambda: projection(x, lengths), torch.device("cpu")) < 2 * x.nbytes
