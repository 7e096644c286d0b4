"""Time and memory of attention modules against length, forward and with its backward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from linformer_fairseq.cli.progress import say

from ..memory import peak_bytes_or_none, refusal, release
from ..rows import Row
from ..run_options import RunOptions
from ..timing import Spread, spread, take_turns, too_long
from .contenders import CONTENDERS
from .machine_peak import SquareProduct
from .peers import NotInstalledError, Peer
from .settings import EfficiencySettings
from .sizes import Sizes

FORWARD = "forward"
BACKWARD = "forward and backward"
PASSES = (FORWARD, BACKWARD)
SLOW_RUNS = 3
INPUT_SETS = 3
"""Inputs that the runs take in turn, so that no run finds its own in the processor's caches."""


class Key(NamedTuple):
    """A contender with its k, if it has one."""

    contender: str
    k: int | None

    def __str__(self) -> str:
        return self.contender if self.k is None else f"{self.contender}, k = {self.k}"


PRODUCT = Key("product of two square matrices", None)
"""Runs in turn with the contenders, as a machine is not always equally fast."""


@dataclass(frozen=True)
class ModuleRow(Row):
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
    """Floating-point operations a second of the product of two square matrices."""
    note: str = ""
    """Why there is no time."""

    @property
    def key(self) -> Key:
        return Key(self.contender, self.k)

    @property
    def seconds(self) -> float | None:
        """The median time of one batch."""
        return self.time.median if self.time else None


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
) -> list[ModuleRow]:
    """Measures every contender on the same batches, the contenders in turn.

    Args:
        before: rows of shorter sentences; what took too long there is left out, as is the backward of what takes too
            long forward.
    """
    torch.manual_seed(options.seed)
    modules, refused = _build(shape, settings, options, contenders)
    inputs = _Inputs(shape, settings.dim, options)
    rows = []
    for passes in PASSES:
        say(f"modules, {passes}, {shape.sentences:,} x {shape.length:,} tokens ...")
        slow = {
            row.key: row.note
            for row in (*before, *rows)
            if row.passes in (FORWARD, passes) and row.note == too_long(settings.time_limit) and row.key in modules
        }
        rows += _rows(passes, shape, modules, refused | slow, inputs, settings, options)
        release(options.torch_device)
    return rows


def _build(
    shape: Shape, settings: EfficiencySettings, options: RunOptions, contenders: Sequence[Peer]
) -> tuple[dict[Key, tuple[Peer, nn.Module]], dict[Key, str]]:
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


class _Inputs:
    """The same numbers in both layouts: inputs, and the gradients of outputs."""

    def __init__(self, shape: Shape, dim: int, options: RunOptions) -> None:
        size = (shape.length, shape.sentences, dim)
        sets = [tuple(torch.randn(size, **options.tensor_options) for _ in range(2)) for _ in range(INPUT_SETS)]
        self._sets = {
            True: sets,
            # a single sentence is the same memory in both
            False: [tuple(x.transpose(0, 1).contiguous() for x in pair) for pair in sets],
        }

    def get(self, time_first: bool, run: int) -> tuple[Tensor, Tensor]:
        pairs = self._sets[time_first]
        return pairs[run % len(pairs)]


def _rows(
    passes: str,
    shape: Shape,
    modules: dict[Key, tuple[Peer, nn.Module]],
    notes: dict[Key, str],
    inputs: _Inputs,
    settings: EfficiencySettings,
    options: RunOptions,
) -> list[ModuleRow]:
    """Returns a row for each module, and one for each that is left out with a note."""
    step = _forward if passes == FORWARD else _forward_and_backward
    calls: dict[Key, Callable[[int], object]] = {
        key: partial(step, module, contender.time_first, inputs)
        for key, (contender, module) in modules.items()
        if key not in notes
    }
    product = SquareProduct(options)
    seconds, failed = _seconds({**calls, PRODUCT: product}, settings, options)
    product_rate = product.operations / spread(seconds[PRODUCT]).median if PRODUCT in seconds else None
    rows = []
    for key in dict.fromkeys((*modules, *notes)):
        time = peak = parameters = None
        if key in seconds:
            time = spread(seconds[key])
            peak = peak_bytes_or_none(str(key), partial(calls[key], 0), options.torch_device)
        if key in modules:
            parameters = sum(x.numel() for x in modules[key][1].parameters())
        runs, note = len(seconds.get(key, ())), {**notes, **failed}.get(key, "")
        row = ModuleRow(*key, passes, shape.length, shape.sentences, runs, time, peak, parameters, product_rate, note)
        rows.append(row)
        say(f"  {key}: {f'{1000 * time.median:,.1f} ms' if time else note}")
    return rows


def _seconds(
    calls: dict[Key, Callable[[int], object]], settings: EfficiencySettings, options: RunOptions
) -> tuple[dict[Key, list[float]], dict[Key, str]]:
    """Returns the seconds of the runs that count, few for slow contenders, and why some did not run."""
    device, first = options.torch_device, min(SLOW_RUNS, options.repeats)
    turns, notes = take_turns(calls, options.warm_up + first, device, settings.time_limit)
    seconds = {key: times[options.warm_up :] for key, times in turns.items()}
    quick = {key: calls[key] for key, times in seconds.items() if spread(times).median <= settings.slow}
    more, dropped = take_turns(quick, options.repeats - first, device, settings.time_limit)
    for key, times in more.items():
        seconds[key] += times
    return {key: times for key, times in seconds.items() if key not in dropped}, notes | dropped


@torch.no_grad()
def _forward(module: nn.Module, time_first: bool, inputs: _Inputs, run: int) -> object:
    x, _ = inputs.get(time_first, run)
    return module(x)


def _forward_and_backward(module: nn.Module, time_first: bool, inputs: _Inputs, run: int) -> object:
    x, upstream = inputs.get(time_first, run)
    x = x.detach().requires_grad_()
    wanted = [x, *(p for p in module.parameters() if p.requires_grad)]
    return torch.autograd.grad(module(x), wanted, upstream, allow_unused=True)
