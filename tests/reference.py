"""Builds attention of every kind with random weights, and evaluates the formulas of `tests.naive` with them."""

from argparse import Namespace
from collections.abc import Sequence
from functools import partial

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from linformer_fairseq import CausalLinformerAttention, LinformerMultiheadAttention, TwoLevelAttention
from linformer_fairseq.convert.checkpoint import start_as_identity
from linformer_fairseq.models.config import default_flags
from linformer_fairseq.modules import (
    CAUSAL_KINDS,
    KINDS,
    BaseAttention,
    CausalFullAttention,
    CausalTwoLevelAttention,
    CausalWindowAttention,
    ConvProjection,
    FullAttention,
    KeyClusterAttention,
    LinearProjection,
    MaxPool,
    Projection,
    WindowAttention,
)
from linformer_fairseq.modules.linformer_attention import SlotOptions
from linformer_fairseq.modules.ops.key_clusters import SORTS, largest_power_of_two
from linformer_fairseq.modules.registry import DEFAULT_KIND, WHEN_REGISTERED, LayerShapes
from tests import naive

PROJECTIONS = {name: kind.options.projection for name, kind in KINDS.items() if issubclass(kind.options, SlotOptions)}
"""The projections of Linformer attention by kind."""

REFERENCED = (
    LinformerMultiheadAttention,
    TwoLevelAttention,
    KeyClusterAttention,
    WindowAttention,
    FullAttention,
    CausalFullAttention,
    CausalLinformerAttention,
    CausalTwoLevelAttention,
    CausalWindowAttention,
)
"""The classes that `naive_attention` knows; the tests of any other compare it with a formula of their own."""


def make_attention(
    kind: str = "linear",
    sharing: str = "headwise",
    k: int = 4,
    n: int = 32,
    embed_dim: int = 8,
    num_heads: int = 2,
    *,
    causal: bool = False,
    random: bool = True,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> BaseAttention:
    """Returns an attention module in evaluation mode, built as the models build it.

    Args:
        k: the number of slots; a window is added to it.
        random: replaces every initial weight by a random one.
        options: those of all kinds by the names of their flags, such as `window`, of which the kind takes its own, and
            what fairseq passes.
    """
    registered = (CAUSAL_KINDS if causal else KINDS)[kind]
    flags, identity = (
        {**default_flags(DEFAULT_KIND), "linformer_sharing": sharing},
        options.pop("init", "") == "identity",
    )
    flags |= {flag: options.pop(name) for flag in flags if (name := flag.removeprefix("linformer_")) in options}
    kind_options = registered.options_from(Namespace(**flags))
    projected_dim = k + getattr(kind_options, "linformer_window", 0)
    (arguments,) = kind_options.arguments(LayerShapes((projected_dim,), n))
    if not options.get("encoder_decoder_attention"):
        options.setdefault("self_attention", True)
    if width := flags["linformer_value_convolution"]:
        arguments["value_convolution"] = width
    attention = registered.attention(embed_dim, num_heads, **arguments, **options)
    if identity:
        start_as_identity(attention)
    if random:
        for parameter in attention.parameters():
            nn.init.normal_(parameter, std=0.5)
    return attention.to(dtype).eval()


def look_at_inputs(attention: BaseAttention) -> None:
    """Makes queries and keys the inputs themselves, so that a test says which of them look at which."""
    with torch.no_grad():
        for layer in (attention.q_proj, attention.k_proj):
            layer.weight.copy_(torch.eye(attention.embed_dim))
            layer.bias.zero_()


def ask_for_a_hidden_token(attention: BaseAttention, n: int, place: int) -> Tensor:
    """Returns inputs (n, 1, 8) that all ask for the token at a place; the mean of its window is the same as that of all
    others, as the next token is its opposite, and what tells it from them is its highest key."""
    look_at_inputs(attention)
    with torch.no_grad():
        attention.q_proj.weight[0, 1] = 1.0  # what is asked for in feature 0 stands in feature 1
    x = torch.zeros(n, 1, 8, dtype=torch.float64)
    x[place, :, 0], x[place + 1, :, 0] = 8.0, -8.0
    x[:, :, 1] = 8.0
    return x


def padding_mask(lengths: Sequence[int], n: int | None = None) -> Tensor:
    """Returns the mask (B, n) of these lengths, true at padded positions; n is the longest unless given."""
    return torch.arange(n or max(lengths)) >= torch.tensor(lengths)[:, None]


def assert_same_gradients(one: Tensor, other: Tensor, inputs: Sequence[Tensor], **tolerance: float) -> None:
    """Asserts that two outputs have the same gradients; an input that an output does not use has zeros."""
    upstream = torch.randn_like(one)
    gradients = [
        torch.autograd.grad(y, inputs, upstream, retain_graph=True, allow_unused=True, materialize_grads=True)
        for y in (one, other)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def assert_checkpointing_changes_nothing(attention: BaseAttention, lengths: Sequence[int]) -> None:
    """Asserts that checkpointed activations have the same gradients, one for every parameter, as torch's DDP
    requires."""
    x = torch.randn(max(lengths), len(lengths), 8, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor) -> Tensor:
        return attention(x, x, x, key_padding_mask=padding_mask(lengths), need_weights=False)[0]

    outs = run(x), torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
    inputs = [x, *attention.parameters()]
    for kept, recomputed in zip(*(torch.autograd.grad(y.square().sum(), inputs) for y in outs), strict=True):
        torch.testing.assert_close(recomputed, kept, rtol=0, atol=0)


def matrix_of(projection: Projection, n: int) -> Tensor:
    """Returns the matrix (s, n) that maps a sentence of n tokens to the slots that are not empty."""
    k = projection.projected_dim
    if isinstance(projection, LinearProjection):
        return projection.weight[: min(k, n) if projection.masks_empty_slots else k, :n]
    if isinstance(projection, ConvProjection):
        return naive.convolution_matrix(n, projection.weight)
    return naive.pooling_matrix(n, k)


def naive_attention(
    attention: BaseAttention, query: Tensor, key: Tensor, lengths: Sequence[int], value: Tensor | None = None
) -> naive.Result:
    """Returns the output (T, B, C) and the weights by head (H, B, T, n); the values default to the keys, (n, B, D)."""
    value = key if value is None else value
    assert isinstance(attention, REFERENCED)
    if isinstance(attention, FullAttention | CausalFullAttention):
        return naive.multihead(attention, query, key, value, lengths, partial(_naive_full, attention.causal))
    if isinstance(attention, TwoLevelAttention):
        return naive.multihead(attention, query, key, value, lengths, _naive_two_levels(attention))
    if isinstance(attention, KeyClusterAttention):
        clusters = largest_power_of_two(attention.projected_dim)

        def by_clusters(q: Tensor, k: Tensor, v: Tensor, _: int) -> naive.Result:
            return naive.key_cluster_attention(q, k, v, clusters, SORTS)

        return naive.multihead(attention, query, key, value, lengths, by_clusters)
    if isinstance(attention, CausalTwoLevelAttention):
        two_levels = partial(_naive_causal_two_levels, attention)
        return naive.multihead(attention, query, key, value, lengths, two_levels)
    if isinstance(attention, WindowAttention | CausalWindowAttention):
        return naive.multihead(attention, query, key, value, lengths, partial(_naive_window, attention))
    projections = attention.key_projection, attention.value_projection
    if isinstance(projections[0], MaxPool):
        return _naive_max_pool_attention(attention, query, key, value, lengths)

    def head(q: Tensor, k: Tensor, v: Tensor, _: int) -> naive.Result:
        if isinstance(attention, LinformerMultiheadAttention):
            return naive.linformer_attention(q, k, v, *(matrix_of(x, len(k)).to(k) for x in projections))
        matrices = (x.weight[:, : len(k)] for x in projections)
        masked = projections[0].masks_empty_slots
        out, rows = naive.causal_linformer_attention(q[: len(k)], k, v, *matrices, attention.window, masked)
        return _padded(out, len(q)), _padded(rows, len(q))

    return naive.multihead(attention, query, key, value, lengths, head)


def _naive_two_levels(attention: TwoLevelAttention) -> naive.Head:
    """Returns what one head of two-level attention computes."""

    def head(q: Tensor, k: Tensor, v: Tensor, _: int) -> naive.Result:
        choosing = len(k) if attention.self_attention else None
        return naive.two_level_attention(q, k, v, attention.rule.sizes(len(k)), choosing, SORTS)

    return head


def _naive_causal_two_levels(
    attention: CausalTwoLevelAttention, q: Tensor, k: Tensor, v: Tensor, _: int
) -> naive.Result:
    """Returns what one head of causal two-level attention computes, with zeros for the queries of padding."""
    out, rows = naive.causal_two_level_attention(q[: len(k)], k, v, attention.sizes, attention.exact, SORTS)
    return _padded(out, len(q)), _padded(rows, len(q))


def _naive_full(causal: bool, q: Tensor, k: Tensor, v: Tensor, _: int) -> naive.Result:
    """Returns what one head of full attention computes, in a decoder with zeros for the queries of padding."""
    if not causal:
        return naive.full_attention(q, k, v)
    out, rows = naive.window_attention(q[: len(k)], k, v, len(k), 0)
    return _padded(out, len(q)), _padded(rows, len(q))


def _naive_window(
    attention: WindowAttention | CausalWindowAttention, q: Tensor, k: Tensor, v: Tensor, _: int
) -> naive.Result:
    """Returns what one head of window attention computes, with zeros for the queries of padding."""
    size = attention.window_size
    before, after = (size - 1, 0) if attention.causal else (size // 2, size // 2)
    out, rows = naive.window_attention(q[: len(k)], k, v, before, after)
    return _padded(out, len(q)), _padded(rows, len(q))


def _padded(x: Tensor, length: int) -> Tensor:
    """Returns `x` with zero rows up to a length."""
    return nn.functional.pad(x, (0, 0, 0, length - len(x)))


def _naive_max_pool_attention(
    attention: LinformerMultiheadAttention, query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int]
) -> naive.Result:
    """Returns the output and weights of max pooling, in which the tokens of a window share its weight evenly."""
    slots = attention.key_projection.projected_dim

    def attend(sentence: int, n: int) -> naive.Result:
        def head(q: Tensor, k: Tensor, v: Tensor, _: int) -> naive.Result:
            out, weights = naive.full_attention(q, k, v)
            return out, weights @ naive.pooling_matrix(n, slots).to(weights)

        one = (x[:, sentence : sentence + 1] for x in (query, key, value))
        return naive.multihead(attention, *one, [n], head, partial(naive.max_pool, projected_dim=slots))

    outs, weights = zip(*(attend(sentence, n) for sentence, n in enumerate(lengths)), strict=True)
    return torch.cat(outs, 1), torch.cat(weights, 1)


def tell_models() -> None:
    """Lets models know the kinds that there are now, after a test has taken some out or put them back."""
    for call in WHEN_REGISTERED:
        call()
