"""Reading the logs of fairseq's commands."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from linformer_fairseq.cli.errors import UserError

_JSON_LINE = re.compile(r"\| (train_inner|train|valid) \| (\{.*\})\s*$")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_TRANSLATED = re.compile(
    r"Translated [\d,]+ sentences \([\d,]+ tokens\) in ([\d.]+)s \([\d.]+ sentences/s, ([\d.]+) tokens/s\)"
)


def entry(line: str) -> tuple[str, dict[str, Any]]:
    """Returns the kind (train_inner, train, valid) and the values of a JSON log line; an empty kind for any other line.

    fairseq writes most numbers as strings; they come back as numbers.
    """
    match = _JSON_LINE.search(line)
    if match:
        with suppress(ValueError):  # a line cut short by a kill
            return match[1], {name: _number(value) for name, value in json.loads(match[2]).items()}
    return "", {}


def _number(value: Any) -> Any:
    with suppress(TypeError, ValueError):
        return float(value)
    return value


@dataclass
class TrainingLog:
    """A training's log. A resumed training repeats updates: the last line about an update counts."""

    parameters: int = 0
    validations: dict[int, dict[str, Any]] = field(default_factory=dict)
    epochs: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Pairs of update and validation perplexity, in the order of updates."""
        return [(update, values["valid_ppl"]) for update, values in sorted(self.validations.items())]

    @property
    def updates(self) -> int:
        return max(max(self.validations, default=0), self._updates_of_epochs)

    @property
    def _updates_of_epochs(self) -> int:
        return max((int(values["train_num_updates"]) for values in self.epochs.values()), default=0)

    @property
    def _whole(self) -> bool:
        """Whether the log has a line for every epoch: a kill between an epoch's last save and its line loses it."""
        return set(self.epochs) == set(range(1, len(self.epochs) + 1)) and self._updates_of_epochs == self.updates

    @property
    def seconds(self) -> float | None:
        """Time spent in updates alone, without validation, saving and starting; None if that of an epoch is unknown."""
        return float(sum(values["train_train_wall"] for values in self.epochs.values())) if self._whole else None

    @property
    def tokens(self) -> float | None:
        """Target tokens trained on, counted once per epoch; None if those of an epoch are unknown."""
        if not self._whole:
            return None
        total, before = 0.0, 0
        for _, values in sorted(self.epochs.items()):
            updates = int(values["train_num_updates"])
            total += values["train_wpb"] * (updates - before)
            before = updates
        return total


def best_update(curve: Iterable[Sequence[float]], *, lowest: bool) -> int:
    """Returns the update whose checkpoint counts: of equally good ones the last, as fairseq does.

    Args:
        curve: pairs of update and level.
        lowest: whether lower levels are better.
    """
    points = list(curve)
    best = (min if lowest else max)(level for _, level in points)
    return int(max(update for update, level in points if level == best))


def read_training(text: str) -> TrainingLog:
    """Reads the log of fairseq-train, without lines that a kill cut short."""
    log = TrainingLog()
    for line in text.split("\n"):
        if parameters := _PARAMETERS.search(line):
            log.parameters = int(parameters[1].replace(",", ""))
        kind, values = entry(line)
        if kind == "valid":
            log.validations[int(values["valid_num_updates"])] = values
        elif kind == "train":
            log.epochs[int(values["epoch"])] = values
    return log


def read_perplexity(text: str) -> float:
    """Returns the last perplexity that fairseq-validate printed, or raises UserError where there is none."""
    perplexities = [values["valid_ppl"] for kind, values in map(entry, text.split("\n")) if kind == "valid"]
    if not perplexities:
        raise UserError("fairseq-validate gave no perplexity: run the same command again.")
    return float(perplexities[-1])


@dataclass(frozen=True)
class Translation:
    """Hypotheses that fairseq-generate printed, by sentence id, and how long it took."""

    hypotheses: dict[int, str]
    seconds: float
    tokens_per_second: float


def read_translation(text: str) -> Translation:
    """Reads what fairseq-generate printed, or raises UserError where it does not say how long it took."""
    lines = text.split("\n")
    hypotheses = {}
    for line in lines:
        if line.startswith("H-"):
            name, _, hypothesis = line.split("\t", 2)
            hypotheses[int(name[2:])] = hypothesis
    times = [found for line in lines if not line.startswith("H-") and (found := _TRANSLATED.search(line))]
    if not times:
        raise UserError("fairseq-generate did not say how long it took: run the same command again.")
    return Translation(hypotheses, *map(float, times[-1].groups()))
