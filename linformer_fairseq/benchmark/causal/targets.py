"""What exact causal Linformer attention is meant to reach, against what was measured."""

from collections.abc import Iterator

from ..targets import Target
from .decoding import DecodingRow
from .models import LINFORMERS, TRANSFORMER
from .product import EAGER, EAGER_MODULE, FUSED, FUSED_MODULE, MODULE, PRODUCT, TrainingRow

STEP_GROWTH = 1.15
"""A step at the longest position against one at the shortest, at most."""
SPEED_UP_BEAM = 4
SPEED_UPS = {64: 0.95, 1024: 3.0, 4096: 10.0}
"""fairseq's step against ours by target position, at least."""
GROWTH_LENGTHS = (2048, 8192)
TIME_GROWTH = 4.6
"""Forward and backward at the second of these lengths against the first, at most."""
FUSED_RATIOS = {512: 1 / 1.1, 8192: 4.0}
"""torch's fused attention against our product by length, at least ..."""
FUSED_ABOVE = {2048: 1.0}
"""... and more than this."""
EAGER_LENGTH = 2048
EAGER_RATIO = 5.0
"""fairseq's attention, whole modules or without their linear layers, against ours at that length in time, at least."""
EAGER_MEMORY = 0.1
"""Our peak memory against fairseq's there, at most."""


def compare(decoding: list[DecodingRow], growth: list[DecodingRow], training: list[TrainingRow]) -> list[Target]:
    """All targets whose positions and lengths were measured.

    Args:
        decoding: the models side by side.
        growth: the positions side by side.
    """
    return [*_growth_targets(growth), *_speed_targets(decoding), *_training_targets(training)]


def _growth_targets(rows: list[DecodingRow]) -> Iterator[Target]:
    for model in LINFORMERS:
        for beam in sorted({row.beam for row in rows}):
            own = [row for row in rows if row.step and (row.model, row.beam) == (model, beam)]
            if len(own) < 2:
                continue
            first, *_, last = own
            between = f"{model}, beam {beam}: position {last.position:,} / {first.position:,}"
            yield Target(f"{between}, time of a step", last.step.median / first.step.median, "<=", STEP_GROWTH)
            largest, smallest = (pick(row.state_bytes for row in own) for pick in (max, min))
            yield Target(f"{model}, beam {beam}: largest / smallest state", largest / smallest, "=", 1.0)


def _speed_targets(rows: list[DecodingRow]) -> Iterator[Target]:
    measured = {(row.model, row.beam, row.position): row for row in rows if row.step}
    for model in LINFORMERS:
        for position, bound in SPEED_UPS.items():
            ours, theirs = (measured.get((name, SPEED_UP_BEAM, position)) for name in (model, TRANSFORMER))
            if ours and theirs:
                what = f"fairseq / {model}, beam {SPEED_UP_BEAM}, position {position:,}: time of a step"
                yield Target(what, theirs.step.median / ours.step.median, ">=", bound)


def _training_targets(rows: list[TrainingRow]) -> Iterator[Target]:
    measured = {(row.contender, row.length): row for row in rows if row.time}

    def ratio(one: tuple[str, int], other: tuple[str, int]) -> float | None:
        if one not in measured or other not in measured:
            return None
        return measured[one].time.median / measured[other].time.median

    short, long = GROWTH_LENGTHS
    if growth := ratio((PRODUCT, long), (PRODUCT, short)):
        yield Target(f"{PRODUCT}: {long:,} / {short:,} tokens, time", growth, "<=", TIME_GROWTH)
    for relation, bounds in ((">=", FUSED_RATIOS), (">", FUSED_ABOVE)):
        for length, bound in bounds.items():
            if speed_up := ratio((FUSED, length), (PRODUCT, length)):
                yield Target(f"{FUSED} / {PRODUCT}, {length:,} tokens: time", speed_up, relation, bound)
    for name, own in ((EAGER, PRODUCT), (EAGER_MODULE, MODULE), (FUSED_MODULE, MODULE)):
        if speed_up := ratio((name, EAGER_LENGTH), (own, EAGER_LENGTH)):
            yield Target(f"{name} / {own}, {EAGER_LENGTH:,} tokens: time", speed_up, ">=", EAGER_RATIO)
        theirs, ours = (measured.get((contender, EAGER_LENGTH)) for contender in (name, own))
        if theirs and ours and theirs.peak_bytes and ours.peak_bytes:
            what = f"{own} / {name}, {EAGER_LENGTH:,} tokens"
            yield Target(f"{what}: peak memory", ours.peak_bytes / theirs.peak_bytes, "<=", EAGER_MEMORY)
