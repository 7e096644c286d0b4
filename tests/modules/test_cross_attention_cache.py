import pytest
import torch

from linformer_fairseq.modules.cross_attention_cache import from_cache, reorder_cache, to_cache

ROWS = {"keys": torch.randn(3, 2, 7, 6), "sizes": torch.arange(6).view(3, 2)}


def check(cache: dict[str, torch.Tensor], sentences: list[int]) -> None:
    rows = from_cache(cache)
    assert rows.keys() == ROWS.keys()
    assert all(torch.equal(rows[name], x[sentences]) for name, x in ROWS.items())


@pytest.mark.parametrize("hypotheses", [1, 2])
def test_keeps_every_row(hypotheses: int) -> None:
    check(to_cache(ROWS, 3 * hypotheses), [0, 1, 2])


def test_reordering_within_beams_moves_nothing() -> None:
    cache = to_cache(ROWS, 6)
    assert reorder_cache(cache, torch.tensor([1, 0, 2, 2, 5, 4])) is cache


def test_drops_the_rows_of_sentences_that_have_ended() -> None:
    left = reorder_cache(to_cache(ROWS, 6), torch.tensor([5, 4, 1, 1]))  # of the third sentence and the first
    check(left, [2, 0])
    check(reorder_cache(left, torch.tensor([2, 3])), [0])


def test_hypotheses_that_do_not_go_together_are_refused() -> None:
    """Both of the first sentence go on, one of the second, and one of the third."""
    with pytest.raises(RuntimeError, match="must stand side by side, and come and go together"):
        reorder_cache(to_cache(ROWS, 6), torch.tensor([0, 1, 3, 4]))
