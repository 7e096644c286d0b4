import pytest
import torch

from linformer_fairseq.models.right_padding import refuse_left_padding, restore_padding, right_padding_order


def test_tokens_move_to_the_left_in_their_order_and_weights_back_to_them() -> None:
    pad = 1
    tokens = torch.tensor([[1, 1, 5, 6, 7], [5, 6, 7, 1, 1], [9, 8, 7, 6, 5], [1, 1, 1, 1, 1]])
    moved = tokens.gather(1, right_padding_order(tokens, pad))
    assert moved.tolist() == [[5, 6, 7, 1, 1], [5, 6, 7, 1, 1], [9, 8, 7, 6, 5], [1, 1, 1, 1, 1]]
    weights = torch.stack([moved, 2 * moved], 1).float()  # (B, T, n)
    assert torch.equal(restore_padding(weights, tokens, pad), torch.stack([tokens, 2 * tokens], 1).float())


def test_padding_before_a_token_is_refused() -> None:
    refuse_left_padding(torch.tensor([[5, 6, 1], [1, 1, 1], [5, 6, 7]]), 1)
    refuse_left_padding(torch.tensor([[1]]), 1)
    for row in ([1, 5, 6], [5, 1, 6]):
        with pytest.raises(RuntimeError, match="targets padded on the left are not supported; pad them on the right"):
            refuse_left_padding(torch.tensor([[5, 6, 7], row]), 1)
