"""The groups of tokens of a target, which later blocks see by their means: each block has its own.

Groups are windows of neighbouring tokens or clusters of similar keys. A mean counts as often as its group has tokens
that are not attended to one by one.

Shapes: P blocks of q tokens, r windows of w tokens in each, c groups in each, d features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.key_clusters import Clusters
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.two_level.sizes import Sizes


@torch.no_grad()
def groups_of(keys: Tensor, sizes: Sizes) -> Tensor:
    """The group of each token in its block, (..., q), for keys (..., q, d)."""
    if not sizes.clusters:
        return (torch.arange(sizes.block, device=keys.device) // sizes.width).expand(keys.shape[:-1])
    blocks = keys.flatten(0, -3).transpose(0, 1)[:, :, None]
    return Clusters.of(blocks, None, sizes.clusters).labels().view(keys.shape[:-1])


def counts_of(groups: Tensor, sizes: Sizes) -> Tensor:
    """The tokens of each group, (..., c), of tokens in groups (..., q)."""
    return F.one_hot(groups, sizes.groups).sum(-2)


def means_of_groups(x: Tensor, groups: Tensor, sizes: Sizes) -> Tensor:
    """The mean of each group, (..., c, d), of what its tokens have in `x` (..., q, d)."""
    belongs = F.one_hot(groups, sizes.groups).to(at_least_float32(x.dtype))
    return (belongs / belongs.sum(-2, keepdim=True)).to(x.dtype).transpose(-2, -1) @ x


@torch.no_grad()
def bias_of_groups(groups: Tensor, opened: Tensor, sizes: Sizes, starts: range, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of groups for blocks of queries, (Y, X, P c): the logarithm of the tokens of a group
    in windows that are past and not opened, -inf where there is none.

    Args:
        groups: of the tokens of each block, (X, P, q).
        opened: the windows that each block opens, (Y, X, m).
        starts: where the Y blocks begin.
        dtype: of the bias.
    """
    in_windows = F.one_hot(groups, sizes.groups).unflatten(2, (-1, sizes.width)).sum(3).float()  # (X, P, r, c)
    windows = in_windows.size(1) * in_windows.size(2)
    ends = torch.arange(starts.start, starts.stop, starts.step, device=groups.device) // sizes.width
    past = torch.arange(windows, device=groups.device) < ends[:, None]
    closed = past.float()[:, None].expand(-1, opened.size(1), -1).scatter(2, opened, 0.0)
    closed = closed.unflatten(2, (in_windows.size(1), 1, -1))
    counts = (closed @ in_windows).flatten(2)
    return counts.to(at_least_float32(dtype)).log().to(dtype)
