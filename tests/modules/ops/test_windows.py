import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.naive import pooling_matrix
from linformer_fairseq.modules.ops.windows import even_windows
from tests.reference import padding_mask


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 40))
def test_windows_are_even_and_have_these_means(lengths: list[int], k: int) -> None:
    n = max(lengths)
    windows = even_windows(n, torch.tensor(lengths), k)
    x = torch.randn(n, len(lengths), 3, dtype=torch.float64)
    x.masked_fill_(padding_mask(lengths).t()[..., None], 0.0)
    means = (windows.mean_matrix(x.dtype)[:, 0] @ x.transpose(0, 1)).transpose(0, 1)
    for sentence, length in enumerate(lengths):
        matrix = pooling_matrix(length, k)
        filled, sizes = len(matrix), windows.sizes[sentence]
        assert sizes.tolist() == [*(matrix > 0).sum(1).tolist(), *[0] * (min(k, n) - filled)]
        assert sizes[:filled].max() - sizes[:filled].min() <= 1
        assert windows.of_tokens[sentence, :length].tolist() == (matrix > 0).int().argmax(0).tolist()
        assert (windows.of_tokens[sentence, length:] == min(k, n)).all()
        torch.testing.assert_close(means[:filled, sentence], matrix @ x[:length, sentence])
        assert not means[filled:, sentence].any()
