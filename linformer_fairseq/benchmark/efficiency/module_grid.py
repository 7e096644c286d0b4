"""Time and memory of attention modules against length, forward and with its backward."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linformer_fairseq.cli.progress import say

from ..forecast import Outlook
from ..memory import free_bytes, peak_bytes_if_listed, refusal, release
from ..running import Running
from ..timing import Spread, spread, take_turns
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
"""Inputs that the runs take in turn, so that none meets its own in the processor's caches."""


class Key(NamedTuple):
    """A contender with its k, where it has one."""

    contender: str
    k: int | None


PRODUCT = Key("product of two square matrices", None)
"""Runs beside the contenders, as one machine is not always equally fast."""


@dataclass(frozen=True)
class ModuleRow:
    """One module at one length."""

    contender: str
    k: int | None
    passes: str
    length: int
    sentences: int
    runs: int
    """Those that count."""
    time: Spread | None
    """Of one batch."""
    peak_bytes: int | None
    """Beyond input and parameters, the gradients of both included."""
    parameters: int | None
    product_rate: float | None
    """Floating-point operations a second of the product of two square matrices, run in turn with the modules."""
    note: str = ""
    """Why there is no time."""

    @property
    def key(self) -> Key:
        return Key(self.contender, self.k)

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        return {**asdict(self), "time": self.time.facts() if self.time else None}


@dataclass(frozen=True)
class Shape:
    """A batch, and the ks of the modules that take it."""

    length: int
    sentences: int
    ks: tuple[int, ...]


def shapes(settings: EfficiencySettings) -> list[Shape]:
    """Of the grid."""
    return [
        Shape(n, max(1, settings.tokens // n), tuple(k for k in settings.k if k <= n) or settings.k[:1])
        for n in settings.lengths
    ]


def equal_shapes(settings: EfficiencySettings) -> list[Shape]:
    """Those at which there is a slot for every token."""
    return [Shape(n, max(1, settings.equal_tokens // n), (n,)) for n in settings.equal_lengths]


def measure(
    shape: Shape,
    settings: EfficiencySettings,
    running: Running,
    before: Sequence[ModuleRow],
    contenders: Sequence[Peer] = CONTENDERS,
) -> list[ModuleRow]:
    """Every contender on the same batches, interleaved.

    Args:
        before: rows of shorter sentences, from which it is foretold what will not fit.
    """
    device = running.torch_device
    torch.manual_seed(running.seed)
    modules, notes = _build(shape, settings, running, before, contenders)
    inputs = _Inputs(shape, settings.dim, running)
    rows = []
    for passes in PASSES:
        say(f"modules, {passes}, {shape.sentences:,} x {shape.length:,} tokens ...")
        rows += _rows(passes, shape, modules, notes, inputs, settings, running, before)
        release(device)
    return rows


def _build(
    shape: Shape,
    settings: EfficiencySettings,
    running: Running,
    before: Sequence[ModuleRow],
    contenders: Sequence[Peer],
) -> tuple[dict[Key, tuple[Peer, nn.Module]], dict[Key, str]]:
    """All modules in evaluation mode, and why others cannot be built."""
    modules, notes = {}, {}
    outlook = Outlook(settings.time_limit, memory_power=1)  # E and F are as long as the sentence
    for row in before:
        if row.passes == FORWARD and row.parameters:
            outlook.remember(row.key, row.length, None, running.torch_dtype.itemsize * row.parameters)
    for contender in contenders:
        for k in shape.ks if contender.takes_k else (None,):
            key = Key(contender.name, k)
            if objection := outlook.objection(key, shape.length, free_bytes(running.torch_device)):
                notes[key] = objection
                continue
            try:
                module = contender.build(Sizes(settings.dim, settings.heads, shape.length, k or 0))
                module = module.to(running.torch_device, running.torch_dtype).eval()
            except (NotInstalledError, ValueError) as error:
                notes[key] = str(error)
            except (RuntimeError, MemoryError) as error:
                notes[key] = refusal(error)
            else:
                modules[key] = contender, module
    return modules, notes


class _Inputs:
    """The same numbers in both layouts: inputs, and gradients that come from above."""

    def __init__(self, shape: Shape, dim: int, running: Running) -> None:
        size = (shape.length, shape.sentences, dim)
        options = {"device": running.torch_device, "dtype": running.torch_dtype}
        sets = [tuple(torch.randn(size, **options) for _ in range(2)) for _ in range(INPUT_SETS)]
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
    refused: dict[Key, str],
    inputs: _Inputs,
    settings: EfficiencySettings,
    running: Running,
    before: Sequence[ModuleRow],
) -> list[ModuleRow]:
    device, sentences = running.torch_device, shape.sentences
    outlook = Outlook(settings.time_limit)
    for row in before:
        if row.passes == passes and row.time:
            scale = sentences / row.sentences  # to batches of as many sentences as there are now
            outlook.remember(row.key, row.length, scale * row.time.median, row.peak_bytes and scale * row.peak_bytes)
    free = free_bytes(device)
    notes = dict(refused)
    for key in modules:
        if objection := outlook.objection(key, shape.length, free):
            notes[key] = objection
    step = _forward if passes == FORWARD else _forward_and_backward
    calls: dict[Key, Callable[[int], object]] = {
        key: partial(step, module, contender.time_first, inputs)
        for key, (contender, module) in modules.items()
        if key not in notes
    }
    product = SquareProduct(running)
    seconds, failed = _seconds({**calls, PRODUCT: product}, settings.slow, running)
    product_rate = product.operations / spread(seconds[PRODUCT]).median if PRODUCT in seconds else None
    notes |= failed
    rows = []
    for key in (*modules, *refused):
        time = peak = None
        if key in seconds:
            time = spread(seconds[key])
            peak = peak_bytes_if_listed(_label(key), partial(calls[key], 0), device)
        parameters = sum(x.numel() for x in modules[key][1].parameters()) if key in modules else None
        runs, note = len(seconds.get(key, ())), notes.get(key, "")
        row = ModuleRow(*key, passes, shape.length, sentences, runs, time, peak, parameters, product_rate, note)
        rows.append(row)
        say(f"  {_label(key)}: {f'{1000 * time.median:,.1f} ms' if time else note}")
    return rows


def _seconds(
    calls: dict[Key, Callable[[int], object]], slow: float, running: Running
) -> tuple[dict[Key, list[float]], dict[Key, str]]:
    """Of the runs that count; those of slow contenders are few."""
    first = min(SLOW_RUNS, running.repeats)
    turns = take_turns(calls, running.warm_up + first, running.torch_device)
    seconds = {key: times[running.warm_up :] for key, times in turns.seconds.items()}
    quick = {key: calls[key] for key, times in seconds.items() if spread(times).median <= slow}
    more = take_turns(quick, running.repeats - first, running.torch_device)
    for key, times in more.seconds.items():
        seconds[key] += times
    return {key: times for key, times in seconds.items() if key not in more.notes}, turns.notes | more.notes


@torch.no_grad()
def _forward(module: nn.Module, time_first: bool, inputs: _Inputs, run: int) -> object:
    x, _ = inputs.get(time_first, run)
    return module(x)


def _forward_and_backward(module: nn.Module, time_first: bool, inputs: _Inputs, run: int) -> object:
    x, upstream = inputs.get(time_first, run)
    x = x.detach().requires_grad_()
    wanted = [x, *(p for p in module.parameters() if p.requires_grad)]
    return torch.autograd.grad(module(x), wanted, upstream, allow_unused=True)


def _label(key: Key) -> str:
    return key.contender if key.k is None else f"{key.contender}, k = {key.k}"
