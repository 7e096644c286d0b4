"""A step of beam search at several target positions: time, and the state that it carries along."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models.transformer import TransformerModelBase

from linformer_fairseq.cli.progress import say

from ..forward import random_tokens
from ..memory import refusal, release
from ..rows import TimedRow
from ..run_options import RunOptions
from ..timing import Spread, in_milliseconds, interleaved
from .beam_search import Search
from .checks import TARGET_LENGTH
from .models import OURS, TRANSFORMER
from .settings import CausalSettings

Models = dict[str, TransformerModelBase]
Wanted = tuple[str, int, int]
"""A model, a beam and a position."""


@dataclass(frozen=True)
class DecodingRow(TimedRow):
    """One model at one position."""

    model: str
    beam: int
    position: int
    hypotheses: int
    """Hypotheses of all sentences; each gets a token in a step."""
    time: Spread | None
    """Time of one step."""
    self_state_bytes: int | None
    """The self-attention's part of the state."""
    state_bytes: int | None
    note: str = ""

    @property
    def tokens_per_second(self) -> float | None:
        return self.hypotheses / self.seconds if self.seconds else None

    def facts(self) -> dict[str, Any]:
        """Returns the row as results.json has it."""
        return {**super().facts(), "tokens_per_second": self.tokens_per_second}


def longest_target(settings: CausalSettings, options: RunOptions) -> int:
    """Returns the positions that the models need: steps end at the last position, and k slots need k positions."""
    return max(settings.positions[-1], 1 + options.runs, settings.k, TARGET_LENGTH)


def measure(models: Models, settings: CausalSettings, options: RunOptions) -> list[DecodingRow]:
    """Measures every model with every beam at every position, the models in turn step by step."""
    rows = []
    for beam in settings.beams:
        for position in settings.positions:
            say(f"decoding, beam {beam}, position {position:,} ...")
            rows += _in_turn([(name, beam, position) for name in models], models, settings, options)
    return rows


def measure_growth(models: Models, settings: CausalSettings, options: RunOptions) -> list[DecodingRow]:
    """Measures every one of ours with every beam at all positions, the positions in turn step by step."""
    rows = []
    for name in OURS:
        for beam in settings.beams:
            say(f"decoding at all positions in turn, {name}, beam {beam} ...")
            rows += _in_turn([(name, beam, position) for position in settings.positions], models, settings, options)
    return rows


@torch.no_grad()
def _in_turn(wanted: list[Wanted], models: Models, settings: CausalSettings, options: RunOptions) -> list[DecodingRow]:
    """Returns a row for each model, beam and position that is wanted, all measured in turn."""
    device = options.torch_device
    words = models[TRANSFORMER].decoder.dictionary
    source = random_tokens(words, settings.sentences, settings.source_length, device)
    searches: dict[Wanted, Search] = {}
    notes: dict[Wanted, str] = {}
    for name, beam, position in wanted:
        try:
            first = _first(position, options.runs)
            search = Search(models[name], source, beam, first + options.runs)
            search.first_step()
            search.fill(first)
            searches[name, beam, position] = search
        except (RuntimeError, MemoryError) as error:
            notes[name, beam, position] = refusal(error)
    calls = {key: _steps(search, _first(key[2], options.runs), options.runs) for key, search in searches.items()}
    timings = interleaved(calls, options.repeats, options.warm_up, device)
    sizes = {key: search.state_bytes() for key, search in searches.items()}
    notes |= timings.notes
    rows = []
    for key in wanted:
        name, beam, position = key
        time, note = timings.spreads.get(key), notes.get(key, "")
        bytes_ = sizes.get(key, (None, None))
        rows.append(DecodingRow(name, beam, position, settings.sentences * beam, time, *bytes_, note))
        say(f"  {name}, position {position:,}: {f'{in_milliseconds(time)} per step' if time else note}")
    del searches, calls
    release(device)
    return rows


def _first(position: int, runs: int) -> int:
    """Returns the tokens before the first of some steps, of which the last makes the token at a position."""
    return max(1, position - runs)


def _steps(search: Search, position: int, runs: int) -> Callable[[int], object]:
    """Returns the steps from a position on, by number; the orders of hypotheses are drawn before the clock runs."""
    orders = [search.random_order() for _ in range(runs)]
    return lambda run: search.step(position + run, orders[run])
