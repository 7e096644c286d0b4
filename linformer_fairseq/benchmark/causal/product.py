"""Forward and backward of causal attention alone: as products of tensors, and as modules with their linear layers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from fairseq.utils import fill_with_neg_inf
from torch import Tensor, nn

from linformer_fairseq.cli.progress import say
from linformer_fairseq.modules import CausalLinformerAttention, LinearProjection
from linformer_fairseq.modules.ops.causal import causal_attention

from ..memory import peak_bytes_or_none, release
from ..rows import Row
from ..run_options import RunOptions
from ..timing import Spread, interleaved
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
INPUT_SETS = 3
"""Inputs that the runs take in turn, so that no run finds its own in the processor's caches."""

Call = Callable[[int], object]
"""Forward and backward on the inputs of a run."""


@dataclass(frozen=True)
class TrainingRow(Row):
    """One contender at one length."""

    contender: str
    length: int
    chunk_size: int | None
    """None for the default."""
    time: Spread | None
    peak_bytes: int | None
    """Peak memory of forward and backward, beyond inputs and parameters."""
    note: str = ""
    """Why there is no time."""


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
        inputs = _tensors(settings, options, length)
        calls = {f"chunks of {size}": partial(_run_product, inputs, size) for size in settings.chunk_sizes}
        measured = _measure(calls, options).values()
        rows += [
            TrainingRow(PRODUCT, length, size, *row) for size, row in zip(settings.chunk_sizes, measured, strict=True)
        ]
        del calls, inputs
        release(options.torch_device)
    return rows


def _measure(calls: dict[str, Call], options: RunOptions) -> dict[str, tuple[Spread | None, int | None, str]]:
    """Returns time, peak memory and note of every contender."""
    timings = interleaved(calls, options.repeats, options.warm_up, options.torch_device)
    measured = {}
    for name, call in calls.items():
        time, note, peak = timings.spreads.get(name), timings.notes.get(name, ""), None
        if time is not None:
            peak = peak_bytes_or_none(name, partial(call, 0), options.torch_device)
        measured[name] = time, peak, note
        say(f"  {name}: {f'{1000 * time.median:,.1f} ms' if time else note}")
    return measured


def _products(settings: CausalSettings, options: RunOptions, length: int) -> dict[str, Call]:
    inputs = _tensors(settings, options, length)
    # the same queries, keys and values in the layout that torch's kernel is made for, (B, H, T, d)
    fused = [([_leaf(_by_head(x)) for x in leaves[:3]], _by_head(upstream)) for leaves, upstream in inputs]
    calls: dict[str, Call] = {PRODUCT: partial(_run_product, inputs, None), FUSED: partial(_run_fused, fused)}
    if length <= settings.eager_limit:
        calls[EAGER] = partial(_run_eager, fused, _future_mask(options, length))
    return calls


def _modules(settings: CausalSettings, options: RunOptions, length: int) -> dict[str, Call]:
    shape = (length, settings.batch, settings.dim)
    inputs = [
        (_leaf(torch.randn(shape, **options.tensor_options)), torch.randn(shape, **options.tensor_options))
        for _ in range(INPUT_SETS)
    ]
    positions = max(length, settings.k)
    ours = CausalLinformerAttention(
        settings.dim,
        settings.heads,
        self_attention=True,
        key_projection=LinearProjection(settings.k, positions),
        value_projection=LinearProjection(settings.k, positions),
    ).to(**options.tensor_options)
    calls: dict[str, Call] = {MODULE: partial(_run_module, ours, None, False, inputs)}
    if length <= settings.eager_limit:
        theirs = MultiheadAttention(settings.dim, settings.heads, self_attention=True).to(**options.tensor_options)
        mask = _future_mask(options, length)
        calls[FUSED_MODULE] = partial(_run_module, theirs, mask, False, inputs)
        calls[EAGER_MODULE] = partial(_run_module, theirs, mask, True, inputs)
    return calls


def _future_mask(options: RunOptions, length: int) -> Tensor:
    """Returns a mask (T, T), which fairseq's decoder makes once and keeps from call to call."""
    mask = torch.triu(fill_with_neg_inf(torch.zeros(length, length)), 1)
    return mask.to(**options.tensor_options)


ProductInputs = list[tuple[list[Tensor], Tensor]]
"""For every set of inputs the leaves, and the gradient of the output."""


def _tensors(settings: CausalSettings, options: RunOptions, length: int) -> ProductInputs:
    """Returns Q (scaled), K, V and the output's gradient (T, B, H, d), E and F (1, k, T)."""
    shape = (length, settings.batch, settings.heads, settings.head_dim)

    def one_set() -> tuple[list[Tensor], Tensor]:
        query, key, value, upstream = (torch.randn(shape, **options.tensor_options) for _ in range(4))
        matrices = (torch.randn(1, settings.k, length, **options.tensor_options) / length**0.5 for _ in range(2))
        return [_leaf(x) for x in (query * settings.head_dim**-0.5, key, value, *matrices)], upstream

    return [one_set() for _ in range(INPUT_SETS)]


def _leaf(x: Tensor) -> Tensor:
    return x.requires_grad_()


def _by_head(x: Tensor) -> Tensor:
    """Returns a copy of x (T, B, H, d) as (B, H, T, d)."""
    return x.detach().permute(1, 2, 0, 3).contiguous()


def _run_product(inputs: ProductInputs, chunk_size: int | None, run: int) -> object:
    leaves, upstream = inputs[run % len(inputs)]
    out, _, _ = causal_attention(*leaves, chunk_size=chunk_size)
    return torch.autograd.grad(out, leaves, upstream)


def _run_fused(inputs: ProductInputs, run: int) -> object:
    leaves, upstream = inputs[run % len(inputs)]
    # our queries come scaled
    out = F.scaled_dot_product_attention(*leaves, is_causal=True, scale=1.0)
    return torch.autograd.grad(out, leaves, upstream)


def _run_eager(inputs: ProductInputs, mask: Tensor, run: int) -> object:
    leaves, upstream = inputs[run % len(inputs)]
    query, key, value = (x.flatten(0, 1) for x in leaves)
    probabilities = torch.softmax(torch.baddbmm(mask, query, key.transpose(1, 2)), dim=-1)
    return torch.autograd.grad(torch.bmm(probabilities, value), leaves, upstream.flatten(0, 1))


def _run_module(
    module: nn.Module, mask: Tensor | None, need_weights: bool, inputs: list[tuple[Tensor, Tensor]], run: int
) -> object:
    x, upstream = inputs[run % len(inputs)]
    out, _ = module(x, x, x, need_weights=need_weights, attn_mask=mask)
    return torch.autograd.grad(out, [x, *module.parameters()], upstream)
