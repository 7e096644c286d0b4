"""A step of beam search at several target positions: time, and the state that it carries along."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from fairseq.models.transformer import TransformerModelBase

from linformer_fairseq.recipe.steps import say

from .beam_search import Search
from .causal_settings import CausalSettings
from .checks import TARGET_LENGTH
from .memory import free_bytes, refusal, release
from .running import Running
from .timing import Spread, interleaved


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


@torch.no_grad()
def measure(models: dict[str, TransformerModelBase], settings: CausalSettings, running: Running) -> list[DecodingRow]:
    """Every model with every beam at every position, the models interleaved step by step."""
    shape = (settings.sentences, settings.source_length)
    words = models[next(iter(models))].decoder.dictionary
    source = torch.randint(words.nspecial, len(words), shape, device=running.torch_device)
    rows = []
    for beam in settings.beams:
        for position in settings.positions:
            say(f"decoding, beam {beam}, position {position:,} ...")
            rows += _measure_at(models, source, beam, position, running)
            release(running.torch_device)
    return rows


def _measure_at(
    models: dict[str, TransformerModelBase], source: torch.Tensor, beam: int, position: int, running: Running
) -> list[DecodingRow]:
    searches: dict[str, Search] = {}
    notes: dict[str, str] = {}
    for name, model in models.items():
        search = Search(model, source, beam, position + running.runs)
        try:
            notes[name] = _prepare(search, position, running.torch_device)
        except (RuntimeError, MemoryError) as error:
            notes[name] = refusal(error)
        if not notes[name]:
            searches[name] = search
    sizes = {name: search.state_bytes() for name, search in searches.items()}
    calls = {name: _steps(search, position, running.runs) for name, search in searches.items()}
    timings = interleaved(calls, running.repeats, running.warm_up, running.torch_device)
    notes |= timings.notes
    rows = []
    for name in models:
        step = timings.spreads.get(name)
        bytes_ = sizes.get(name, (None, None))
        rows.append(DecodingRow(name, beam, position, len(source) * beam, step, *bytes_, notes[name]))
        say(f"  {name}: {f'{1000 * step.median:,.1f} ms a step' if step else notes[name]}")
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
