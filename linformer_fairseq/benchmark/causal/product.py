"""Forward and backward of causal attention alone: as products of tensors, and as modules with their linear layers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from fairseq.utils import fill_with_neg_inf
from torch import Tensor, nn

from linformer_fairseq.cli.progress import say
from linformer_fairseq.modules import CausalLinformerAttention, LinearProjection
from linformer_fairseq.modules.ops.causal import causal_attention

from ..memory import release
from ..rows import TimedRow
from ..run_options import RunOptions
from ..timing import INPUT_SETS, Measured, Spread, interleaved, with_peaks
from .settings import CausalSettings

PRODUCT = "causal Linformer product"
FUSED = "torch's fused attention"
EAGER = "T x T softmax with a mask"
"""As fairseq's `MultiheadAttention` computes it when weights are wanted, without its linear layers."""
MODULE = "CausalLinformerAttention"
FUSED_MODULE = "fairseq's MultiheadAttention, need_weights=False"
EAGER_MODULE = "fairseq's MultiheadAttention, need_weights=True"
OURS = {
    **dict.fromkeys((PRODUCT, FUSED, EAGER), PRODUCT),
    **dict.fromkeys((MODULE, FUSED_MODULE, EAGER_MODULE), MODULE),
}
"""All contenders, and the one of ours that each is compared with: without linear layers, or with them."""

Call = Callable[[int], object]
"""Forward and backward on the inputs of a run."""
Inputs = list[tuple[list[Tensor], Tensor]]
"""For every set of inputs the leaves, and the gradient of the output."""


@dataclass(frozen=True)
class TrainingRow(TimedRow):
    """One contender at one length."""

    contender: str
    length: int
    chunk_size: int | None
    """None for the default."""
    time: Spread | None
    peak_bytes: int | None
    """Peak memory of forward and backward, beyond inputs and parameters."""
    note: str = ""


def measure(settings: CausalSettings, options: RunOptions) -> list[TrainingRow]:
    """Measures every contender at every length, the contenders in turn."""
    rows = []
    for length in settings.lengths:
        say(f"training, {length:,} tokens ...")
        calls = {**_products(settings, options, length), **_modules(settings, options, length)}
        rows += [TrainingRow(name, length, None, *measured) for name, measured in _measure(calls, options).items()]
        del calls
        release(options.torch_device)
        if length > settings.eager_limit:
            note = "left out: longer than --eager-limit"
            left_out = (EAGER, FUSED_MODULE, EAGER_MODULE)
            rows += [TrainingRow(name, length, None, None, None, note) for name in left_out]
    return rows


def sweep(settings: CausalSettings, options: RunOptions) -> list[TrainingRow]:
    """Measures our product with every chunk size at every length, the chunk sizes in turn."""
    rows = []
    for length in settings.lengths:
        say(f"chunk sizes, {length:,} tokens ...")
        inputs = _product_inputs(settings, options, length)
        sizes = {f"chunks of {size}": size for size in settings.chunk_sizes}
        calls = {name: _training(partial(causal_attention, chunk_size=size), inputs) for name, size in sizes.items()}
        measured = _measure(calls, options)
        rows += [TrainingRow(PRODUCT, length, size, *measured[name]) for name, size in sizes.items()]
        del calls, inputs
        release(options.torch_device)
    return rows


def _measure(calls: dict[str, Call], options: RunOptions) -> dict[str, Measured]:
    timings = interleaved(calls, options.repeats, options.warm_up, options.torch_device)
    return with_peaks(timings, calls, options.torch_device)


def _training(attention: Callable[..., tuple], inputs: Inputs, parameters: Iterable[Tensor] = ()) -> Call:
    """Returns forward and backward of an attention, whose output comes first, on the inputs that are a run's."""
    parameters = tuple(parameters)

    def call(run: int) -> object:
        leaves, upstream = inputs[run % len(inputs)]
        out, *_ = attention(*leaves)
        return torch.autograd.grad(out, [*leaves, *parameters], upstream)

    return call


def _products(settings: CausalSettings, options: RunOptions, length: int) -> dict[str, Call]:
    inputs = _product_inputs(settings, options, length)
    # the same queries, keys and values in the layout that torch's kernel is made for, (B, H, T, d)
    by_head = [([_by_head(x).requires_grad_() for x in leaves[:3]], _by_head(upstream)) for leaves, upstream in inputs]
    calls = {PRODUCT: _training(causal_attention, inputs), FUSED: _training(_fused, by_head)}
    if length <= settings.eager_limit:
        calls[EAGER] = _training(partial(_eager, _future_mask(options, length)), by_head)
    return calls


def _modules(settings: CausalSettings, options: RunOptions, length: int) -> dict[str, Call]:
    shape = (length, settings.batch, settings.dim)
    pairs = [[torch.randn(shape, **options.tensor_options) for _ in range(2)] for _ in range(INPUT_SETS)]
    inputs = [([x.requires_grad_()], upstream) for x, upstream in pairs]
    positions = max(length, settings.k)
    ours = CausalLinformerAttention(
        settings.dim,
        settings.heads,
        self_attention=True,
        key_projection=LinearProjection(settings.k, positions),
        value_projection=LinearProjection(settings.k, positions),
    )
    theirs = MultiheadAttention(settings.dim, settings.heads, self_attention=True)

    def call(module: nn.Module, **arguments: Any) -> Call:
        module.to(**options.tensor_options)
        return _training(lambda x: module(x, x, x, **arguments), inputs, module.parameters())

    calls = {MODULE: call(ours, need_weights=False)}
    if length <= settings.eager_limit:
        mask = _future_mask(options, length)
        calls[FUSED_MODULE] = call(theirs, need_weights=False, attn_mask=mask)
        calls[EAGER_MODULE] = call(theirs, need_weights=True, attn_mask=mask)
    return calls


def _future_mask(options: RunOptions, length: int) -> Tensor:
    """Returns a mask (T, T), which fairseq's decoder makes once and keeps from call to call."""
    mask = torch.triu(fill_with_neg_inf(torch.zeros(length, length)), 1)
    return mask.to(**options.tensor_options)


def _product_inputs(settings: CausalSettings, options: RunOptions, length: int) -> Inputs:
    """Returns Q (scaled), K, V and the output's gradient (T, B, H, d), E and F (1, k, T)."""
    shape = (length, settings.batch, settings.heads, settings.head_dim)

    def one_set() -> tuple[list[Tensor], Tensor]:
        query, key, value, upstream = (torch.randn(shape, **options.tensor_options) for _ in range(4))
        matrices = (torch.randn(1, settings.k, length, **options.tensor_options) / length**0.5 for _ in range(2))
        return [x.requires_grad_() for x in (query * settings.head_dim**-0.5, key, value, *matrices)], upstream

    return [one_set() for _ in range(INPUT_SETS)]


def _by_head(x: Tensor) -> Tensor:
    """Returns a copy of x (T, B, H, d) as (B, H, T, d)."""
    return x.detach().permute(1, 2, 0, 3).contiguous()


def _fused(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor]:
    # our queries come scaled
    return (F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0),)


def _eager(mask: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor]:
    """Returns attention of queries, keys and values (B, H, T, d), as fairseq computes it."""
    heads = query.shape[:2]
    query, key, value = (x.flatten(0, 1) for x in (query, key, value))
    probabilities = torch.softmax(torch.baddbmm(mask, query, key.transpose(1, 2)), dim=-1)
    return (torch.bmm(probabilities, value).unflatten(0, heads),)
