"""The groups of tokens in each block of a target, which later blocks see by their means.

Groups are windows of neighbouring tokens or clusters of similar keys, all of them equally large.

Shapes: T queries and tokens of X sequences, P blocks of q tokens, r windows of w tokens in each, c groups of l tokens
in each, s = P r windows, G = P c groups, d features. Y later blocks of queries open m windows each.
"""

import math

import torch
from torch import Tensor

from linformer_fairseq.modules.ops.key_clusters import Clusters
from linformer_fairseq.modules.ops.softmax_attention import scores
from linformer_fairseq.modules.two_level.arithmetic import (
    calibrated,
    of_tokens_in_groups,
    ranked,
    rows_of,
    shares_of_windows,
)
from linformer_fairseq.modules.two_level.sizes import Sizes


@torch.no_grad()
def tokens_of_groups(keys: Tensor, sizes: Sizes) -> Tensor:
    """The tokens of each group, as places in their block, (..., c, l), by keys (..., q, d)."""
    if not sizes.clusters:
        places = torch.arange(sizes.block, device=keys.device).view(-1, sizes.width)
        return places.expand(*keys.shape[:-2], -1, -1)
    blocks = keys.flatten(0, -3).transpose(0, 1)[:, :, None]
    tokens, _ = Clusters.of(blocks, None, sizes.clusters).tokens()
    return tokens.view(*keys.shape[:-2], *tokens.shape[2:])


def in_text(tokens: Tensor, sizes: Sizes) -> Tensor:
    """The tokens of groups as places in the text, (..., P c, l), from those in their blocks, (..., P, c, l)."""
    firsts = torch.arange(0, tokens.size(-3) * sizes.block, sizes.block, device=tokens.device)
    return (tokens + firsts[:, None, None]).flatten(-3, -2)


def means_of_groups(x: Tensor, tokens: Tensor) -> Tensor:
    """The mean of each group, (..., G, d), of what its tokens (..., G, l) have in `x`, (..., n, d)."""
    return rows_of(x, tokens.flatten(-2)).view(*tokens.shape, -1).mean(-2)


def labels_of(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The group of each token, (..., G l), and how many each group has, (..., G), from those of groups, (..., G, l)."""
    groups = torch.arange(tokens.size(-2), device=tokens.device)[:, None].expand_as(tokens).flatten(-2)
    labels = torch.empty_like(groups).scatter_(-1, tokens.flatten(-2), groups)
    return labels, torch.full_like(tokens[..., 0], tokens.size(-1))


@torch.no_grad()
def choose(
    queries: Tensor,
    keys: Tensor,
    means: Tensor,
    tokens: Tensor,
    sizes: Sizes,
    starts: Tensor,
    counted: Tensor,
) -> tuple[Tensor, Tensor]:
    """What blocks open, (..., Y, m + 1): the window before them, and the m that some queries attend to most.

    Args:
        queries: those that choose for each block, (..., Y, c, d), not scaled.
        keys: of the tokens before the last of these blocks, (..., s w, d).
        means: those of groups, (..., G, d).
        tokens: the places of the groups' tokens in the text, (..., G, l).
        starts: where the blocks begin, (Y,).
        counted: true for queries that there are, (Y, c).

    Returns:
        The windows, and what is added to the scores of the means of groups, (..., Y, G): for clusters, `calibrated` by
        these queries; for windows, log w; -inf for what is opened or not past.
    """
    width, places = sizes.width, torch.arange(keys.size(-2), device=keys.device)
    future = (places >= starts[:, None]).expand(*queries.shape[:-2], -1)  # (..., Y, s w)
    found = scores(queries.flatten(-3, -2), keys).unflatten(-2, queries.shape[-3:-1])  # (..., Y, c, s w)
    shares = shares_of_windows(found.masked_fill_(future[..., None, :], -torch.inf), width)
    worth = shares.masked_fill_(~counted[..., None], 0.0).sum(-2)
    before = (starts // width - 1)[:, None].expand(*worth.shape[:-1], 1)
    opened = ranked(worth.scatter(-1, before, torch.inf))[..., : sizes.opened + 1]
    unread = future[..., ::width].scatter(-1, opened, True)  # by a mean
    if not sizes.clusters:
        return opened, torch.zeros_like(unread, dtype=keys.dtype).masked_fill(unread, -torch.inf) + math.log(width)
    index = tokens.flatten(-2)[..., None, None, :].expand_as(found)
    of_groups = found.gather(-1, index).unflatten(-1, tokens.shape[-2:])
    return opened, calibrated(queries, of_groups, means, of_tokens_in_groups(unread, tokens // width), counted)
