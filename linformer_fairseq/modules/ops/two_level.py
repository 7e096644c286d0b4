"""Two-level attention: to the tokens of a query's best slots one by one, and to all other slots as they are.

A slot is the mean of a window of w neighbouring tokens. To a query it stands for all of them, hence the log w:

    S̄ = Q K̄ᵀ / √d + log w        scores of the slots, of which each query opens the best m
    S = Q Kᵀ / √d                 scores of the tokens in opened slots
    out = softmax([S̄, S]) [V̄; V]  over the slots that stay closed and the tokens of the opened ones

The best slots are where a query's attention is; what it leaves on the others enters as their means. Where no slot has
more than one token, or all are opened, this is full attention.

Two forms of the same sum, of which `tiling_pays` chooses one:

    dense       all scores of tokens, those of closed slots masked: T (k + n) d multiplications, T x (k + n) scores and
                probabilities, the fastest for short sources, and where a large part of the slots is opened
    in tiles    queries sorted by the slots that they open, so that one product computes all scores of a slot's tokens:
                T (k + 2 m n / k) d multiplications, about, and no T x n matrix

Weights over tokens, where they are asked for, are a T x n matrix themselves.

Shapes: T queries, n tokens, B the batch, H heads, d features per head, s <= k slots, m opened slots of a query.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.precision import at_least_float32, softmax
from linformer_fairseq.modules.ops.windows import Windows

MIN_TILED_TOKENS = 384
"""The shortest source for which tiles are faster: the two are even there at k = 32 and 64."""
MAX_ARGMAX_SLOTS = 4
"""Up to so many opened slots are found faster one after the other than by sorting."""


class TwoLevelSource(NamedTuple):
    """The keys and values of slots and tokens."""

    keys: Tensor
    """Keys of the slots, followed by those of the tokens, (B, H, s + n, d)."""
    values: Tensor
    """Values in the same order, (B, H, s + n, d)."""
    windows: Windows

    @property
    def slots(self) -> int:
        """The number of slots, s."""
        return self.windows.sizes.size(1)

    @property
    def tokens(self) -> int:
        """The number of tokens, n."""
        return self.windows.of_tokens.size(1)


def two_level_attention(query: Tensor, source: TwoLevelSource, opened: int, dropout: float) -> Tensor:
    """The output (B, H, T, d) for queries (B, H, T, d).

    Args:
        opened: m.
        dropout: the share of probabilities that are dropped.
    """
    if tiling_pays(source.tokens, source.slots, opened):
        return _in_tiles(query, source, opened, dropout)
    out, _ = _dense(query, source, opened, dropout)
    return out


def two_level_attention_with_weights(
    query: Tensor, source: TwoLevelSource, opened: int, dropout: float
) -> tuple[Tensor, Tensor]:
    """The output (B, H, T, d), and the weights over tokens (B, H, T, n), in float32 or better.

    The tokens of a closed slot share its weight evenly.
    """
    out, probabilities = _dense(query, source, opened, dropout)
    of_slots = share_evenly(probabilities[..., : source.slots], source.windows)
    return out, probabilities[..., source.slots :] + of_slots


def share_evenly(weights: Tensor, windows: Windows) -> Tensor:
    """Divides the weights of slots (B, H, T, s) evenly among their tokens, (B, H, T, n)."""
    shares = F.pad(weights / windows.sizes.clamp(min=1)[:, None, None], (0, 1))
    return shares.gather(3, windows.of_tokens[:, None, None].expand(*weights.shape[:3], -1))


def tiling_pays(n: int, slots: int, opened: int) -> bool:
    """Whether the form in tiles is faster than the dense one, as timed on a CPU; it has more, but shorter steps."""
    return n >= MIN_TILED_TOKENS and 4 * opened <= slots


def _dense(query: Tensor, source: TwoLevelSource, opened: int, dropout: float) -> tuple[Tensor, Tensor]:
    """The output, and the probabilities of slots and tokens, (B, H, T, s + n).

    The softmax is explicit: fused attention would need the mask, which in turn needs the scores of slots.
    """
    scores = (query * query.size(3) ** -0.5) @ source.keys.transpose(2, 3)
    best = _best_slots(scores[..., : source.slots], source.windows, opened)
    probabilities = softmax(scores + _score_biases(best, source.windows, query.dtype))
    return F.dropout(probabilities.type_as(query), dropout) @ source.values, probabilities


@torch.no_grad()
def _best_slots(slot_scores: Tensor, windows: Windows, opened: int) -> Tensor:
    """The slots that each query opens, (B, H, T, m), each once: a choice, which has no gradient."""
    dtype = at_least_float32(slot_scores.dtype)
    lowest = torch.finfo(dtype).min / 2  # of an empty slot, still above those found once a score is added
    scores = slot_scores + windows.sizes.to(dtype).log().clamp(min=lowest)[:, None, None]
    opened = min(opened, scores.size(3))
    if opened > MAX_ARGMAX_SLOTS:
        return scores.topk(opened, dim=3).indices
    found: list[Tensor] = []
    for _ in range(opened):
        if found:
            scores = scores.scatter_(3, found[-1], -torch.inf)
        found.append(scores.argmax(3, keepdim=True))
    return torch.cat(found, 3)


def _closed_biases(best: Tensor, windows: Windows, dtype: torch.dtype) -> Tensor:
    """The biases of the scores of slots, (B, H, T, s): log w for a closed slot, and -inf for an opened one."""
    sizes = windows.sizes.to(dtype).log()[:, None, None]
    return sizes.expand(*best.shape[:3], -1).scatter(3, best, -torch.inf)


@torch.no_grad()
def _score_biases(best: Tensor, windows: Windows, dtype: torch.dtype) -> Tensor:
    """The biases of the scores of slots and tokens, (B, H, T, s + n).

    They are log w for a slot that stays closed, 0 for a token of an opened one, and -inf for everything else.
    """
    batch, slots = windows.sizes.shape
    shape = best.shape[:3]
    closed = _closed_biases(best, windows, dtype)
    opened = torch.full((*shape, slots + 1), -torch.inf, dtype=dtype, device=best.device).scatter_(3, best, 0.0)
    every_slot = torch.arange(slots, device=best.device).expand(batch, -1)
    index = torch.cat([every_slot, slots + windows.of_tokens], 1)  # into slots and tokens side by side
    return torch.cat([closed, opened], 3).gather(3, index[:, None, None].expand(*shape, -1))


def _in_tiles(query: Tensor, source: TwoLevelSource, opened: int, dropout: float) -> Tensor:
    slots, head_dim, sizes = source.slots, query.size(3), source.windows.sizes
    query = query * head_dim**-0.5
    slot_scores = query @ source.keys[:, :, :slots].transpose(2, 3)
    best = _best_slots(slot_scores, source.windows, opened)
    batch, heads, queries, opened = best.shape
    tiles = _tiles(best.flatten(0, 1).flatten(1), slots)
    of_slots = slots + _window_tokens(source.windows)  # (B, s, w), their places in keys and values
    width = of_slots.size(2)
    index = of_slots[:, None].expand(-1, heads, -1, -1).flatten(0, 1)
    index = index.gather(1, tiles.slots[..., None].expand(-1, -1, width)).flatten(1)[..., None]

    def of_tiles(x: Tensor) -> Tensor:
        """The tokens of each tile's slot, (B H, tiles, w, d)."""
        return x.flatten(0, 1).gather(1, index.expand(-1, -1, head_dim)).unflatten(1, (-1, width))

    rows = query[:, :, :, None].expand(-1, -1, -1, opened, -1).flatten(2, 3).flatten(0, 1)  # (B H, T m, d)
    scores = tiles.collect(tiles.spread(rows) @ of_tiles(source.keys).transpose(2, 3))  # (B H, T m, w)
    scores = scores.unflatten(0, (batch, heads)).unflatten(2, (queries, opened))
    own_sizes = sizes[:, None, None].expand(-1, heads, queries, -1).gather(3, best)  # (B, H, T, m)
    beyond = torch.arange(width, device=best.device) >= own_sizes[..., None]
    scores = scores.masked_fill(beyond, -torch.inf).flatten(3)

    slot_scores = slot_scores + _closed_biases(best, source.windows, query.dtype)
    probabilities = softmax(torch.cat([slot_scores, scores], 3))
    probabilities = F.dropout(probabilities.type_as(query), dropout)
    of_pairs = probabilities[..., slots:].unflatten(3, (opened, width)).flatten(2, 3).flatten(0, 1)
    out = tiles.collect(tiles.spread(of_pairs) @ of_tiles(source.values))  # (B H, T m, d)
    out = out.unflatten(0, (batch, heads)).unflatten(2, (queries, opened)).sum(3)
    return out + probabilities[..., :slots] @ source.values[:, :, :slots]


class _Tiles(NamedTuple):
    """Pairs of a query and a slot that it opens, sorted by slot into tiles of c places; every tile has one slot."""

    slots: Tensor
    """(X, tiles)."""
    places: Tensor
    """The place of each pair among all places of all tiles, (X, pairs)."""
    size: int
    """Places of a tile, c."""

    def spread(self, x: Tensor) -> Tensor:
        """(X, pairs, D) to (X, tiles, c, D), zero at places without a pair."""
        index = self.places[..., None].expand(x.shape)
        grid = x.new_zeros(len(x), self.slots.size(1) * self.size, x.size(2)).scatter(1, index, x)
        return grid.unflatten(1, (-1, self.size))

    def collect(self, grid: Tensor) -> Tensor:
        """(X, tiles, c, D) back to (X, pairs, D)."""
        return grid.flatten(1, 2).gather(1, self.places[..., None].expand(-1, -1, grid.size(3)))


def _tiles(pair_slots: Tensor, slots: int) -> _Tiles:
    """The tiles of pairs with these slots, (X, pairs).

    There are as many tiles as the worst case needs, so that no shape depends on what the slots are.
    """
    pairs = pair_slots.size(1)
    size = max(1, -(-pairs // slots))
    in_order, order = pair_slots.sort(dim=1, stable=True)
    counts = torch.zeros(len(pair_slots), slots, dtype=torch.long, device=pair_slots.device)
    counts = counts.scatter_add(1, pair_slots, torch.ones_like(pair_slots))
    needed = torch.div(counts + size - 1, size, rounding_mode="floor")
    firsts = needed.cumsum(1) - needed  # the first tile of each slot
    before = counts.cumsum(1) - counts  # pairs of earlier slots
    rank = torch.arange(pairs, device=pair_slots.device) - before.gather(1, in_order)
    places_in_order = firsts.gather(1, in_order) * size + rank
    places = torch.zeros_like(places_in_order).scatter(1, order, places_in_order)
    tiles = (pairs + (size - 1) * min(slots, pairs)) // size
    tile_slots = torch.zeros(len(pair_slots), tiles, dtype=torch.long, device=pair_slots.device)
    tile_slots = tile_slots.scatter(1, torch.div(places, size, rounding_mode="floor"), pair_slots)
    return _Tiles(tile_slots, places, size)


def _window_tokens(windows: Windows) -> Tensor:
    """The tokens of each slot, (B, s, w), with w the longest window's; beyond a window's end any token."""
    width = -(-windows.of_tokens.size(1) // windows.sizes.size(1))
    starts = windows.sizes.cumsum(1) - windows.sizes
    tokens = starts[..., None] + torch.arange(width, device=starts.device)
    return tokens.clamp(max=windows.of_tokens.size(1) - 1)
