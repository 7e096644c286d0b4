"""Windows of neighbouring tokens, and their means.

Shapes: n tokens, B sentences, s windows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from linformer_fairseq.modules.ops.precision import at_least_float32


class Windows(NamedTuple):
    """Which window each token is in. Windows stand side by side, and their sizes differ by one at most."""

    of_tokens: Tensor
    """The window of each token, (B, n); s for padding, which is in none."""
    sizes: Tensor
    """Tokens of each window, (B, s); 0 for windows that a short sentence does not fill."""

    def mean_matrix(self, dtype: torch.dtype) -> Tensor:
        """The matrix that maps tokens to the means of their windows, (B, 1, s, n)."""
        numbers = torch.arange(self.sizes.size(1), device=self.sizes.device)
        members = self.of_tokens[:, None] == numbers[:, None]
        return (members.to(dtype) / self.sizes.clamp(min=1)[..., None].to(dtype))[:, None]


def even_windows(n: int, lengths: Tensor, max_windows: int) -> Windows:
    """Cuts each sentence into s = min(`max_windows`, m) windows, m its length: token j is in window ⌊j s / m⌋.

    An empty sentence counts as one token of padding, as its softmax would be of nothing otherwise.

    Args:
        n: the padded length.
        lengths: tokens of each sentence, (B,).
    """
    tokens, count = torch.arange(n, device=lengths.device), min(max_windows, n)
    lengths = lengths.clamp(min=1)[:, None]
    of_tokens = (tokens * lengths.clamp(max=max_windows) // lengths).masked_fill(tokens >= lengths, count)
    sizes = lengths.new_zeros(len(lengths), count + 1).scatter_add(1, of_tokens, torch.ones_like(of_tokens))
    return Windows(of_tokens, sizes[:, :count])


def window_means(x: Tensor, windows: Windows) -> Tensor:
    """The mean of every window of `x` (n, B, D), without a matrix product: (s, B, D), zero where a window is empty."""
    dtype = at_least_float32(x.dtype)  # the sum of a long window may be beyond half precision
    sums = x.new_zeros(windows.sizes.size(1) + 1, *x.shape[1:], dtype=dtype)
    sums = sums.scatter_add(0, windows.of_tokens.t()[..., None].expand_as(x), x.to(dtype))[:-1]
    return (sums / windows.sizes.t().clamp(min=1)[..., None]).to(x.dtype)
