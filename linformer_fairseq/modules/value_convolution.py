"""A convolution over the values of attention, by which a token reads its neighbours."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_BLOCK = 32  # tokens that are convolved together, at least


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
        """Convolves the values of each head, (n, B, H, d), which are 0 at padded positions, to as many.

        The tokens of a block read nothing beyond it and the next one, if blocks are shifted to the left by half a
        kernel: what they give is one product with a band matrix, which is faster than torch's convolutions of
        channels that share a kernel.
        """
        length, reach = len(values), self.weight.size(2) // 2
        block = max(_BLOCK, 2 * reach)
        padded = F.pad(values, (0,) * 6 + (reach, block - reach + -length % block))
        blocks = padded.unflatten(0, (-1, block))
        read = torch.cat([blocks[:-1], blocks[1:]], 1)
        return torch.einsum("hqr,yrbhd->yqbhd", self._bands(block), read).flatten(0, 1)[:length]

    def _bands(self, block: int) -> Tensor:
        """(H, q, 2q) for blocks of q tokens: row i holds a kernel from column i on."""
        heads, width = self.weight.size(0), self.weight.size(2)
        row = F.pad(self.weight.view(heads, width), (0, 2 * block + 1 - width))
        return row.repeat(1, block)[:, : 2 * block * block].view(heads, block, 2 * block)

    def extra_repr(self) -> str:
        return f"width={self.weight.size(2)}"


def check_width(width: int) -> None:
    """Refuses, with a ValueError, the width of a kernel that has no middle."""
    if width < 1 or width % 2 == 0:
        raise ValueError(f"--linformer-value-convolution must be an odd number of tokens, or 0 for none, not {width}")
