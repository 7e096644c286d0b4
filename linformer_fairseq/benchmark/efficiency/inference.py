"""Time and memory of whole models' forward pass against sentence length, at a constant number of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor

from linformer_fairseq.cli.progress import say

from ..forward import ENCODER, WITHOUT_WEIGHTS, forward_call, random_tokens, shapes
from ..memory import peak_bytes_or_none, refusal, release
from ..models import TRANSFORMER
from ..rows import Row
from ..run_options import RunOptions
from ..timing import Spread, interleaved, too_long
from .settings import EfficiencySettings
from .whole_models import contenders

Models = dict[str, TransformerModelBase]
PARTS = (ENCODER, WITHOUT_WEIGHTS)
"""The parts of a model that are measured."""


@dataclass(frozen=True)
class InferenceRow(Row):
    """One model, or a part of it, at one length."""

    model: str
    part: str
    length: int
    """Tokens of a sentence."""
    sentences: int
    time: Spread | None
    """Time of one batch."""
    peak_bytes: int | None
    """Peak memory of one batch, beyond the model and the tokens."""
    note: str = ""
    """Why there is no time."""

    @property
    def tokens_per_second(self) -> float | None:
        """Source tokens."""
        return self.length * self.sentences / self.time.median if self.time else None

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        return {**super().facts(), "tokens_per_second": self.tokens_per_second}


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
    encoders = {contender.name: models[contender.name] for contender in contenders(settings.model_k, None)}
    source = random_tokens(models[TRANSFORMER].encoder.dictionary, settings.inference_tokens // length, length, device)
    rows = []
    for part in PARTS:
        say(f"inference, {part}, {len(source):,} x {length:,} tokens ...")
        slow = {
            row.model: row.note
            for row in (*before, *rows)
            if row.part in (ENCODER, part) and row.note == too_long(limit)
        }
        rows += _rows(part, encoders if part == ENCODER else models, source, slow, limit, options)
    release(device)
    return rows


def _build(settings: EfficiencySettings, options: RunOptions) -> Models:
    """Returns all contenders, ready for inference as fairseq-generate makes them."""
    task, all_linear_k = settings.model.task(), settings.largest_model_k
    longest = max(length for length, _ in shapes(settings.inference_tokens, settings.inference_lengths))
    models = {
        contender.name: contender.build(settings.model, task, max(longest, all_linear_k))
        for contender in contenders(settings.model_k, all_linear_k)
    }
    for model in models.values():
        model.load_state_dict(model.state_dict())  # fairseq 0.12.2 opens its fused kernel for loaded weights alone
        model.make_generation_fast_(need_attn=False)
        model.to(**options.tensor_options)
    return models


def _rows(
    part: str, models: Models, source: Tensor, notes: dict[str, str], time_limit: float, options: RunOptions
) -> list[InferenceRow]:
    """Returns a row for each model at one length.

    Args:
        source: (B, n).
        notes: of the models that are left out.
    """
    device = options.torch_device
    sentences, length = source.shape
    calls = {name: forward_call(part, model, source) for name, model in models.items() if name not in notes}
    if part != ENCODER and calls:
        _share_future_mask(models, length, options)
    timings = interleaved(calls, options.repeats, options.warm_up, device, time_limit)
    rows = []
    for name, model in models.items():
        time, peak, note = timings.spreads.get(name), None, {**notes, **timings.notes}.get(name, "")
        if time:
            model.decoder._future_mask = torch.empty(0)  # a model that needs it has to make it
            peak = peak_bytes_or_none(name, partial(calls[name], 0), device)
        rows.append(InferenceRow(name, part, length, sentences, time, peak, note))
        say(f"  {name}: {f'{time.median:,.2f} s' if time else note}")
        model.decoder._future_mask = torch.empty(0)
    return rows


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
