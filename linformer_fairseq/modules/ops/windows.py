"""Windows of neighbouring tokens, and their means.

Shapes: n tokens, B sentences, s windows.
"""

from typing import NamedTuple

import torch
from torch import Tensor


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
