"""Projections of the length axis: n tokens in, at most k slots out (Wang et al., 2020, section 4).

Every kind but max-pooling is a matrix E with `out = E @ x`; a kind says what that matrix is, which may depend on the
length of the sentence, but never on the batch it stands in.

Shapes: n is the padded length, B the batch, D the features, s <= k the slots that `num_slots` gives for n. `lengths`
are the tokens of each sentence, (B,); None where all have n.
"""

import math

import torch
from torch import Tensor, nn

from linformer_fairseq.modules.ops.blocks import in_blocks
from linformer_fairseq.modules.ops.memo import remembered
from linformer_fairseq.modules.registry import check_dims


class Projection(nn.Module):
    """Base of all kinds.

    Args:
        projected_dim: k, the largest number of slots, at least 1.
        max_positions: N, the longest sentence in tokens; None for any, where the kind has no weights.

    Raises:
        ValueError: k < 1.
    """

    weight: nn.Parameter  # the matrix E, in the kinds that learn one
    width = 1  # slot c is empty in sentences of up to c times so many tokens
    longest: int | None = None  # the most tokens that a sentence may have; None where any number may

    def __init__(self, projected_dim: int, max_positions: int | None) -> None:
        super().__init__()
        check_dims(projected_dim)
        self.projected_dim = projected_dim
        self.max_positions = max_positions

    def matrix(self, n: int, lengths: Tensor | None, like: Tensor) -> Tensor:
        """The matrix that maps tokens to slots, (B, s, n) or (1, s, n) for all sentences, of the type and device of
        `like`; n is at most N where there is a weight for every token."""
        raise NotImplementedError

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Projects `x` (n, B, D), right-padded and zero at padded positions, onto slots, (s, B, D)."""
        return torch.matmul(self.matrix(len(x), lengths, x), x.transpose(0, 1)).transpose(0, 1)

    def num_slots(self, n: int) -> int:
        """Slots that a batch of padded length n needs: k, or fewer where the others would be masked anyway."""
        return min(self.projected_dim, n)

    def slot_mask(self, n: int, lengths: Tensor | None) -> Tensor | None:
        """The slots that take part in the softmax, (B, 1, 1, s): those that a token fills, and the first of an empty
        sentence; None where all do."""
        return None if lengths is None else _filled(lengths, self.num_slots(n), self.width)

    def extra_repr(self) -> str:
        return f"k={self.projected_dim}, N={self.max_positions}"


@remembered
def _filled(lengths: Tensor, slots: int, width: int) -> Tensor:
    """Whether slot c has a token from c w on, (B, 1, 1, s)."""
    starts = torch.arange(0, slots * width, width, device=lengths.device)
    return (starts < lengths.clamp(min=1)[:, None])[:, None, None]


def project_both(
    keys: Projection, values: Projection, key: Tensor, value: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """E of the keys and F of the values, (n, B, D) to (s, B, D); where they are the same tensor, what is common is
    computed once, and learned E and F are one product, which reads the tokens once."""
    if value is key and values is keys:
        slots = keys(key, lengths)
        return slots, slots
    if value is key and isinstance(keys, LinearProjection) and isinstance(values, LinearProjection):
        both = torch.cat([projection.rows(len(key), key.dtype) for projection in (keys, values)])
        of_keys, of_values = (both @ key.flatten(1)).view(2, -1, *key.shape[1:]).unbind()
        return of_keys, of_values
    return keys(key, lengths), values(value, lengths)


class LinearProjection(Projection):
    """Learned E of shape (k, N), the paper's projection: slot c of a sentence of n tokens is `E[c, :n] @ x`.

    Args:
        mask_empty_slots: whether slot c takes part in the softmax from length c + 1 on alone, and not in all sentences.

    Raises:
        ValueError: k < 1 or k > N.
    """

    def __init__(self, projected_dim: int, max_positions: int, mask_empty_slots: bool = False) -> None:
        super().__init__(projected_dim, max_positions)
        if projected_dim > max_positions:
            raise ValueError(
                f"the projected dimension k = {projected_dim} is larger than the longest length N = {max_positions}; "
                "choose k <= N"
            )
        self.longest = max_positions
        self.masks_empty_slots = mask_empty_slots
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(projected_dim, max_positions)))

    @torch.no_grad()
    def start_as_identity(self) -> None:
        """Makes slot c token c; later tokens stay small and random. It is full attention for n <= k where empty slots
        are masked."""
        self.weight[:, : self.projected_dim] = torch.eye(self.projected_dim)

    def num_slots(self, n: int) -> int:
        return super().num_slots(n) if self.masks_empty_slots else self.projected_dim

    def slot_mask(self, n: int, lengths: Tensor | None) -> Tensor | None:
        return super().slot_mask(n, lengths) if self.masks_empty_slots else None

    def rows(self, n: int, dtype: torch.dtype) -> Tensor:
        """The part of E for n tokens, (s, n)."""
        return self.weight[: self.num_slots(n), :n].to(dtype)

    def matrix(self, n: int, lengths: Tensor | None, like: Tensor) -> Tensor:
        return self.rows(n, like.dtype)[None]

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        # the rows are those of all sentences, so that it is one product
        return (self.rows(len(x), x.dtype) @ x.flatten(1)).unflatten(1, x.shape[1:])

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, empty_slots={'masked' if self.masks_empty_slots else 'kept'}"


@remembered
def pooling_windows(lengths: Tensor, n: int, most: int) -> Tensor:
    """Cuts each sentence into s = min(`most`, m) windows, m its length: token j is in window ⌊j s / m⌋.

    Windows stand side by side, and their sizes differ by one at most. An empty sentence counts as one token of padding,
    as its softmax would be of nothing otherwise.

    Returns:
        The window of each token, (B, n); for padding, which is in none, min(`most`, n).
    """
    tokens, lengths = torch.arange(n, device=lengths.device), lengths.clamp(min=1)[:, None]
    return (tokens * lengths.clamp(max=most) // lengths).masked_fill(tokens >= lengths, min(most, n))


@remembered
def mean_matrix(lengths: Tensor, n: int, most: int, dtype: torch.dtype) -> Tensor:
    """The matrix that maps tokens to the means of these windows, (B, s, n); zero in windows without a token."""
    members = pooling_windows(lengths, n, most)[:, None] == torch.arange(min(most, n), device=lengths.device)[:, None]
    return members.to(dtype) / members.sum(2, keepdim=True).clamp(min=1).to(dtype)


class MeanPool(Projection):
    """Means over min(k, n) windows of neighbouring tokens whose sizes differ by one at most; no parameters.

    For n <= k every token has a slot of its own, and the attention is full attention.
    """

    def matrix(self, n: int, lengths: Tensor | None, like: Tensor) -> Tensor:
        return mean_matrix(_lengths(n, lengths, like), n, self.projected_dim, like.dtype)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return x if len(x) <= self.projected_dim else super().forward(x, lengths)


class MaxPool(MeanPool):
    """Maximum of every feature over the same windows as `MeanPool`; no parameters.

    It has no matrix: `matrix` gives that of the means, which spreads a slot's attention weight evenly over the
    tokens of its window.
    """

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        n, batch, features = x.shape
        windows = pooling_windows(_lengths(n, lengths, x), n, self.projected_dim)
        index = windows.t()[:, :, None].expand(n, batch, features)
        # padded rows hold zeros, which would win against negative features: they have a slot of their own, the last
        slots = x.new_full((self.num_slots(n) + 1, batch, features), -torch.inf)
        slots = slots.scatter_reduce(0, index, x, "amax")[:-1]
        return slots.masked_fill(slots.isneginf(), 0.0)


def _lengths(n: int, lengths: Tensor | None, like: Tensor) -> Tensor:
    """The lengths of sentences, (B,), or (1,) where all have n tokens."""
    return torch.full((1,), n, device=like.device) if lengths is None else lengths


class ConvProjection(Projection):
    """Convolution along the length with kernel = stride = ceil(N / k), one kernel (w,) for all features.

    Slot c is the weighted sum of tokens cw ... cw + w - 1; a sentence of n tokens fills ceil(n / w) slots. The
    kernel starts as the mean.
    """

    def __init__(self, projected_dim: int, max_positions: int) -> None:
        super().__init__(projected_dim, max_positions)
        self.width = math.ceil(max_positions / projected_dim)
        self.weight = nn.Parameter(torch.full((self.width,), 1 / self.width))

    def num_slots(self, n: int) -> int:
        return math.ceil(n / self.width)

    def matrix(self, n: int, lengths: Tensor | None, like: Tensor) -> Tensor:
        slots = torch.arange(self.num_slots(n), device=like.device)
        members = torch.arange(n, device=like.device) // self.width == slots[:, None]
        taps = self.weight.to(like.dtype).repeat(len(slots))[:n]
        return (members * taps)[None]

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        windows = in_blocks(x, self.width, 0)  # (s, w, B, D)
        return (self.weight.to(x.dtype) @ windows.flatten(2)).unflatten(1, x.shape[1:])
