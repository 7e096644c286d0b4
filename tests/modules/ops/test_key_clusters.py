"""Clusters of similar keys are as even as can be, and those of a sentence alone, whatever stands beside it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.key_clusters import Clusters, largest_power_of_two, spread

COUNTS = st.sampled_from([1, 2, 4, 16, 64, 512])


def of_tokens(clusters: Clusters, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the cluster of each token and the share of it that the token has, both (B, H, n)."""
    heads, batch, _ = clusters.starts.shape
    number = clusters.starts.size(2) if clusters.sizes is None else clusters.sizes.size(1)
    each = torch.eye(number, dtype=torch.float64).expand(batch, heads, -1, -1)
    tokens = clusters.order.view(heads, batch, n).transpose(0, 1) // (heads * batch)
    shares, own = spread(each, tokens, clusters.sizes).max(2)
    return own, shares


@given(count=COUNTS, lengths=st.lists(st.integers(1, 150), min_size=1, max_size=3), padded=st.integers(0, 40))
def test_clusters_have_all_tokens_and_are_even(count: int, lengths: list[int], padded: int) -> None:
    keys = torch.randn(max(lengths) + padded, len(lengths), 2, 12, dtype=torch.float64)
    clusters = Clusters.of(keys, torch.tensor(lengths), count)
    own, shares = of_tokens(clusters, len(keys))
    tokens, within = clusters.tokens()
    assert clusters.sizes is not None
    assert within is not None
    assert torch.equal(clusters.counts()[:, 0], clusters.sizes)
    for sentence, length in enumerate(lengths):
        sizes = clusters.sizes[sentence]
        assert len(sizes) <= count
        assert sizes.sum() == length
        assert sizes.max() - sizes.min() <= 1
        for head in range(2):
            found = own[sentence, head, :length]
            assert found.bincount(minlength=len(sizes)).equal(sizes)
            assert shares[sentence, head, :length].tolist() == pytest.approx((1 / sizes[found]).tolist())
            assert torch.equal(clusters.labels()[sentence, head, :length], found)
            for number in range(len(sizes)):
                members = tokens[sentence, head, number][within[sentence, 0, number]]
                assert sorted(members.tolist()) == (found == number).nonzero().flatten().tolist()


@given(count=COUNTS, lengths=st.lists(st.integers(1, 150), min_size=2, max_size=3), padded=st.integers(0, 40))
def test_a_sentence_has_the_same_clusters_alone(count: int, lengths: list[int], padded: int) -> None:
    n, batch = max(lengths) + padded, len(lengths)
    keys, values = torch.randn(n, batch, 2, 12, dtype=torch.float64), torch.randn(n, batch, 3, dtype=torch.float64)
    together = Clusters.of(keys, torch.tensor(lengths), count)
    assert together.sizes is not None
    for sentence, length in enumerate(lengths):
        alone = Clusters.of(keys[:length, [sentence]], None, count)
        for x in (keys, values):
            found, expected = alone.means(x[:length, [sentence]]), together.means(x)[:, [sentence]]
            if alone.sizes is not None:
                found = found[:, :, alone.sizes[0] > 0]
            expected = expected[:, :, together.sizes[sentence] > 0]  # which of single tokens is first does not matter
            torch.testing.assert_close(found.sort(2).values, expected.sort(2).values, rtol=1e-12, atol=1e-12)
        biases, expected = alone.biases(torch.float64), together.biases(torch.float64)
        assert expected is not None
        found = expected[sentence][expected[sentence].isfinite()]
        torch.testing.assert_close(torch.zeros_like(found) if biases is None else biases[biases.isfinite()], found)


def test_what_is_alike_is_together_wherever_it_is() -> None:
    centres = 10 * torch.randn(8, 32, dtype=torch.float64)
    alike = torch.arange(8).repeat(16)[torch.randperm(128)]
    keys = (centres[alike] + 0.1 * torch.randn(128, 32, dtype=torch.float64))[:, None, None]
    own, _ = of_tokens(Clusters.of(keys, None, 8), 128)
    assert len({*zip(own[0, 0].tolist(), alike.tolist(), strict=True)}) == 8


@pytest.mark.parametrize("length", [12, 7])
def test_keys_that_are_all_the_same_are_split_by_place(length: int) -> None:
    keys = torch.full((12, 2, 1, 4), 0.1)
    own, _ = of_tokens(Clusters.of(keys, torch.tensor([length, 12]), 4), 12)
    for tokens, sentence in ((length, 0), (12, 1)):
        assert own[sentence, 0, :tokens].tolist() == [((token + 1) * 4 - 1) // tokens for token in range(tokens)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_of_equal_keys_the_same_are_together_with_padding(dtype: torch.dtype) -> None:
    """Half precision has many keys that are equal."""
    for length, padding in ((64, 0), (64, 13), (128, 40), (100, 28)):
        keys = torch.randint(-2, 3, (length, 1, 3, 6)).to(dtype)
        own, _ = of_tokens(Clusters.of(keys, None, 16), length)
        padded = torch.nn.functional.pad(keys, (0, 0, 0, 0, 0, 0, 0, padding), value=1.0)
        beside, _ = of_tokens(Clusters.of(padded, torch.tensor([length]), 16), length + padding)
        assert torch.equal(own, beside[..., :length])


def test_half_precision_is_summed_in_float32() -> None:
    keys = torch.full((4096, 1, 1, 4), 60000.0, dtype=torch.float16)
    assert Clusters.of(keys, None, 2).means(keys).isfinite().all()


def test_biases_are_logarithms_of_sizes_less_the_largest_of_a_sentence() -> None:
    clusters = Clusters.of(torch.randn(6, 2, 1, 12), torch.tensor([3, 6]), 4)
    biases = clusters.biases(torch.float64)
    assert biases is not None
    found = [sorted(row.exp().flatten().tolist()) for row in biases]
    assert found == [pytest.approx(x) for x in ([0, 1, 1, 1], [0.5, 0.5, 1, 1])]


def test_powers_of_two() -> None:
    assert [largest_power_of_two(most) for most in (1, 2, 3, 4, 127, 128, 129)] == [1, 2, 2, 4, 64, 128, 128]
