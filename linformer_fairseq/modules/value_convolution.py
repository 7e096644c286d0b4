"""A convolution over the values of attention, by which a token reads its neighbours."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ValueConvolution(nn.Module):
    """A convolution over the tokens of a sentence that each head of self-attention adds to what it gives (Xiong et al.,
    2021: the skip connection of their architecture).

    Beside its attention, a token gets the sum of its own and its neighbours' values, each weighted by how far to the
    left or right it stands. A head has one such kernel. All weights begin as 0, so that a model starts as the one
    without.

    Args:
        num_heads: H, the attention heads.
        width: the tokens that a kernel reads, as many to the left as to the right.

    Raises:
        ValueError: a width that is no odd number above 0.
    """

    def __init__(self, num_heads: int, width: int) -> None:
        check_width(width)
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_heads, 1, width, 1))

    def forward(self, values: Tensor) -> Tensor:
        """Convolves the values of each head, (n, B, H, d), which are 0 at padded positions, to as many."""
        if not values.numel():
            return values
        heads, width = self.weight.size(0), self.weight.size(2)
        out = F.conv2d(values.permute(1, 2, 0, 3), self.weight, padding=(width // 2, 0), groups=heads)
        return out.permute(2, 0, 1, 3)

    def extra_repr(self) -> str:
        return f"width={self.weight.size(2)}"


def check_width(width: int) -> None:
    """Refuses the width of a kernel that has no middle.

    Raises:
        ValueError: naming the flag.
    """
    if width < 1 or width % 2 == 0:
        raise ValueError(f"--linformer-value-convolution must be an odd number of tokens, or 0 for none, not {width}")
