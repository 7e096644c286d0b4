"""Linformer attention written down sentence by sentence, head by head, with E X explicit; slow and plain."""

import torch
from torch import Tensor

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import KINDS, ConvProjection, LinearProjection, MaxPool, Projection, TwoLevelPool


def pooling_matrix(k: int, n: int) -> Tensor:
    """(min(k, n), n), the means over windows as one would write them in a loop."""
    slots = min(k, n)
    matrix = torch.zeros(slots, n, dtype=torch.float64)
    for token in range(n):
        matrix[token * slots // n, token] = 1
    return matrix / matrix.sum(1, keepdim=True)


def explicit_matrix(projection: Projection, head: int, n: int) -> Tensor:
    """The matrix of one head for one sentence of n tokens, its empty slots left out."""
    k = projection.projected_dim
    if not hasattr(projection, "weight"):
        return pooling_matrix(k, n)
    weight = projection.weight if projection.num_heads is None else projection.weight[head]
    if isinstance(projection, LinearProjection):
        return weight[: min(k, n) if projection.masks_empty_slots else k, :n]
    if isinstance(projection, ConvProjection):
        width = projection.kernel_size
        rows = []
        for start in range(0, n, width):
            taps = weight[: n - start]
            rows.append(torch.cat([taps.new_zeros(start), taps, taps.new_zeros(n - start - len(taps))]))
        return torch.stack(rows)
    return pooling_matrix(k, n) + weight[: min(k, n), :n]


def reference_attention(
    attention: LinformerMultiheadAttention, query: Tensor, key: Tensor, lengths: list[int]
) -> Tensor:
    """Output (T, B, C) of `attention` for keys that are the values too, (n, B, C)."""
    if isinstance(attention.key_projection, TwoLevelPool):
        return two_level_reference(attention, query, key, lengths)[0]
    outputs = []
    for sentence, n in enumerate(lengths):
        x, heads = key[:n, sentence], []
        q = attention.q_proj(query[:, sentence])
        for head in range(attention.num_heads):
            rows = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
            k = project(attention.key_projection, attention.k_proj, head, rows, x)
            v = project(attention.value_projection, attention.v_proj, head, rows, x)
            heads.append(torch.softmax(q[:, rows] @ k.t() * attention.head_dim**-0.5, -1) @ v)
        outputs.append(attention.out_proj(torch.cat(heads, -1)))
    return torch.stack(outputs, 1)


def project(projection: Projection, linear: torch.nn.Linear, head: int, rows: slice, x: Tensor) -> Tensor:
    """(E X) W + b, or for maxima max(X) W + b (heads share) and max(X W) + b (a maximum a head)."""
    weight, bias = linear.weight[rows], linear.bias[rows]
    if not isinstance(projection, MaxPool):
        return explicit_matrix(projection, head, len(x)).to(x.dtype) @ x @ weight.t() + bias
    windows = pooling_matrix(projection.projected_dim, len(x)) > 0
    if projection.num_heads is None:
        return torch.stack([x[window].amax(0) for window in windows]) @ weight.t() + bias
    return torch.stack([(x @ weight.t())[window].amax(0) for window in windows]) + bias


def two_level_reference(
    attention: LinformerMultiheadAttention, query: Tensor, key: Tensor, lengths: list[int]
) -> tuple[Tensor, Tensor]:
    """Output (T, B, C) and weights (H, B, T, n) of two-level attention, query by query and window by window."""
    pool, scale = attention.key_projection, attention.head_dim**-0.5
    out, all_weights = [], key.new_zeros(attention.num_heads, key.size(1), len(query), len(key))
    for sentence, n in enumerate(lengths):
        first = pooling_matrix(pool.projected_dim**2, n).to(key.dtype)  # every token by itself for n <= k²
        x = first @ key[:n, sentence]
        windows = pooling_matrix(pool.projected_dim, len(x)) > 0
        q, k, v = attention.q_proj(query[:, sentence]), attention.k_proj(x), attention.v_proj(x)
        rows = []
        for i in range(len(query)):
            heads = []
            for head in range(attention.num_heads):
                own = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
                of_tokens = k[:, own] @ q[i, own] * scale
                keys = torch.stack([k[window, own].mean(0) for window in windows])
                of_slots = keys @ q[i, own] * scale + windows.sum(1).to(key.dtype).log()
                opened = of_slots.topk(min(pool.open_slots, len(windows))).indices.tolist()
                entries = []  # a score, and the tokens that share its weight
                for slot, window in enumerate(windows):
                    members = window.nonzero().flatten().tolist()
                    if slot in opened:
                        entries += [(of_tokens[token], [token]) for token in members]
                    else:
                        entries.append((of_slots[slot], members))
                weights = torch.softmax(torch.stack([score for score, _ in entries]), 0)
                spread = key.new_zeros(len(x))
                for weight, (_, members) in zip(weights, entries, strict=True):
                    spread[members] = weight / len(members)
                heads.append(spread @ v[:, own])
                all_weights[head, sentence, i, :n] = spread.detach() @ first
            rows.append(torch.cat(heads))
        out.append(attention.out_proj(torch.stack(rows)))
    return torch.stack(out, 1), all_weights


def make_attention(
    kind: str = "linear",
    sharing: str = "headwise",
    k: int = 4,
    n: int = 32,
    embed_dim: int = 8,
    num_heads: int = 2,
    *,
    random: bool = True,
    dtype: torch.dtype = torch.float64,
    mask_empty_slots: bool = False,
    init: str = "xavier",
    **options: object,
) -> LinformerMultiheadAttention:
    """An attention in evaluation mode, by the names of the flags; `random` moves every weight from its start."""
    extra = {"mask_empty_slots": mask_empty_slots, "init": init} if kind == "linear" else {}
    heads = num_heads if sharing == "none" else None
    key_projection = KINDS[kind](k, n, heads, **extra)
    value_projection = None if sharing in ("key-value", "layerwise") else KINDS[kind](k, n, heads, **extra)
    if not options.get("encoder_decoder_attention"):
        options.setdefault("self_attention", True)
    attention = LinformerMultiheadAttention(
        embed_dim, num_heads, key_projection=key_projection, value_projection=value_projection, **options
    )
    if random:
        for parameter in attention.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    return attention.to(dtype).eval()


def naive_causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_matrix: Tensor,
    value_matrix: Tensor,
    slot_mask: Tensor | None = None,
    window: int = 0,
) -> Tensor:
    """S = tril(Q Kᵀ, -w) Eᵀ beside the scores of the window, their softmax, O = tril(P F, -w) V + R V with every T × T
    matrix written out; shapes as in `linformer_fairseq.modules.causal.causal_attention`, but for E and F, whose columns
    are those of the tokens themselves."""
    q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))  # (B, H, T, d)
    of_tokens = q @ k.transpose(2, 3)
    scores = of_tokens.tril(-window) @ key_matrix.transpose(1, 2)
    if slot_mask is not None:
        scores = scores.masked_fill(~slot_mask, -torch.inf)
    if window:
        near = torch.ones(of_tokens.shape[2:], dtype=torch.bool).tril().triu(1 - window)
        scores[:, :, :window] = -torch.inf  # no token is older
        scores = torch.cat([scores, of_tokens.masked_fill(~near, -torch.inf)], -1)
    probabilities, slots = torch.softmax(scores, -1), key_matrix.size(1)
    weights = (probabilities[..., :slots] @ value_matrix).tril(-window)
    if window:
        weights = weights + probabilities[..., slots:]
    return (weights @ v).permute(2, 0, 1, 3)


def prefix_attention(attention: LinformerMultiheadAttention, x: Tensor, lengths: list[int]) -> Tensor:
    """The rule itself: row i of the output is what Linformer attention gives its last token on tokens 0 ... i."""
    out = x.new_zeros(x.shape)
    for sentence, n in enumerate(lengths):
        for i in range(n):
            prefix = x[: i + 1, sentence : sentence + 1]
            out[i, sentence] = reference_attention(attention, prefix[-1:], prefix, [i + 1])[0, 0]
    return out
