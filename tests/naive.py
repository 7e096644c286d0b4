"""Every formula of attention as one would write it on a board: one sentence, one head, loops, no thought of speed.

The tests compare the fast forms of the package with these.

Shapes: T queries, n tokens, d features of a head, k slots. Every attention takes `query` (T, d), `key` (n, d) and
`value` (n, d), and returns the output (T, d) and the weights over tokens (T, n).
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

Result = tuple[Tensor, Tensor]
Head = Callable[[Tensor, Tensor, Tensor, int], Result]
"""Attention of one head to one sentence; the last argument is the number of the head."""


def full_attention(query: Tensor, key: Tensor, value: Tensor) -> Result:
    """Attends to all tokens: softmax(Q Kᵀ / √d) V."""
    weights = torch.softmax(_scores(query, key), 1)
    return weights @ value, weights


def linformer_attention(query: Tensor, key: Tensor, value: Tensor, key_matrix: Tensor, value_matrix: Tensor) -> Result:
    """Attends to the slots E K and F V (Wang et al., 2020, equation 7): softmax(Q (E K)ᵀ / √d) F V.

    Args:
        key_matrix, value_matrix: E and F, (k, n).

    Returns:
        Weights in which a slot shares its own among its tokens by |F|.
    """
    probabilities = torch.softmax(_scores(query, key_matrix @ key), 1)
    return probabilities @ value_matrix @ value, probabilities @ _token_shares(value_matrix)


def _token_shares(matrix: Tensor) -> Tensor:
    """The share that each token has in each slot of F (k, n), by |F|; equal shares in a slot of nothing."""
    matrix = matrix.abs()
    matrix = torch.where(matrix.sum(1, keepdim=True) == 0, 1.0, matrix)
    return matrix / matrix.sum(1, keepdim=True)


def two_level_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sizes: tuple[int, int, int, int] | None,
    choosing: int | None,
    sorts: int,
) -> Result:
    """Attends to the tokens of some windows one by one, and to all others by the means of windows or clusters.

    The mean of a window counts as often as it has tokens. That of a cluster gets what its tokens in other windows get
    from 4 queries of the block that are evenly spread, on average over the logarithms.

    Args:
        sizes: w tokens of a window, m windows that a block opens, q queries of a block, and the number of clusters, 0
            for means of windows; None for full attention.
        choosing: in an encoder, where a block opens what its own queries attend to most by means of windows, how many
            of the queries count; None in cross-attention, where a block's first query and the 7 before it choose by
            their attention to all tokens, and a window is worth at least nine tenths of the best of those before it,
            one more than q pass.
        sorts: as in `key_cluster_attention`.
    """
    if sizes is None:
        return full_attention(query, key, value)
    width, opened, block, clusters = sizes
    windows = torch.arange(len(key)).split(width)
    groups = _clusters(key, clusters, sorts) if clusters else windows
    rows = []
    for start in range(0, len(query), block):
        if choosing is None:
            worth = _shares(query[max(0, start - 7) : start + 1], key, windows).sum(0)
            ahead = math.ceil((block - 1) / width) + 1
            before = [worth[max(0, i - ahead) : i] for i in range(len(windows))]
            worth = torch.stack([max([x, *(0.9 * others)]) for x, others in zip(worth, before, strict=True)])
        else:
            worth = _shares_by_means(query[:choosing][start : start + block], key, windows).sum(0)
        some = [windows[number] for number in sorted(_best(worth, opened))]
        calibrating = None
        if clusters and choosing is not None:
            calibrating = query[
                [i for i in (start + j * block // 4 for j in range(4)) if i < min(len(query), choosing)]
            ]
        rows.append(_two_level_weights(query[start : start + block], key, groups, some, calibrating))
    weights = torch.cat(rows)
    return weights @ value, weights


def key_cluster_attention(query: Tensor, key: Tensor, value: Tensor, clusters: int, sorts: int) -> Result:
    """Attends to the means of clusters of similar keys, weighted by their sizes.

    Args:
        clusters: their number, a power of two; some are empty where there are fewer tokens.
        sorts: how many times groups are put in order and split, at most.
    """
    parts = _clusters(key, clusters, sorts)
    scores = torch.stack([_scores(query, key[part].mean(0, keepdim=True))[:, 0] for part in parts], 1)
    sizes = torch.tensor([len(part) for part in parts])
    shares = torch.softmax(scores + sizes.to(scores).log(), 1) / sizes
    weights = shares.new_zeros(len(query), len(key))
    for number, part in enumerate(parts):
        weights[:, part] = shares[:, [number]]
    return weights @ value, weights


def _clusters(key: Tensor, count: int, sorts: int) -> list[Tensor]:
    """The clusters of keys (n, d): puts the tokens of each group in order, and cuts all of them into more groups, until
    there are so many, of which some may be empty."""
    key = key.detach()
    parts, levels = [torch.arange(len(key))], int(math.log2(count))
    for left in range(sorts, 0, -1):
        halvings = math.ceil(levels / left)
        order = torch.cat([part[_folded(key[part] - key.amin(0), halvings)] for part in parts])
        levels, groups = levels - halvings, len(parts) * 2**halvings
        cuts = [number * len(key) // groups for number in range(groups + 1)]
        parts = [order[start:end] for start, end in pairwise(cuts)]
    return [part for part in parts if len(part)]


def _folded(key: Tensor, features: int) -> list[int]:
    """The order of tokens by being above the mean in the features that vary most, and by the value of the last of
    these, where all that follows on being above a mean is reversed."""
    if not len(key) or not features:
        return [*range(len(key))]
    widest = key.var(0, correction=0).argsort(descending=True, stable=True)[:features].tolist()
    mean = key.mean(0)

    def place(token: int) -> list[float]:
        reversed_, places = False, []
        for feature in widest[:-1]:
            reversed_ ^= bool(key[token, feature] > mean[feature])
            places.append(float(reversed_))
        value = key[token, widest[-1]].float().item()
        return [*places, -value if reversed_ else value]

    return sorted(range(len(key)), key=place)


def causal_two_level_attention(
    query: Tensor, key: Tensor, value: Tensor, sizes: tuple[int, int, int, int], exact: int, sorts: int
) -> Result:
    """Attends one by one to the tokens of a block, of the window before it, and of the m windows that its first query
    and the 7 before it attend to most; and to all other tokens by the means of groups of each block, where those of
    clusters get what their tokens in other windows get from these 8 queries, on average over the logarithms.

    Args:
        sizes: w tokens of a window, m windows that a block opens, q queries of a block, and the number of clusters of
            similar keys that are groups of a block, 0 where windows are.
        exact: how many first tokens attend to all tokens up to their own one by one.
        sorts: as in `key_cluster_attention`.
    """
    (width, opened, block, clusters), rows = sizes, []
    for i in range(len(query)):
        seen, start = key[: i + 1], i // block * block
        if i < exact:
            weights = torch.softmax(_scores(query[[i]], seen), 1)
        else:
            windows = torch.arange(start).split(width)
            groups: list[Tensor] = [*windows]
            if clusters:
                firsts = range(0, start, block)
                groups = [first + x for first in firsts for x in _clusters(key[first : first + block], clusters, sorts)]
            worth = _shares(query[max(0, start - 7) : start + 1], key[:start], windows).sum(0)
            worth[-1] = torch.inf
            some = [windows[number] for number in sorted(_best(worth, opened + 1))]
            calibrating = query[max(0, start - 7) : start + 1] if clusters else None
            weights = _two_level_weights(query[[i]], seen, groups, [*some, torch.arange(start, i + 1)], calibrating)
        rows.append(torch.cat([weights[0], key.new_zeros(len(key) - i - 1)]))
    weights = torch.stack(rows)
    return weights @ value, weights


def _shares(query: Tensor, key: Tensor, windows: Sequence[Tensor]) -> Tensor:
    """The share of its attention that each query gives to each window, (T, s)."""
    weights = torch.softmax(_scores(query, key), 1)
    return torch.stack([weights[:, window].sum(1) for window in windows], 1)


def _shares_by_means(query: Tensor, key: Tensor, windows: Sequence[Tensor]) -> Tensor:
    """The share of its attention that each query gives to each window, were all of them seen by their means, (T, s)."""
    means = torch.stack([key[window].mean(0) for window in windows])
    counts = torch.tensor([len(window) for window in windows]).to(key)
    return torch.softmax(_scores(query, means) + counts.log(), 1)


def _best(worth: Tensor, opened: int) -> set[int]:
    """The windows worth most, of (s,); among equals the first."""
    return {*worth.sort(descending=True, stable=True).indices[:opened].tolist()}


def _two_level_weights(
    query: Tensor,
    key: Tensor,
    groups: Sequence[Tensor],
    opened: Sequence[Tensor],
    calibrating: Tensor | None = None,
) -> Tensor:
    """The weights over tokens, (T, n): those of opened windows have their own, and each group shares evenly what its
    mean gets, which counts as often as the group has tokens that are not opened.

    Args:
        calibrating: queries (c, d) to which it gets what these tokens get instead, on average over the logarithms.
    """
    each, every = torch.eye(len(key)).to(key), sorted({token for window in opened for token in window.tolist()})
    rows, biases = [each[token] for token in every], [key.new_zeros(()) for _ in every]
    for group in groups:
        closed = [token for token in group.tolist() if token not in every]
        if closed or (calibrating is not None and not len(calibrating)):
            rows.append(each[group].mean(0))
            if calibrating is None:
                biases.append(torch.tensor(float(len(closed))).to(key).log())
            else:
                lacking = _scores(calibrating, key[closed]).logsumexp(1)
                lacking = lacking - _scores(calibrating, key[group].mean(0, keepdim=True))[:, 0]
                biases.append(lacking.mean() if len(calibrating) else key.new_zeros(()))
    matrix = torch.stack(rows)
    return torch.softmax(_scores(query, matrix @ key) + torch.stack(biases).detach(), 1) @ matrix


def window_attention(query: Tensor, key: Tensor, value: Tensor, before: int, after: int) -> Result:
    """Attends to neighbouring tokens alone, by a mask that is a band.

    Args:
        before, after: how many tokens a query attends to before and after its own.
    """
    band = torch.ones(len(query), len(key), dtype=torch.bool).tril(after).triu(-before)
    weights = torch.softmax(_scores(query, key).masked_fill(~band, -torch.inf), 1)
    return weights @ value, weights


def causal_linformer_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_matrix: Tensor,
    value_matrix: Tensor,
    window: int = 0,
    mask_empty_slots: bool = False,
) -> Result:
    """Attends from token i to the slots that the tokens up to i alone would have.

    Args:
        key_matrix, value_matrix: E and F, (k, n).
        window: how many tokens, up to its own, a query attends to one by one; the slots are those of the tokens before
            them, and there are none as long as there are no such tokens.
        mask_empty_slots: whether slot c takes part only once c + 1 tokens have entered the slots.

    Returns:
        Weights in which a slot shares its own among its tokens so far by |F|.
    """
    outs, weights = [], []
    for i in range(len(query)):
        older = max(0, i + 1 - window)
        slots = min(len(key_matrix), older) if mask_empty_slots or not older else len(key_matrix)
        f, near = value_matrix[:slots, :older], slice(older, i + 1)
        keys = torch.cat([key_matrix[:slots, :older] @ key[:older], key[near]])
        probabilities = torch.softmax(_scores(query[i : i + 1], keys), 1)[0]
        of_slots, of_window = probabilities[:slots], probabilities[slots:]
        outs.append(of_slots @ f @ value[:older] + of_window @ value[near])
        later = key.new_zeros(len(key) - i - 1)
        weights.append(torch.cat([of_slots @ _token_shares(f), of_window, later]))
    return torch.stack(outs), torch.stack(weights)


def pooling_matrix(n: int, projected_dim: int) -> Tensor:
    """The matrix of means over min(k, n) windows, (min(k, n), n); token j is in window ⌊j min(k, n) / n⌋."""
    slots = min(projected_dim, n)
    matrix = torch.zeros(slots, n, dtype=torch.float64)
    for token in range(n):
        matrix[token * slots // n, token] = 1
    return matrix / matrix.sum(1, keepdim=True)


def convolution_matrix(n: int, kernel: Tensor) -> Tensor:
    """The matrix of a convolution whose stride is the width w of its kernel, (⌈n / w⌉, n)."""
    width = len(kernel)
    matrix = kernel.new_zeros(-(-n // width), n)
    for token in range(n):
        matrix[token // width, token] = kernel[token % width]
    return matrix


def max_pool(x: Tensor, projected_dim: int) -> Tensor:
    """The maxima of every feature of `x` (n, D) over the windows of `pooling_matrix`, (min(k, n), D)."""
    return torch.stack([x[row > 0].amax(0) for row in pooling_matrix(len(x), projected_dim)])


def multihead(
    layer: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    head: Head,
    compress: Callable[[Tensor], Tensor] = lambda x: x,
) -> Result:
    """Attends with all heads, between the linear layers of `layer`, sentence by sentence.

    The bias of the keys is left out, as it drops out of every softmax; that of the values comes after the weights,
    which add up to one before any projection.

    Args:
        layer: has `num_heads`, `q_proj`, `k_proj`, `v_proj` and `out_proj`.
        query: (T, B, C).
        key, value: (n, B, D), of which each sentence has the first of `lengths`.
        head: the attention of a head.
        compress: what is done to the tokens of a sentence, (n, D), before the linear layers.

    Returns:
        The output (T, B, C) and the weights over tokens of each head, (H, B, T, n), zero beyond a sentence's end.
    """
    outputs, all_weights = [], []
    for sentence, n in enumerate(lengths):
        q = layer.q_proj(query[:, sentence])
        k = compress(key[:n, sentence]) @ layer.k_proj.weight.t()
        v = compress(value[:n, sentence]) @ layer.v_proj.weight.t()
        heads = range(layer.num_heads)
        q, k, v = (x.unflatten(1, (layer.num_heads, -1)) for x in (q, k, v))
        results = [head(q[:, number], k[:, number], v[:, number], number) for number in heads]
        out = torch.cat([out for out, _ in results], 1)
        outputs.append(layer.out_proj(out if layer.v_proj.bias is None else out + layer.v_proj.bias))
        weights = torch.stack([weights for _, weights in results])
        all_weights.append(torch.nn.functional.pad(weights, (0, len(key) - weights.size(2))))
    return torch.stack(outputs, 1), torch.stack(all_weights, 1)


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.t() / query.size(1) ** 0.5
