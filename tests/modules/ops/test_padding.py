import torch

from linformer_fairseq.modules.ops.padding import clear_padding, no_padding, sentence_lengths
from tests.reference import padding_mask


def test_masks_say_where_sentences_end() -> None:
    mask = padding_mask([3, 1], 4)
    assert sentence_lengths(mask).tolist() == [3, 1]
    x = torch.full((4, 2, 5), torch.nan)
    x[:3, 0] = x[0, 1] = 1.0
    assert torch.equal(clear_padding(x, mask), (~mask).t()[..., None].expand(4, 2, 5).float())
    assert clear_padding(x, None) is x
    assert torch.equal(no_padding(x), torch.zeros(2, 4, dtype=torch.bool))
