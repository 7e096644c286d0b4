"""Products of a matrix over tokens with the features of every sentence.

Shapes: n tokens, B sentences, s slots, G groups of features (1 or the number of heads), D features.
"""

import torch
from torch import Tensor


def apply_matrix(matrix: Tensor, x: Tensor) -> Tensor:
    """`matrix` (1 or B, G, s, n) times `x` (n, B, 1 or G, D), sentence by sentence and head by head: (B, G, s, D).

    A matrix that sentences share is not copied for each of them, nor are features that heads share.
    """
    batch, groups = x.shape[1:3]
    heads, slots, n = matrix.shape[1:]
    x = x.permute(1, 2, 0, 3)  # (B, 1 or G, n, D)
    if groups == 1:  # all heads in the rows of one product
        rows = matrix.reshape(-1, heads * slots, n).expand(batch, -1, -1)
        return torch.bmm(rows, x.squeeze(1)).view(batch, heads, slots, -1)
    if heads == 1:  # they differ in their features alone
        x = x.transpose(1, 2).flatten(2)
        return torch.bmm(matrix.squeeze(1).expand(batch, -1, -1), x).unflatten(2, (groups, -1)).transpose(1, 2)
    return torch.matmul(matrix, x)
