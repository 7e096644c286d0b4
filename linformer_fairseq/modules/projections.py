"""Projections of the length axis: n tokens in, at most k slots out (Wang et al., 2020, section 4).

Every kind but max-pooling is a matrix `E` with `out = E @ x`; a kind says what that matrix is, which may depend
on the length of the sentence, but never on the batch it stands in.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.forward_cache import ForwardCache
from linformer_fairseq.modules.ops.sentence_products import apply_matrix
from linformer_fairseq.modules.ops.windows import Windows, even_windows

INITS = ("xavier", "normal", "identity")


class Projection(nn.Module):
    """Base of all kinds.

    Args:
        projected_dim: k, the number of slots, at least 1.
        max_positions: N, the longest sentence in tokens, at least k.
        num_heads: H for a projection of its own in every head, None for one that the heads share.

    Raises:
        ValueError: k < 1 or k > N.

    Shapes: n is the padded length, B the batch, G = 1 where the heads share the projection and H where they do
    not, D the features, s <= k the slots that `num_slots` gives for n.
    """

    weight: nn.Parameter
    """The matrix E, in the kinds that learn one."""
    masks_empty_slots = True
    """Whether slots that no token of a sentence fills are kept out of its softmax."""
    is_linear = True
    """Whether it is a matrix, so that a linear layer may come before it or after it."""

    def __init__(self, projected_dim: int, max_positions: int, num_heads: int | None = None) -> None:
        super().__init__()
        check_dims(projected_dim)
        self.projected_dim = projected_dim
        self.max_positions = max_positions
        self.num_heads = num_heads
        self.length_cache = ForwardCache()
        """Open where other layers have sentences of the same lengths."""

    def matrix(self, n: int, lengths: Tensor, dtype: torch.dtype) -> Tensor:
        """The matrix of `dtype` that maps tokens to slots, broadcastable to (B, G, s, n).

        Args:
            n: padded length, at most N.
            lengths: tokens of each sentence, (B,).
        """
        raise NotImplementedError

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Projects `x`.

        Args:
            x: (n, B, G, D), or (n, B, 1, D) for features that all heads project; right-padded and zero at padded
                positions.
            lengths: tokens of each sentence, (B,).

        Returns:
            (B, G, s, D), the layout in which attention reads its keys.
        """
        return apply_matrix(self.matrix(x.size(0), lengths, x.dtype), x)

    def with_values(self, values: "Projection", x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Projects the same `x` with this projection and with `values`, of the same kind: E x and F x."""
        slots = self(x, lengths)
        return slots, slots if values is self else values(x, lengths)

    def multiplications(self, n: int) -> int:
        """How many multiplications the projection of one feature takes, for one sentence of padded length n."""
        return self.num_slots(n) * n

    @property
    def same_for_all_sentences(self) -> bool:
        """Whether the matrix is one for sentences of every length, of which a shorter one uses the first columns."""
        return False

    @property
    def groups(self) -> int:
        """How many matrices project a feature: one for every head, or one for all heads."""
        return self.num_heads if self.num_heads is not None and hasattr(self, "weight") else 1

    def num_slots(self, n: int) -> int:
        """Slots that a batch of padded length n needs: k, or fewer where the others would be masked anyway."""
        return min(self.projected_dim, n) if self.masks_empty_slots else self.projected_dim

    def filled_slots(self, lengths: Tensor) -> Tensor:
        """Number of slots that the tokens of each sentence fill, (B,)."""
        return lengths.clamp(max=self.projected_dim)

    def slots_to_fit(self, n: int) -> Tensor | None:
        """The slot that stands for each of n tokens when E and F are fitted to attention maps, (n,).

        None where the projection has no weight with a column for each token, which could be fitted.
        """
        return None

    def extra_repr(self) -> str:
        empty = "masked" if self.masks_empty_slots else "kept"
        return f"k={self.projected_dim}, N={self.max_positions}, num_heads={self.num_heads}, empty_slots={empty}"

    def _new_weight(self, *shape: int) -> nn.Parameter:
        heads = () if self.num_heads is None else (self.num_heads,)
        return nn.Parameter(torch.empty(*heads, *shape))

    def _columns(self, n: int) -> Tensor:
        """The part of a (k, N) or (H, k, N) weight that projects n tokens, (1, G, s, n)."""
        weight = self.weight[..., : self.num_slots(n), :n]
        return weight[None, None] if self.num_heads is None else weight[None]


def check_dims(projected_dim: int) -> None:
    """Refuses a projected dimension k below 1.

    Raises:
        ValueError: naming it.
    """
    if projected_dim < 1:
        raise ValueError(f"the projected dimension k must be at least 1, not {projected_dim}")


class LinearProjection(Projection):
    """Learned E of shape (k, N), or (H, k, N): slot c of a sentence of n tokens is `E[c, :n] @ x`.

    The paper's projection. All k slots take part in the softmax unless `mask_empty_slots` is set: then slot c
    counts from length c + 1 on.

    Args:
        init: "xavier" (uniform; the default), "normal" (variance 1/k, the random projection of the paper's
            Theorem 1) or "identity" (slot c takes token c; the later tokens start small and random, so that with
            empty slots masked the attention starts as full attention for n <= k).
        mask_empty_slots: keep slots that a short sentence cannot fill out of the softmax.
    """

    def __init__(
        self,
        projected_dim: int,
        max_positions: int,
        num_heads: int | None = None,
        init: str = "xavier",
        mask_empty_slots: bool = False,
    ) -> None:
        super().__init__(projected_dim, max_positions, num_heads)
        if projected_dim > max_positions:
            raise ValueError(
                f"the projected dimension k = {projected_dim} is larger than the longest length N = {max_positions}; "
                "choose k <= N"
            )
        if init not in INITS:
            raise ValueError(f"unknown initialisation {init!r} of the projection; choose one of {', '.join(INITS)}")
        self.masks_empty_slots = mask_empty_slots
        self.weight = self._new_weight(projected_dim, max_positions)
        self.init = init
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        k = self.projected_dim
        for matrix in self.weight.view(-1, k, self.max_positions):
            if self.init == "normal":
                nn.init.normal_(matrix, std=k**-0.5)
                continue
            nn.init.xavier_uniform_(matrix)
            if self.init == "identity":
                matrix[:, :k] = torch.eye(k)

    def matrix(self, n: int, lengths: Tensor, dtype: torch.dtype) -> Tensor:
        return self._columns(n).to(dtype)

    @property
    def same_for_all_sentences(self) -> bool:
        return type(self) is LinearProjection  # a subclass may have another matrix

    def slots_to_fit(self, n: int) -> Tensor | None:
        return torch.arange(n) % self.projected_dim

    def columns(self, start: int, length: int) -> Tensor:
        """The columns of `length` tokens from position `start` on, (G, k, length); zero before 0 and beyond N."""
        before = min(length, max(0, -start))
        columns = self.weight[..., max(0, start) : max(0, start + length)]
        if self.num_heads is None:
            columns = columns.unsqueeze(0)
        beyond = length - before - columns.size(2)
        return F.pad(columns, (before, beyond)) if before or beyond else columns

    def with_values(self, values: Projection, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return _one_product(self, values, x, lengths)


def _one_product(keys: Projection, values: Projection, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """E x and F x for two matrices E and F.

    One product of twice the rows reads x (n, B, 1, D) once instead of twice, and its gradient is one product too, but E
    and F are copied for it and its two halves after it: without a gradient it is taken where that is less to read.
    """
    n, batch, _, features = x.shape
    copied = 2 * keys.num_slots(n) * (n + batch * features)
    with_gradient = torch.is_grad_enabled() and x.requires_grad
    if values is keys or (copied >= n * batch * features and not with_gradient):
        return Projection.with_values(keys, values, x, lengths)
    stacked = torch.cat([p.matrix(n, lengths, x.dtype) for p in (keys, values)], dim=2)
    slots = apply_matrix(stacked, x).chunk(2, dim=2)
    return slots[0], slots[1]


class MeanPool(Projection):
    """Means over min(k, n) windows of neighbouring tokens whose sizes differ by one at most; no parameters.

    For n <= k every token has a slot of its own, and the attention is full attention.
    """

    def windows(self, n: int, lengths: Tensor) -> Windows:
        """The windows of sentences of these lengths (B,), padded to n."""
        k = self.projected_dim
        return self.length_cache.get(f"{k} windows of {n} tokens", lengths, lambda x: even_windows(n, x, k))

    def matrix(self, n: int, lengths: Tensor, dtype: torch.dtype) -> Tensor:
        name = f"means of {self.projected_dim} windows of {n} tokens in {dtype}"
        return self.length_cache.get(name, lengths, lambda x: self.windows(n, x).mean_matrix(dtype))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if len(x) <= self.projected_dim:  # every token has a slot of its own
            return x.permute(1, 2, 0, 3)
        return super().forward(x, lengths)

    def multiplications(self, n: int) -> int:
        return 0 if n <= self.projected_dim else super().multiplications(n)


class MaxPool(MeanPool):
    """Maximum of every feature over the same windows as `MeanPool`; no parameters.

    It has no matrix: `matrix` gives that of the means, which spreads a slot's attention weight evenly over the
    tokens of its window.
    """

    is_linear = False

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        n, batch, groups, features = x.shape
        tokens = torch.arange(n, device=x.device)
        # padded rows hold zeros, which would win against negative features
        x = x.masked_fill((tokens[:, None] >= lengths)[:, :, None, None], -torch.inf)
        index = self.windows(n, lengths).of_tokens.t()[:, :, None, None].expand_as(x)
        slots = x.new_full((self.num_slots(n) + 1, batch, groups, features), -torch.inf)
        slots = slots.scatter_reduce(0, index, x, "amax")[:-1]
        return slots.masked_fill(slots.isneginf(), 0.0).permute(1, 2, 0, 3)


class PooledLinear(MeanPool):
    """`MeanPool` plus a learned E of shape (k, N), or (H, k, N), that starts at zero.

    It starts as mean-pooling, hence as full attention for n <= k: a trained Transformer can be turned into it.
    """

    def __init__(self, projected_dim: int, max_positions: int, num_heads: int | None = None) -> None:
        super().__init__(projected_dim, max_positions, num_heads)
        self.weight = self._new_weight(projected_dim, max_positions)
        nn.init.zeros_(self.weight)

    def slots_to_fit(self, n: int) -> Tensor | None:
        return self.windows(n, torch.tensor([n])).of_tokens[0]

    def matrix(self, n: int, lengths: Tensor, dtype: torch.dtype) -> Tensor:
        return super().matrix(n, lengths, dtype) + self._columns(n).to(dtype)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if len(x) <= self.projected_dim:  # the means are the tokens, and E is the same for all sentences
            return x.permute(1, 2, 0, 3) + apply_matrix(self._columns(len(x)).to(x.dtype), x)
        return Projection.forward(self, x, lengths)

    def with_values(self, values: Projection, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        if len(x) <= self.projected_dim:
            return super().with_values(values, x, lengths)
        return _one_product(self, values, x, lengths)

    def multiplications(self, n: int) -> int:
        return Projection.multiplications(self, n)


class ConvProjection(Projection):
    """Convolution along the length with kernel = stride = ceil(N / k), one kernel (w,), or (H, w), for all features.

    Slot c is the weighted sum of tokens cw ... cw + w - 1; a sentence of n tokens fills ceil(n / w) slots. The
    kernel starts as the mean.
    """

    def __init__(self, projected_dim: int, max_positions: int, num_heads: int | None = None) -> None:
        super().__init__(projected_dim, max_positions, num_heads)
        self.kernel_size = math.ceil(max_positions / projected_dim)
        self.weight = self._new_weight(self.kernel_size)
        nn.init.constant_(self.weight, 1 / self.kernel_size)

    def num_slots(self, n: int) -> int:
        return math.ceil(n / self.kernel_size)

    def filled_slots(self, lengths: Tensor) -> Tensor:
        return torch.div(lengths + self.kernel_size - 1, self.kernel_size, rounding_mode="floor")

    def matrix(self, n: int, lengths: Tensor, dtype: torch.dtype) -> Tensor:
        slots = torch.arange(self.num_slots(n), device=lengths.device)
        members = torch.arange(n, device=lengths.device) // self.kernel_size == slots[:, None]
        taps = self.weight.view(-1, 1, self.kernel_size).to(dtype).repeat(1, 1, len(slots))[..., :n]
        return (members * taps)[None]

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        n, slots = len(x), self.num_slots(len(x))
        missing = slots * self.kernel_size - n
        windows = F.pad(x, (0, 0, 0, 0, 0, 0, 0, missing)) if missing else x
        windows = windows.unflatten(0, (slots, self.kernel_size))  # (s, w, B, 1 or G, D)
        taps = self.weight.to(x.dtype).view(-1, self.kernel_size)  # (G, w)
        if x.size(2) == 1:  # one product with the taps of all heads
            out = (taps @ windows.flatten(2)).unflatten(2, (x.size(1), -1))  # (s, G, B, D)
            return out.permute(2, 1, 0, 3)
        return (windows * taps.t()[:, None, :, None]).sum(1).permute(1, 2, 0, 3)

    def multiplications(self, n: int) -> int:
        return n
