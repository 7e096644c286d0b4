import pytest
import torch

from linformer_fairseq.modules.met import Slots, TwoLevels, from_cache, reordered, to_cache
from linformer_fairseq.modules.projection import TwoLevelPool
from linformer_fairseq.modules.two_level import Source

LENGTHS = torch.tensor([3, 5, 4])
MASK = torch.arange(5) >= LENGTHS[:, None]


def slots() -> Slots:
    keys = torch.randn(3, 2, 4, 6)
    return Slots(keys, torch.randn(3, 4, 2, 6).transpose(1, 2), MASK, LENGTHS)


def two_levels() -> TwoLevels:
    windows = TwoLevelPool(2, 8).windows(5, LENGTHS)
    return TwoLevels(Source(torch.randn(3, 2, 7, 6), torch.randn(3, 2, 7, 6), windows), MASK)


def tensors(met: Slots | TwoLevels) -> list[torch.Tensor]:
    if isinstance(met, Slots):
        return list(met)
    return [met.source.keys, met.source.values, *met.source.windows, met.padding_mask]


@pytest.mark.parametrize("make", [slots, two_levels])
@pytest.mark.parametrize("hypotheses", [1, 2])
def test_a_later_step_meets_the_same(make: type, hypotheses: int) -> None:
    met = make()
    back = from_cache(to_cache(met, 3 * hypotheses))
    assert type(back) is type(met)
    for x, y in zip(tensors(met), tensors(back), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("make", [slots, two_levels])
def test_hypotheses_that_change_places_move_nothing_and_sentences_that_go_are_gone(make: type) -> None:
    met = make()
    cache = to_cache(met, 6)
    assert reordered(cache, torch.tensor([1, 0, 2, 2, 5, 4])) is cache
    left = from_cache(reordered(cache, torch.tensor([5, 4, 1, 1])))  # of the third sentence and the first
    for x, y in zip(tensors(met), tensors(left), strict=True):
        assert torch.equal(x[[2, 0]], y)


@pytest.mark.parametrize("make", [slots, two_levels])
def test_hypotheses_that_do_not_go_together_have_rows_of_their_own(make: type) -> None:
    """Equal sentences in a row pass for a beam, and are decoded one by one: of the first 2 of 2 go on, of the second 1
    and of the third none; then the first of them all ends."""
    met = make()
    cache = reordered(to_cache(met, 6), torch.tensor([0, 1, 3]))
    for x, y in zip(tensors(met), tensors(from_cache(cache)), strict=True):
        assert torch.equal(x[[0, 0, 1]], y)
    for x, y in zip(tensors(met), tensors(from_cache(reordered(cache, torch.tensor([1, 2])))), strict=True):
        assert torch.equal(x[[0, 1]], y)


def test_slots_are_kept_head_by_head() -> None:
    assert from_cache(to_cache(slots(), 3)).values.is_contiguous()
