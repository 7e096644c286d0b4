"""Time and memory of attention modules against length, forward and with its backward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from linformer_fairseq.cli.progress import say

from ..memory import refusal, release, saved_bytes
from ..rows import TimedRow
from ..run_options import RunOptions
from ..timing import INPUT_SETS, Spread, Timings, interleaved, spread, take_turns, too_long, with_peaks
from .contenders import CONTENDERS
from .machine_peak import SquareProduct
from .peers import NotInstalledError, Peer, Sizes
from .settings import MODULES, EfficiencySettings

FORWARD = "forward"
BACKWARD = "forward and backward"
PASSES = (FORWARD, BACKWARD)
SLOW_RUNS = 3


class Key(NamedTuple):
    """A contender with its k, if it has one."""

    contender: str
    k: int | None

    def __str__(self) -> str:
        return self.contender if self.k is None else f"{self.contender}, k = {self.k}"


Modules = dict[Key, tuple[Peer, nn.Module]]
Pair = tuple[Tensor, Tensor]
"""An input, and the gradient of its output."""
Inputs = dict[bool, list[Pair]]
"""The same pairs for contenders that take (n, B, C) first, and for the others."""
PRODUCT = Key("product of two square matrices", None)
"""Timed in turn with the contenders, because the machine's speed varies."""


@dataclass(frozen=True)
class ModuleRow(TimedRow):
    """One module at one length."""

    contender: str
    k: int | None
    passes: str
    length: int
    sentences: int
    runs: int
    """Runs that count."""
    time: Spread | None
    """Time of one batch."""
    peak_bytes: int | None
    """Peak memory beyond input and parameters, the gradients of both included."""
    parameters: int | None
    product_rate: float | None
    """Floating-point operations per second of the product of two square matrices."""
    note: str = ""
    saved_bytes: int | None = None
    """What forward keeps for backward, beyond input and parameters; None where there is no backward."""

    @property
    def key(self) -> Key:
        return Key(self.contender, self.k)


@dataclass(frozen=True)
class Shape:
    """A batch, and the ks of the modules that take it."""

    length: int
    sentences: int
    ks: tuple[int, ...]


def shapes(settings: EfficiencySettings) -> list[Shape]:
    """Returns the shapes of the grid."""
    return [
        Shape(n, max(1, settings.tokens // n), tuple(k for k in settings.k if k <= n) or settings.k[:1])
        for n in settings.lengths
    ]


def equal_shapes(settings: EfficiencySettings) -> list[Shape]:
    """Returns the shapes that have a slot for every token."""
    return [Shape(n, max(1, settings.equal_tokens // n), (n,)) for n in settings.equal_lengths]


def measure(
    shape: Shape,
    settings: EfficiencySettings,
    options: RunOptions,
    before: Sequence[ModuleRow],
    contenders: Sequence[Peer] = CONTENDERS,
    part: str = MODULES,
) -> list[ModuleRow]:
    """Measures every contender on the same batches, the contenders in turn.

    Args:
        before: rows of shorter sentences; what took too long there is left out, as is the backward of what takes too
            long forward.
        part: what to tell the user that this is.
    """
    torch.manual_seed(options.seed)
    modules, refused = _build(shape, settings, options, contenders)
    inputs = _inputs(shape, settings.dim, options)
    rows: list[ModuleRow] = []
    for passes, step in {FORWARD: _forward, BACKWARD: _forward_and_backward}.items():
        say(f"{part}, {passes}, {shape.sentences:,} x {shape.length:,} tokens ...")
        slow = {
            row.key: row.note
            for row in (*before, *rows)
            if row.passes in (FORWARD, passes) and row.note == too_long(settings.time_limit) and row.key in modules
        }
        calls: dict[Key, Callable[[int], object]] = {
            key: partial(step, module, inputs[contender.time_first])
            for key, (contender, module) in modules.items()
            if key not in slow
        }
        product = SquareProduct(options)
        timings = _timings({**calls, PRODUCT: product}, settings, options)
        seconds = timings.seconds
        product_rate = product.operations / spread(seconds.pop(PRODUCT)).median if PRODUCT in seconds else None
        measured = with_peaks(Timings(seconds, refused | slow | timings.notes), calls, options.torch_device)
        for key in (*modules, *refused):
            time, peak, note = measured[key]
            batch = (passes, shape.length, shape.sentences, len(seconds.get(key, ())))
            parameters = sum(x.numel() for x in modules[key][1].parameters()) if key in modules else None
            saved = None
            if passes == BACKWARD and time:
                contender, module = modules[key]
                saved = _saved_bytes(module, inputs[contender.time_first])
            rows.append(ModuleRow(*key, *batch, time, peak, parameters, product_rate, note, saved))
        del calls, product
        release(options.torch_device)
    return rows


def _build(
    shape: Shape, settings: EfficiencySettings, options: RunOptions, contenders: Sequence[Peer]
) -> tuple[Modules, dict[Key, str]]:
    """Returns all modules in evaluation mode, and why others cannot be built."""
    modules, notes = {}, {}
    for contender in contenders:
        for k in shape.ks if contender.takes_k else (None,):
            key = Key(contender.name, k)
            try:
                module = contender.build(Sizes(settings.dim, settings.heads, shape.length, k or 0))
                modules[key] = contender, module.to(**options.tensor_options).eval()
            except (NotInstalledError, ValueError) as error:
                notes[key] = str(error)
            except (RuntimeError, MemoryError) as error:
                notes[key] = refusal(error)
    return modules, notes


def _inputs(shape: Shape, dim: int, options: RunOptions) -> Inputs:
    size = (shape.length, shape.sentences, dim)
    sets = [tuple(torch.randn(size, **options.tensor_options) for _ in range(2)) for _ in range(INPUT_SETS)]
    # a single sentence is the same memory in both layouts
    return {True: sets, False: [tuple(x.transpose(0, 1).contiguous() for x in pair) for pair in sets]}


def _timings(
    calls: dict[Key, Callable[[int], object]], settings: EfficiencySettings, options: RunOptions
) -> Timings[Key]:
    """Returns the times of the runs that count, few for slow contenders."""
    device, limit, first = options.torch_device, settings.time_limit, min(SLOW_RUNS, options.repeats)
    some = interleaved(calls, first, options.warm_up, device, limit)
    quick = {key: calls[key] for key, own in some.spreads.items() if own.median <= settings.slow}
    more = take_turns(quick, options.repeats - first, device, limit)
    seconds = {key: [*own, *more.seconds.get(key, ())] for key, own in some.seconds.items() if key not in more.notes}
    return Timings(seconds, some.notes | more.notes)


@torch.no_grad()
def _forward(module: nn.Module, inputs: list[Pair], run: int) -> object:
    x, _ = inputs[run % len(inputs)]
    return module(x)


def _forward_and_backward(module: nn.Module, inputs: list[Pair], run: int) -> object:
    x, upstream = inputs[run % len(inputs)]
    x = x.detach().requires_grad_()
    wanted = [x, *(p for p in module.parameters() if p.requires_grad)]
    return torch.autograd.grad(module(x), wanted, upstream, allow_unused=True)


def _saved_bytes(module: nn.Module, inputs: list[Pair]) -> int | None:
    x, _ = inputs[0]
    x = x.detach().requires_grad_()
    try:
        return saved_bytes(lambda: module(x), [x, *module.parameters(), *module.buffers()])
    except (RuntimeError, MemoryError) as error:
        refusal(error)
        return None
