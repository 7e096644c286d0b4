"""A step of beam search at several target positions: time, and the state that it carries along."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from fairseq.models.transformer import TransformerModelBase

from linformer_fairseq.cli.progress import say

from ..memory import free_bytes, refusal, release
from ..running import Running
from ..timing import Spread, interleaved
from .beam_search import Search
from .checks import TARGET_LENGTH
from .models import LINFORMERS, TRANSFORMER
from .settings import CausalSettings

Wanted = tuple[str, int, int]
"""A model, a beam and a position."""


@dataclass(frozen=True)
class DecodingRow:
    """One model at one position."""

    model: str
    beam: int
    position: int
    hypotheses: int
    """Of all sentences; each gets a token in a step."""
    step: Spread | None
    self_state_bytes: int | None
    """The self-attention's part of the state."""
    state_bytes: int | None
    note: str = ""
    """Why there is no time."""

    @property
    def tokens_per_second(self) -> float | None:
        return self.hypotheses / self.step.median if self.step else None

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        step = self.step.facts() if self.step else None
        return {**asdict(self), "step": step, "tokens_per_second": self.tokens_per_second}


def longest_target(settings: CausalSettings, running: Running) -> int:
    """Positions that the models need: steps are taken from the last position on, and k slots want k positions."""
    return max(settings.positions[-1] + running.runs, settings.k, TARGET_LENGTH)


def measure(models: dict[str, TransformerModelBase], settings: CausalSettings, running: Running) -> list[DecodingRow]:
    """Every model with every beam at every position, the models interleaved step by step."""
    rows = []
    for beam in settings.beams:
        for position in settings.positions:
            say(f"decoding, beam {beam}, position {position:,} ...")
            rows += _interleaved([(name, beam, position) for name in models], models, settings, running)
    return rows


def measure_growth(
    models: dict[str, TransformerModelBase], settings: CausalSettings, running: Running
) -> list[DecodingRow]:
    """Every Linformer with every beam at all positions, the positions interleaved step by step."""
    rows = []
    for name in LINFORMERS:
        for beam in settings.beams:
            say(f"decoding at all positions in turn, {name}, beam {beam} ...")
            rows += _interleaved([(name, beam, position) for position in settings.positions], models, settings, running)
    return rows


@torch.no_grad()
def _interleaved(
    wanted: list[Wanted],
    models: dict[str, TransformerModelBase],
    settings: CausalSettings,
    running: Running,
) -> list[DecodingRow]:
    """A row for each model, beam and position that is wanted, all measured in turn."""
    device = running.torch_device
    words = models[TRANSFORMER].decoder.dictionary
    shape = (settings.sentences, settings.source_length)
    source = torch.randint(words.nspecial, len(words), shape, device=device)
    searches: dict[Wanted, Search] = {}
    notes: dict[Wanted, str] = {}
    for key in wanted:
        name, beam, position = key
        search = Search(models[name], source, beam, position + running.runs)
        try:
            notes[key] = _prepare(search, position, device)
        except (RuntimeError, MemoryError) as error:
            notes[key] = refusal(error)
        if not notes[key]:
            searches[key] = search
    sizes = {key: search.state_bytes() for key, search in searches.items()}
    calls = {key: _steps(search, key[2], running.runs) for key, search in searches.items()}
    timings = interleaved(calls, running.repeats, running.warm_up, device)
    notes |= timings.notes
    rows = []
    for key in wanted:
        name, beam, position = key
        step, note = timings.spreads.get(key), notes[key]
        bytes_ = sizes.get(key, (None, None))
        rows.append(DecodingRow(name, beam, position, settings.sentences * beam, step, *bytes_, note))
        say(f"  {name}, position {position:,}: {f'{1000 * step.median:,.1f} ms a step' if step else note}")
    del searches, calls
    release(device)
    return rows


def _prepare(search: Search, position: int, device: torch.device) -> str:
    """Fills the state; returns why not, if it would not fit."""
    search.first_step()
    # a step copies one layer's keys and values before it lets go of the old ones
    needed = search.bytes_at(position) * (1 + 2 / len(search.decoder.layers))
    free = free_bytes(device)
    if free is not None and needed > free:
        return f"did not fit into memory: its state takes {search.bytes_at(position) / 1e9:,.1f} GB"
    search.fill(position)
    return ""


def _steps(search: Search, position: int, runs: int) -> Callable[[int], object]:
    """The steps from a position on, by number; the orders of hypotheses are drawn before the clock runs."""
    orders = [search.random_order() for _ in range(runs)]
    return lambda run: search.step(position + run, orders[run])
