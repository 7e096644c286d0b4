"""What the efficiency of Linformer attention is meant to reach, against what was measured."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..models import TRANSFORMER
from ..targets import Target
from .contenders import EAGER, FAIRSEQ, FUSED, OURS, PEER_LINFORMERS
from .module_grid import FORWARD, Key, ModuleRow
from .training import TrainingRow, describe

LONG = 8192
SPEED_UPS = {256: 10.0, 128: 13.0}
"""Full attention's forward time against ours at that length by k, at least."""
MEMORY = 15.0
"""Eager attention's peak memory against ours there, at least."""
OTHER_LINFORMERS = 1.25
"""Their time against ours, at least."""
SHORTEST = 512
"""The length from which on that is meant to hold."""
EQUAL = 1.05
"""Our time against full attention's where k = n, at most."""
EQUAL_LENGTHS = (32, 128)
SLOPE = 1.1
"""Of time against length, at most."""
SLOPE_LENGTHS = (2048, 16384)
TRAINING = {None: 1.0, 4096: 2.0}
"""Tokens a second against the Transformer's by length (None: WMT-like), at least."""

Measured = dict[tuple[Key, str, int], ModuleRow]


def compare(grid: Sequence[ModuleRow], equal: Sequence[ModuleRow], training: Sequence[TrainingRow]) -> list[Target]:
    """All targets whose lengths were asked for."""
    rows: Measured = {(row.key, row.passes, row.length): row for row in grid}
    return [
        *_against_full(rows),
        *_against_other_linformers(rows),
        *_equal_targets(equal),
        *_slope_targets(grid),
        *_training_targets(training),
    ]


def seconds(row: ModuleRow) -> float | None:
    """Of a batch."""
    return row.time and row.time.median


def peak(row: ModuleRow) -> float | None:
    """Bytes of a batch."""
    return row.peak_bytes


def slope(
    rows: Sequence[ModuleRow], value: Callable[[ModuleRow], float | None], lengths: tuple[int, int] = (0, 2**62)
) -> float | None:
    """The exponent of a sentence's time, or memory, against its length, by least squares; None of fewer than two."""
    shortest, longest = lengths
    points = {row.length: amount / row.sentences for row in rows if (amount := value(row))}
    points = {n: amount for n, amount in points.items() if shortest <= n <= longest}
    if len(points) < 2:
        return None
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])


def _against_full(rows: Measured) -> Iterator[Target]:
    for k, bound in SPEED_UPS.items():
        ours = rows.get((Key(OURS, k), FORWARD, LONG))
        for name in (EAGER, FUSED):
            theirs = rows.get((Key(name, None), FORWARD, LONG))
            if ours and theirs:
                what = f"{name} / ours, k = {k}, {LONG:,} tokens, forward"
                yield Target(f"{what}: time", _ratio(seconds(theirs), seconds(ours)), ">=", bound)
                if name == EAGER:
                    yield Target(f"{what}: peak memory", _ratio(peak(theirs), peak(ours)), ">=", MEMORY)


def _against_other_linformers(rows: Measured) -> Iterator[Target]:
    """The smallest ratio of time and of memory over all lengths and ks, for each of them and each pass."""
    rows = {key: row for key, row in rows.items() if row.time}
    for name in PEER_LINFORMERS:
        for passes in dict.fromkeys(passes for _, passes, _ in rows):
            pairs = [
                (f"k = {key.k}, {length:,} tokens", row, rows[Key(OURS, key.k), passes, length])
                for (key, row_passes, length), row in rows.items()
                if key.contender == name and row_passes == passes and length >= SHORTEST
                if (Key(OURS, key.k), passes, length) in rows
            ]
            if not pairs:
                continue
            where, theirs, ours = min(pairs, key=lambda pair: pair[1].time.median / pair[2].time.median)
            what = f"{name} / ours, {passes}, least of {len(pairs)}"
            yield Target(f"{what} ({where}): time", theirs.time.median / ours.time.median, ">=", OTHER_LINFORMERS)
            known = [pair for pair in pairs if pair[1].peak_bytes and pair[2].peak_bytes]
            if known:
                where, theirs, ours = min(known, key=lambda pair: pair[1].peak_bytes / pair[2].peak_bytes)
                yield Target(f"{what} ({where}): peak memory", theirs.peak_bytes / ours.peak_bytes, ">=", 1.0)


def _equal_targets(equal: Sequence[ModuleRow]) -> Iterator[Target]:
    rows: Measured = {(row.key, row.passes, row.length): row for row in equal}
    for length in EQUAL_LENGTHS:
        for passes in dict.fromkeys(row.passes for row in equal):
            ours = rows.get((Key(OURS, length), passes, length))
            for name in (EAGER, FAIRSEQ):
                theirs = rows.get((Key(name, None), passes, length))
                if ours and theirs:
                    what = f"ours / {name}, n = k = {length}, {passes}: time"
                    yield Target(what, _ratio(seconds(ours), seconds(theirs)), "<=", EQUAL)


def _slope_targets(grid: Sequence[ModuleRow]) -> Iterator[Target]:
    shortest, longest = SLOPE_LENGTHS
    ours = [row for row in grid if row.contender == OURS]
    for k in sorted({row.k for row in ours}):
        for passes in dict.fromkeys(row.passes for row in ours):
            own = {row.length: row for row in ours if (row.k, row.passes) == (k, passes)}
            if shortest in own and longest in own:
                what = f"ours, k = {k}, {passes}: slope of time from {shortest:,} to {longest:,} tokens"
                whole = own[shortest].time and own[longest].time
                yield Target(what, slope(list(own.values()), seconds, SLOPE_LENGTHS) if whole else None, "<=", SLOPE)


def _training_targets(rows: Sequence[TrainingRow]) -> Iterator[Target]:
    speeds = {(row.model, row.length): row.tokens_per_second for row in rows}
    for (model, length), speed in speeds.items():
        if model != TRANSFORMER and (TRANSFORMER, length) in speeds and length in TRAINING:
            baseline = speeds[TRANSFORMER, length]
            what = f"{model} / {TRANSFORMER}, {describe(length)}: training tokens a second"
            yield Target(what, _ratio(speed and speed.median, baseline and baseline.median), ">=", TRAINING[length])


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None
