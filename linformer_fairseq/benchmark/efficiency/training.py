"""Speed and memory of training steps of whole models, over batches as of WMT and over long sentences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask

from linformer_fairseq.cli.progress import say

from ..forecast import Outlook
from ..memory import free_bytes, peak_bytes_if_listed, release
from ..running import Running
from ..timing import Spread, spread, take_turns
from .batches import Batches, equally_long, wmt_like
from .trainer import Trainer
from .whole_models import contenders
from .whole_settings import TrainingSettings

WMT_LIKE = "WMT-like"


@dataclass(frozen=True)
class TrainingRow:
    """One model, trained on one kind of batches."""

    model: str
    length: int | None
    """Tokens of every sentence, or None where their lengths are as of WMT."""
    longest: int
    """Tokens of the longest sentence."""
    precision: str
    batches: int
    """Of one run: a step for each."""
    sentences: int
    source_tokens: int
    target_tokens: int
    """Of all batches, without padding."""
    padding: float
    """The share of padded positions, sources and targets together."""
    time: Spread | None
    """Of one run."""
    peak_bytes: int | None
    """Of a step on the largest batch: gradients and all that is computed, but neither weights nor Adam's means."""
    note: str = ""
    """Why there is no time."""

    @property
    def kind(self) -> str:
        """What it was trained on."""
        return describe(self.length)

    @property
    def tokens_per_second(self) -> Spread | None:
        """Target tokens, as fairseq-train's words per second count them; the lower is that of the slower runs."""
        if not self.time:
            return None
        return Spread(*(self.target_tokens / x for x in (self.time.median, self.time.upper, self.time.lower)))

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        speed = self.tokens_per_second
        return {
            **asdict(self),
            "kind": self.kind,
            "time": self.time.facts() if self.time else None,
            "tokens_per_second": speed._asdict() if speed else None,
        }


def describe(length: int | None) -> str:
    """A kind of batches, by `TrainingRow.length`."""
    return WMT_LIKE if length is None else f"{length:,} tokens"


def kinds(settings: TrainingSettings) -> list[int | None]:
    """Of batches, by `TrainingRow.length`."""
    return [None, *(length for length in settings.lengths if length <= settings.max_tokens)]


def measure(
    length: int | None, settings: TrainingSettings, running: Running, before: Sequence[TrainingRow]
) -> list[TrainingRow]:
    """Every model on one kind of batches, the models interleaved step by step.

    Args:
        length: as in `TrainingRow`.
        before: rows of shorter sentences, from which it is foretold what will not fit.
    """
    say(f"training, {describe(length)} ...")
    task = settings.model.task()
    make = wmt_like if length is None else partial(equally_long, length)
    batches = make(settings, task.source_dictionary, running.seed, running.torch_device)
    # at a constant number of tokens attention takes a time and a memory in proportion to n
    outlook = Outlook(settings.time_limit, time_power=1, memory_power=1, fewest=2)
    for row in before:
        outlook.remember(row.model, row.longest, row.time and row.time.median / row.batches, row.peak_bytes)
    rows = _rows(length, batches, task, settings, running, outlook)
    release(running.torch_device)
    return rows


def _rows(
    length: int | None,
    batches: Batches,
    task: TranslationTask,
    settings: TrainingSettings,
    running: Running,
    outlook: Outlook,
) -> list[TrainingRow]:
    device, count = running.torch_device, len(batches.samples)
    # a processor gains nothing from fairseq's mixed precision
    precision = running.torch_dtype if device.type == "cuda" else torch.float32
    trainers = _trainers(batches.longest, task, settings, device, precision)
    free = free_bytes(device)
    if free is not None:
        free -= sum(trainer.state_bytes for trainer in trainers.values())
    notes = {name: outlook.objection(name, batches.longest, free) for name in trainers}
    able = {name: trainer for name, trainer in trainers.items() if not notes[name]}
    turns = take_turns(
        {name: partial(_step, trainer, batches) for name, trainer in able.items()}, running.runs * count, device
    )
    notes |= turns.notes
    rows = []
    for name, trainer in trainers.items():
        time = peak = None
        if name in turns.seconds:
            passes = [sum(turns.seconds[name][run * count : (run + 1) * count]) for run in range(running.runs)]
            time = spread(passes[running.warm_up :])
            trainer.zero_grad()  # the gradients are part of the step
            peak = peak_bytes_if_listed(name, partial(trainer.step, batches.largest), device)
        rows.append(
            TrainingRow(
                name,
                length,
                batches.longest,
                str(precision).removeprefix("torch."),
                count,
                batches.sentences,
                batches.source_tokens,
                batches.target_tokens,
                batches.padding,
                time,
                peak,
                notes[name],
            )
        )
        speed = rows[-1].tokens_per_second
        say(f"  {name}: {f'{speed.median:,.0f} tokens/s' if speed else notes[name]}")
    return rows


def _trainers(
    longest: int, task: TranslationTask, settings: TrainingSettings, device: torch.device, precision: torch.dtype
) -> dict[str, Trainer]:
    positions = max(settings.positions, longest, *settings.ks, settings.all_linear_k or 0)
    return {
        contender.name: Trainer(contender.build(settings.model, task, positions).to(device), task, precision)
        for contender in contenders(settings.ks, settings.all_linear_k)
    }


def _step(trainer: Trainer, batches: Batches, run: int) -> object:
    return trainer.step(batches.samples[run % len(batches.samples)])
