"""Clusters of similar keys are the leaves of their tree, as even as can be, whatever stands beside a sentence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.key_clusters import Clusters, largest_power_of_two

COUNTS = st.sampled_from([1, 2, 4, 16, 64])


def keys_of(lengths: list[int], n: int, features: int = 12) -> torch.Tensor:
    """Random keys of sentences, zero beyond their ends."""
    keys = torch.randn(len(lengths), 2, n, features, dtype=torch.float64)
    return keys.masked_fill((torch.arange(n) >= torch.tensor(lengths)[:, None])[:, None, :, None], 0.0)


def of_tokens(clusters: Clusters, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the cluster of each token and the share of it that the token has, both (B, H, n)."""
    each = torch.eye(clusters.number, dtype=torch.float64).expand(*clusters.order.shape[:2], -1, -1)
    shares, own = clusters.spread(each, n).max(2)
    return own, shares


@given(count=COUNTS, lengths=st.lists(st.integers(1, 150), min_size=1, max_size=3), padded=st.integers(0, 40))
def test_clusters_have_all_tokens_and_are_even(count: int, lengths: list[int], padded: int) -> None:
    clusters = Clusters.of(keys_of(lengths, max(lengths) + padded), torch.tensor(lengths), count)
    own, shares = of_tokens(clusters, max(lengths) + padded)
    sizes = clusters.sizes
    assert clusters.number <= count
    assert sizes is not None
    for sentence, length in enumerate(lengths):
        assert sizes[sentence].sum() == length
        assert sizes[sentence].max() - sizes[sentence].min() <= 1
        for head in range(2):
            tokens = clusters.order[sentence, head].unflatten(0, (clusters.number, -1))
            slots = [row[:size].tolist() for row, size in zip(tokens, sizes[sentence], strict=True)]
            assert sorted(token for row in slots for token in row) == list(range(length))
            assert all(own[sentence, head, token] == number for number, row in enumerate(slots) for token in row)
            each = [1 / len(slots[cluster]) for cluster in own[sentence, head, :length]]
            assert shares[sentence, head, :length].tolist() == pytest.approx(each)
            rest = tokens.flatten()[[slot >= size for size in sizes[sentence] for slot in range(tokens.size(1))]]
            assert (rest >= length).all(), "slots without a token are filled with zeros"


@given(count=COUNTS, lengths=st.lists(st.integers(1, 150), min_size=2, max_size=3), padded=st.integers(0, 40))
def test_a_sentence_has_the_same_clusters_alone(count: int, lengths: list[int], padded: int) -> None:
    n = max(lengths) + padded
    keys, values = keys_of(lengths, n), keys_of(lengths, n, 3)
    together = Clusters.of(keys, torch.tensor(lengths), count)
    for sentence, length in enumerate(lengths):
        alone = Clusters.of(keys[[sentence], :, :length], None, count)
        for x in (keys, values):
            used = together.sizes[sentence] > 0
            found, expected = alone.means(x[[sentence], :, :length]), together.means(x)[[sentence]]
            if alone.sizes is not None:
                found = found[:, :, alone.sizes[0] > 0]
            torch.testing.assert_close(found, expected[:, :, used], rtol=1e-12, atol=1e-12)
        biases, expected = alone.biases(torch.float64), together.biases(torch.float64)
        assert expected is not None
        if biases is None:  # the same for all clusters that have tokens
            assert not expected[sentence][expected[sentence].isfinite()].any()
        else:
            used = biases.isfinite()
            torch.testing.assert_close(biases[used], expected[[sentence]][expected[[sentence]].isfinite()])


def test_what_is_alike_is_together_wherever_it_is() -> None:
    centres = 10 * torch.randn(8, 32, dtype=torch.float64)
    alike = torch.arange(8).repeat(16)[torch.randperm(128)]
    keys = (centres[alike] + 0.1 * torch.randn(128, 32, dtype=torch.float64))[None, None]
    own, _ = of_tokens(Clusters.of(keys, None, 8), 128)
    assert len({*zip(own[0, 0].tolist(), alike.tolist(), strict=True)}) == 8


@pytest.mark.parametrize("lengths", [None, [7, 12]])
def test_keys_that_are_all_the_same_are_split_too(lengths: list[int] | None) -> None:
    keys = torch.ones(2, 1, 12, 4)
    for sentence, length in enumerate(lengths or []):
        keys[sentence, :, length:] = 0.0
    clusters = Clusters.of(keys, None if lengths is None else torch.tensor(lengths), 4)
    torch.testing.assert_close(clusters.means(keys), torch.ones(2, 1, 4, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_of_equal_keys_the_same_are_together_with_padding(dtype: torch.dtype) -> None:
    """Half precision has many keys that are equal."""
    for length, padding in ((64, 0), (64, 13), (128, 40), (100, 28)):
        keys = torch.randint(-2, 3, (1, 3, length, 6)).to(dtype)
        own, _ = of_tokens(Clusters.of(keys, None, 16), length)
        padded = torch.nn.functional.pad(keys, (0, 0, 0, padding))
        beside, _ = of_tokens(Clusters.of(padded, torch.tensor([length]), 16), length)
        assert torch.equal(own, beside)


def test_half_precision_is_summed_in_float32() -> None:
    keys = torch.full((1, 1, 4096, 4), 60000.0, dtype=torch.float16)
    assert Clusters.of(keys, None, 2).means(keys).isfinite().all()


def test_biases_are_logarithms_of_sizes_less_the_largest_of_a_sentence() -> None:
    clusters = Clusters.of(keys_of([3, 6], 6), torch.tensor([3, 6]), 4)
    biases = clusters.biases(torch.float64)
    assert biases is not None
    found = [sorted(row.exp().flatten().tolist()) for row in biases]
    assert found == [pytest.approx(x) for x in ([0, 1, 1, 1], [0.5, 0.5, 1, 1])]


def test_powers_of_two() -> None:
    assert [largest_power_of_two(most) for most in (1, 2, 3, 4, 127, 128, 129)] == [1, 2, 2, 4, 64, 128, 128]
