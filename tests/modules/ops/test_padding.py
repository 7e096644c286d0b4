import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.padding import padding_of
from tests.reference import padding_mask


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=3))
def test_sentences_begin_at_the_first_place_and_go_back(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    padding = padding_of(mask)
    if padding is None:
        assert not mask.any()
        return
    lengths = (~mask).sum(1)
    assert padding.known_lengths == tuple(lengths.tolist())
    assert torch.equal(padding.lengths, lengths)
    assert torch.equal(padding.mask, torch.arange(5) >= lengths[:, None])
    assert (padding.order is None) == torch.equal(padding.mask, mask)
    x = torch.randn(5, len(rows), 2).masked_fill(mask.t()[..., None], torch.nan)
    moved = padding.put_right(x)
    for sentence, row in enumerate(mask):
        assert torch.equal(moved[: lengths[sentence], sentence], x[~row, sentence])
        assert not moved[lengths[sentence] :, sentence].any()
    assert torch.equal(padding.put_back(moved), x.nan_to_num(0.0))


def test_a_mask_is_looked_at_once() -> None:
    mask = padding_mask([3, 1])
    assert padding_of(mask) is padding_of(mask)
    assert padding_of(mask.clone()) is not padding_of(mask)
    before = padding_of(mask)
    mask[0, 2] = True
    assert before.known_lengths == (3, 1)
    assert padding_of(mask).known_lengths == (2, 1)
