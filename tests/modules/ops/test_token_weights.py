import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.token_weights import weights_of_slots, weights_of_window

BATCH, HEADS = 2, 3


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, BATCH]), st.sampled_from([1, HEADS])
)
def test_weights_of_slots(t: int, s: int, n: int, batch: int, groups: int) -> None:
    probabilities, matrix = torch.rand(BATCH, HEADS, t, s).double(), torch.randn(batch, groups, s, n).double()
    expected = torch.zeros(HEADS, BATCH, t, n).double()
    for b in range(BATCH):
        for h in range(HEADS):
            expected[h, b] = probabilities[b, h] @ matrix[b % batch, h % groups]
    torch.testing.assert_close(weights_of_slots(probabilities, matrix, by_head=True), expected)
    torch.testing.assert_close(weights_of_slots(probabilities, matrix, by_head=False), expected.mean(0))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 4))
def test_weights_of_window(t: int, window: int, position: int) -> None:
    probabilities = torch.rand(BATCH, HEADS, t, window).double()
    expected = torch.zeros(HEADS, BATCH, t, position + t).double()
    for i in range(t):
        for j in range(window):
            token = position + i - (window - 1) + j
            if token >= 0:
                expected[:, :, i, token] = probabilities[:, :, i, j].t()
    assert torch.equal(weights_of_window(probabilities, position, by_head=True), expected)
    torch.testing.assert_close(weights_of_window(probabilities, position, by_head=False), expected.mean(0))
