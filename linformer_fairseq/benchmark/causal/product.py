"""Forward and backward of causal attention alone: as products of tensors, and as modules with their linear layers."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from fairseq.utils import fill_with_neg_inf
from torch import Tensor, nn

from linformer_fairseq.cli.progress import say
from linformer_fairseq.modules import LinearProjection, LinformerMultiheadAttention
from linformer_fairseq.modules.causal import causal_attention

from ..memory import peak_bytes_if_listed, release
from ..running import Running
from ..timing import Spread, interleaved
from .settings import CausalSettings

PRODUCT = "causal Linformer product"
FUSED = "torch's fused attention"
EAGER = "T x T softmax with a mask"
"""As fairseq's `MultiheadAttention` computes it where weights are wanted, without its linear layers."""
MODULE = "LinformerMultiheadAttention"
FUSED_MODULE = "fairseq's MultiheadAttention, need_weights=False"
EAGER_MODULE = "fairseq's MultiheadAttention, need_weights=True"
OURS = {
    **dict.fromkeys((PRODUCT, FUSED, EAGER), PRODUCT),
    **dict.fromkeys((MODULE, FUSED_MODULE, EAGER_MODULE), MODULE),
}
"""All contenders, and which one of ours each is compared with: without linear layers, or with them."""
INPUT_SETS = 3
"""Inputs that the runs take in turn, so that none meets its own in the processor's caches."""

Call = Callable[[int], object]
"""Forward and backward on the inputs of a run."""


@dataclass(frozen=True)
class TrainingRow:
    """One contender at one length."""

    contender: str
    length: int
    chunk_size: int | None
    """Where it was chosen."""
    time: Spread | None
    peak_bytes: int | None
    """Of forward and backward, beyond inputs and parameters."""
    note: str = ""
    """Why there is no time."""

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        return {**asdict(self), "time": self.time.facts() if self.time else None}


def measure(settings: CausalSettings, running: Running) -> list[TrainingRow]:
    """Every contender at every length, interleaved."""
    rows = []
    for length in settings.lengths:
        say(f"training, {length:,} tokens ...")
        calls = {**_products(settings, running, length), **_modules(settings, running, length)}
        rows += [TrainingRow(name, length, None, *measured) for name, measured in _measure(calls, running).items()]
        del calls
        release(running.torch_device)
        if length > settings.eager_limit:
            note = "left out: longer than --eager-limit"
            left_out = (EAGER, FUSED_MODULE, EAGER_MODULE)
            rows += [TrainingRow(name, length, None, None, None, note) for name in left_out]
    return rows


def sweep(settings: CausalSettings, running: Running) -> list[TrainingRow]:
    """Our product with every chunk size at every length, interleaved."""
    rows = []
    for length in settings.lengths:
        say(f"chunk sizes, {length:,} tokens ...")
        inputs = _tensors(settings, running, length)
        calls = {f"chunks of {size}": partial(_run_product, inputs, size) for size in settings.chunk_sizes}
        measured = _measure(calls, running).values()
        rows += [
            TrainingRow(PRODUCT, length, size, *row) for size, row in zip(settings.chunk_sizes, measured, strict=True)
        ]
        del calls, inputs
        release(running.torch_device)
    return rows


def _measure(calls: dict[str, Call], running: Running) -> dict[str, tuple[Spread | None, int | None, str]]:
    """Time, peak memory and note of every contender."""
    timings = interleaved(calls, running.repeats, running.warm_up, running.torch_device)
    measured = {}
    for name, call in calls.items():
        time, note, peak = timings.spreads.get(name), timings.notes.get(name, ""), None
        if time is not None:
            peak = peak_bytes_if_listed(name, partial(call, 0), running.torch_device)
        measured[name] = time, peak, note
        say(f"  {name}: {f'{1000 * time.median:,.1f} ms' if time else note}")
    return measured


def _products(settings: CausalSettings, running: Running, length: int) -> dict[str, Call]:
    inputs = _tensors(settings, running, length)
    # the same queries, keys and values in the layout that torch's kernel is made for, (B, H, T, d)
    fused = [([_leaf(_by_head(x)) for x in leaves[:3]], _by_head(upstream)) for leaves, upstream in inputs]
    calls: dict[str, Call] = {PRODUCT: partial(_run_product, inputs, None), FUSED: partial(_run_fused, fused)}
    if length <= settings.eager_limit:
        calls[EAGER] = partial(_run_eager, fused, _future_mask(running, length))
    return calls


def _modules(settings: CausalSettings, running: Running, length: int) -> dict[str, Call]:
    options = {"device": running.torch_device, "dtype": running.torch_dtype}
    shape = (length, settings.batch, settings.dim)
    inputs = [(_leaf(torch.randn(shape, **options)), torch.randn(shape, **options)) for _ in range(INPUT_SETS)]
    positions = max(length, settings.k)
    ours = LinformerMultiheadAttention(
        settings.dim,
        settings.heads,
        self_attention=True,
        causal=True,
        key_projection=LinearProjection(settings.k, positions),
        value_projection=LinearProjection(settings.k, positions),
    ).to(**options)
    calls: dict[str, Call] = {MODULE: partial(_run_module, ours, None, False, inputs)}
    if length <= settings.eager_limit:
        theirs = MultiheadAttention(settings.dim, settings.heads, self_attention=True).to(**options)
        mask = _future_mask(running, length)
        calls[FUSED_MODULE] = partial(_run_module, theirs, mask, False, inputs)
        calls[EAGER_MODULE] = partial(_run_module, theirs, mask, True, inputs)
    return calls


def _future_mask(running: Running, length: int) -> Tensor:
    """(T, T), as fairseq's decoder makes it once and keeps from call to call."""
    mask = torch.triu(fill_with_neg_inf(torch.zeros(length, length)), 1)
    return mask.to(device=running.torch_device, dtype=running.torch_dtype)


ProductInputs = list[tuple[list[Tensor], Tensor]]
"""For every set the leaves, and the gradient that comes from above."""


def _tensors(settings: CausalSettings, running: Running, length: int) -> ProductInputs:
    """Q (scaled), K, V and the upstream gradient (T, B, H, d), E and F (1, k, T)."""
    options = {"device": running.torch_device, "dtype": running.torch_dtype}
    shape = (length, settings.batch, settings.heads, settings.head_dim)

    def one_set() -> tuple[list[Tensor], Tensor]:
        query, key, value, upstream = (torch.randn(shape, **options) for _ in range(4))
        matrices = (torch.randn(1, settings.k, length, **options) / length**0.5 for _ in range(2))
        return [_leaf(x) for x in (query * settings.head_dim**-0.5, key, value, *matrices)], upstream

    return [one_set() for _ in range(INPUT_SETS)]


def _leaf(x: Tensor) -> Tensor:
    return x.requires_grad_()


def _by_head(x: Tensor) -> Tensor:
    """(T, B, H, d) to (B, H, T, d), in a memory of its own."""
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
