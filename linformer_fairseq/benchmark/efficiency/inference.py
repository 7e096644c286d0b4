"""Time and memory of whole models' forward pass against sentence length, at a constant number of tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from fairseq.models.transformer import TransformerModelBase

from linformer_fairseq.cli.progress import say

from ..forward import ENCODER, WITHOUT_WEIGHTS, forward_call, random_tokens, shapes
from ..memory import refusal, release
from ..models import TRANSFORMER, TWO_LEVEL_FLAGS, build, contenders, own_k
from ..rows import TimedRow
from ..run_options import RunOptions
from ..timing import Spread, Timings, interleaved, too_long, with_peaks
from .settings import EfficiencySettings

Models = dict[str, TransformerModelBase]
PARTS = (ENCODER, WITHOUT_WEIGHTS)
"""The parts of a model that are measured."""


@dataclass(frozen=True)
class InferenceRow(TimedRow):
    """One model, or a part of it, at one length."""

    model: str
    part: str
    length: int
    """Tokens per sentence."""
    sentences: int
    time: Spread | None
    """Time of one batch."""
    peak_bytes: int | None
    """Peak memory of one batch, beyond the model and the tokens."""
    note: str = ""

    def facts(self) -> dict[str, Any]:
        """Returns the row as results.json has it, with source tokens per second."""
        speed = self.length * self.sentences / self.seconds if self.seconds else None
        return {**super().facts(), "tokens_per_second": speed}


@torch.no_grad()
def measure(
    length: int, settings: EfficiencySettings, options: RunOptions, before: Sequence[InferenceRow]
) -> list[InferenceRow]:
    """Measures every part of every model, the models in turn.

    The model that projects its decoder's self-attention too has the encoder of another one, which is not repeated.

    Args:
        length: tokens of every sentence.
        before: rows of shorter sentences; what took too long there is left out, as are models whose encoder takes too
            long.
    """
    device, limit = options.torch_device, settings.whole_time_limit
    models = _build(settings, options)
    encoders = list(contenders(settings.model_k))
    source = random_tokens(models[TRANSFORMER].encoder.dictionary, settings.inference_tokens // length, length, device)
    rows: list[InferenceRow] = []
    for part in PARTS:
        say(f"inference, {part}, {len(source):,} x {length:,} tokens ...")
        slow = {
            row.model: row.note
            for row in (*before, *rows)
            if row.part in (ENCODER, part) and row.note == too_long(limit)
        }
        names = encoders if part == ENCODER else list(models)
        calls = {name: forward_call(part, models[name], source) for name in names if name not in slow}
        if part != ENCODER:
            _share_future_mask(models, length, options)
        timings = interleaved(calls, options.repeats, options.warm_up, device, limit)
        alone = {name: partial(_with_own_mask, call, models[name]) for name, call in calls.items()}
        timings = Timings(timings.seconds, slow | timings.notes)
        measured = with_peaks(timings, alone, device, lambda time: f"{time.median:,.2f} s")
        rows += [InferenceRow(name, part, length, len(source), *measured[name]) for name in names]
    release(device)
    return rows


def _build(settings: EfficiencySettings, options: RunOptions) -> Models:
    """Returns all contenders, ready for inference as fairseq-generate makes them."""
    task, k_everywhere = settings.model.task(), settings.largest_model_k
    longest = max(length for length, _ in shapes(settings.inference_tokens, settings.inference_lengths))
    models = {
        name: build(flags, settings.model, task, max(longest, k_everywhere, own_k(TWO_LEVEL_FLAGS)))
        for name, flags in contenders(settings.model_k, k_everywhere).items()
    }
    for model in models.values():
        model.load_state_dict(model.state_dict())  # fairseq 0.12.2 opens its fused kernel for loaded weights alone
        model.make_generation_fast_(need_attn=False)
        model.to(**options.tensor_options)
    return models


def _share_future_mask(models: Models, length: int, options: RunOptions) -> None:
    """Lets all decoders share one (n, n) mask, as each would make and keep its own: 1 GB for 16,384 tokens."""
    first, *others = (model.decoder for model in models.values())  # fairseq's Transformer is the first
    try:
        first.buffered_future_mask(torch.empty(length, 0, **options.tensor_options))
    except (RuntimeError, MemoryError) as error:
        refusal(error)  # if it does not fit, those that need one drop out by themselves
        return
    for decoder in others:
        decoder._future_mask = first._future_mask


def _with_own_mask(call: Callable[[int], object], model: TransformerModelBase, run: int) -> None:
    """Runs a model that has to make the mask if it needs one, and keeps it from the other models."""
    model.decoder._future_mask = torch.empty(0)
    call(run)
    model.decoder._future_mask = torch.empty(0)
