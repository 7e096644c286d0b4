"""Speed and memory of training steps of whole models, over batches as of WMT and over long sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from linformer_fairseq.cli.progress import say

from ..memory import release
from ..models import FUSED, FUSED_FLAGS, TWO_LEVEL_FLAGS, build, contenders, own_k
from ..rows import TimedRow
from ..run_options import RunOptions
from ..timing import Spread, Timings, take_turns, too_long, with_peaks
from .batches import Sample, equally_long, wmt_like
from .settings import EfficiencySettings
from .trainer import Trainer

WMT_LIKE = "WMT-like"
POSITIONS = 1024
"""N of the models, or the longest sentence where that is longer."""


@dataclass(frozen=True)
class TrainingRow(TimedRow):
    """One model, trained on one kind of batches."""

    model: str
    length: int | None
    """Tokens of every sentence, or None where the lengths are as of WMT."""
    longest: int
    """Tokens of the longest sentence."""
    precision: str
    batches: int
    """Batches of one run, which takes a step for each."""
    sentences: int
    source_tokens: int
    target_tokens: int
    """Tokens of all batches, without padding."""
    padding: float
    """The share of padded positions, sources and targets together."""
    time: Spread | None
    """Time of one run."""
    peak_bytes: int | None
    """Peak memory of a step on the largest batch, beyond weights and Adam's moments."""
    note: str = ""

    @property
    def kind(self) -> str:
        """The batches it was trained on."""
        return describe(self.length)

    @property
    def tokens_per_second(self) -> Spread | None:
        """Target tokens, as fairseq-train's words per second count them; the lower is that of the slower runs."""
        if not self.time:
            return None
        return Spread(*(self.target_tokens / x for x in (self.time.median, self.time.upper, self.time.lower)))

    def facts(self) -> dict[str, Any]:
        """Returns the row as results.json has it."""
        speed = self.tokens_per_second
        return {**super().facts(), "kind": self.kind, "tokens_per_second": speed._asdict() if speed else None}


def describe(length: int | None) -> str:
    """Returns the name of a kind of batches, given as in `TrainingRow.length`."""
    return WMT_LIKE if length is None else f"{length:,} tokens"


def kinds(settings: EfficiencySettings) -> list[int | None]:
    """Returns the kinds of batches to train on, as in `TrainingRow.length`."""
    return [None, *(length for length in settings.training_lengths if length <= settings.max_tokens)]


def measure(
    length: int | None, settings: EfficiencySettings, options: RunOptions, before: Sequence[TrainingRow]
) -> list[TrainingRow]:
    """Measures every model on one kind of batches, the models in turn step by step.

    Args:
        length: as in `TrainingRow`.
        before: rows of shorter sentences; what took too long there is left out.
    """
    say(f"training, {describe(length)} ...")
    device, limit = options.torch_device, settings.whole_time_limit
    task, max_tokens = settings.model.task(), settings.max_tokens
    words = task.source_dictionary
    if length is None:
        batches = wmt_like(max_tokens, settings.batches, words, options.seed, device)
    else:
        batches = equally_long(length, max_tokens, words, options.seed, device)
    # a processor gains nothing from fairseq's mixed precision
    precision = options.torch_dtype if device.type == "cuda" else torch.float32
    positions = max(POSITIONS, batches.longest, settings.largest_model_k, own_k(TWO_LEVEL_FLAGS))
    trainers = {
        name: Trainer(build(flags, settings.model, task, positions).to(device), task, precision)
        for name, flags in (contenders(settings.model_k) | {FUSED: FUSED_FLAGS}).items()
    }
    slow = {row.model: row.note for row in before if row.note == too_long(limit)}
    calls = {name: partial(_step, trainer, batches.samples) for name, trainer in trainers.items() if name not in slow}
    steps = len(batches.samples)
    by_step = take_turns(calls, options.runs * steps, device, limit)
    seconds = {
        name: [sum(times[run * steps : (run + 1) * steps]) for run in range(options.warm_up, options.runs)]
        for name, times in by_step.seconds.items()
    }
    largest = {name: partial(_step, trainer, [batches.largest]) for name, trainer in trainers.items()}
    for trainer in trainers.values():
        trainer.zero_grad()  # the gradients are part of the step
    tokens = batches.target_tokens
    measured = with_peaks(
        Timings(seconds, slow | by_step.notes), largest, device, lambda time: f"{tokens / time.median:,.0f} tokens/s"
    )
    facts = (
        length,
        batches.longest,
        str(precision).removeprefix("torch."),
        steps,
        batches.sentences,
        batches.source_tokens,
        batches.target_tokens,
        batches.padding,
    )
    rows = [TrainingRow(name, *facts, *measured[name]) for name in trainers]
    del trainers, trainer, calls, largest
    release(device)
    return rows


def _step(trainer: Trainer, samples: Sequence[Sample], run: int) -> object:
    return trainer.step(samples[run % len(samples)])
