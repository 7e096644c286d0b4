"""Time and memory of whole models' forward pass against sentence length, at a constant number of tokens."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor

from linformer_fairseq.cli.progress import say

from ..forecast import Outlook
from ..forward import ENCODER, forward_call, random_tokens
from ..memory import free_bytes, peak_bytes_if_listed, release
from ..models import TRANSFORMER
from ..running import Running
from ..timing import Spread, interleaved
from .whole_models import contenders
from .whole_settings import InferenceSettings

Models = dict[str, TransformerModelBase]


@dataclass(frozen=True)
class InferenceRow:
    """One model, or a part of it, at one length."""

    model: str
    part: str
    length: int
    """Tokens of a sentence."""
    sentences: int
    time: Spread | None
    """Of one batch."""
    peak_bytes: int | None
    """Of one batch, beyond what is there before: the model and the tokens."""
    note: str = ""
    """Why there is no time."""

    @property
    def tokens_per_second(self) -> float | None:
        """Source tokens."""
        return self.length * self.sentences / self.time.median if self.time else None

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        time = self.time.facts() if self.time else None
        return {**asdict(self), "time": time, "tokens_per_second": self.tokens_per_second}


@torch.no_grad()
def measure(
    length: int, settings: InferenceSettings, running: Running, before: Sequence[InferenceRow]
) -> list[InferenceRow]:
    """Every part of every model, the models interleaved.

    The encoder of the model that projects its decoder's self-attention too is that of another one, and not measured.

    Args:
        length: tokens of every sentence.
        before: rows of shorter sentences, from which it is foretold what will not fit.
    """
    device = running.torch_device
    models = _build(settings, running)
    encoders = {contender.name: models[contender.name] for contender in contenders(settings.ks, None)}
    # at a constant number of tokens attention takes a time in proportion to n; a mask of the future has n x n numbers
    outlook = Outlook(settings.time_limit, time_power=1, memory_power=2, fewest=2)
    for row in before:
        outlook.remember((row.part, row.model), row.length, row.time and row.time.median, row.peak_bytes)
    sentences = settings.tokens // length
    source = random_tokens(models[TRANSFORMER].encoder.dictionary, sentences, length, device)
    rows = []
    for part in settings.parts:
        say(f"inference, {part}, {sentences:,} x {length:,} tokens ...")
        rows += _rows(part, encoders if part == ENCODER else models, source, outlook, running)
    release(device)
    return rows


def _build(settings: InferenceSettings, running: Running) -> Models:
    """All contenders, ready for inference as fairseq-generate makes them."""
    task = settings.model.task()
    wanted = contenders(settings.ks, settings.all_linear_k)
    positions = max(settings.longest, *settings.ks, settings.all_linear_k or 0)
    models = {contender.name: contender.build(settings.model, task, positions) for contender in wanted}
    for model in models.values():
        model.load_state_dict(model.state_dict())  # fairseq 0.12.2 opens its fused kernel for loaded weights alone
        model.make_generation_fast_(need_attn=False)
        model.to(device=running.torch_device, dtype=running.torch_dtype)
    return models


def _rows(part: str, models: Models, source: Tensor, outlook: Outlook, running: Running) -> list[InferenceRow]:
    """All models at one length; source: (B, n)."""
    device = running.torch_device
    sentences, length = source.shape
    free = free_bytes(device)
    notes = {name: outlook.objection((part, name), length, free) for name in models}
    calls = {name: forward_call(part, model, source) for name, model in models.items() if not notes[name]}
    if part != ENCODER and calls:
        _share_future_mask(models, length, running)
    timings = interleaved(calls, running.repeats, running.warm_up, device)
    notes |= timings.notes
    rows = []
    for name, model in models.items():
        time, peak = timings.spreads.get(name), None
        if time:
            model.decoder._future_mask = torch.empty(0)  # whoever needs it has to make it
            peak = peak_bytes_if_listed(name, partial(calls[name], 0), device)
        rows.append(InferenceRow(name, part, length, sentences, time, peak, notes[name]))
        say(f"  {name}: {f'{time.median:,.2f} s' if time else notes[name]}")
        model.decoder._future_mask = torch.empty(0)
    return rows


def _share_future_mask(models: Models, length: int, running: Running) -> None:
    """Lets all decoders have the same (n, n) mask, which each of fairseq's makes and keeps: 1 GB for 16,384 tokens."""
    first, *others = (model.decoder for model in models.values())  # fairseq's Transformer is the first
    first.buffered_future_mask(torch.empty(length, 0, device=running.torch_device, dtype=running.torch_dtype))
    for decoder in others:
        decoder._future_mask = first._future_mask
