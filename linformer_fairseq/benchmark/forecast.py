"""What a contender would take at the next length, from what it took at shorter ones.

A run that needs more memory than there is ends the whole process on Linux, so that it has to be known before.
"""

from collections.abc import Hashable, Sequence

RESERVE = 0.1
"""Of the free memory, for what a listing of tensors does not see."""


def forecast(measured: Sequence[tuple[int, float]], length: int, power: float = 2.0, fewest: int = 1) -> float | None:
    """A value at `length`, or None where too little that is shorter was measured.

    One measurement is taken to grow with its whole value, two with what lies between them: both are bounds from
    above. Three give a parabola. What was measured is expected to grow by a factor of 2^power a doubling, at most.

    Args:
        measured: pairs of length and value; those that are not shorter are passed over.
        power: of the length, up to which the value may grow.
        fewest: measurements from which anything is foretold, at least 1. Where most of a value does not grow, one of
            them gives a bound that is far too high.
    """
    shorter = sorted(pair for pair in measured if pair[0] < length)
    if len(shorter) < fewest:
        return None
    n, value = shorter[-1]
    most = value * (length / n) ** power
    if len(shorter) == 1:
        return most
    before, smaller = shorter[-2]
    growth = max(0.0, value - smaller)

    def extrapolated(degree: float) -> float:
        return value + growth * (length**degree - n**degree) / (n**degree - before**degree)

    steepest = min(most, extrapolated(power))
    if len(shorter) == 2:
        return steepest
    # what is measured scatters, and a parabola through scatter can turn anywhere
    return min(steepest, max(extrapolated(1.0), _parabola(shorter[-3:], length)))


def _parabola(points: Sequence[tuple[int, float]], x: float) -> float:
    """Through three points."""
    value = 0.0
    for n, y in points:
        for other, _ in points:
            if other != n:
                y *= (x - other) / (n - other)
        value += y
    return value


class Outlook:
    """Remembers what contenders took, and objects to runs that would take too much.

    Args:
        time_limit: seconds of a run, at most.
        time_power, memory_power: of the length, up to which they may grow.
        fewest: as for `forecast`.
    """

    def __init__(self, time_limit: float, time_power: float = 2.0, memory_power: float = 2.0, fewest: int = 1) -> None:
        self._time_limit = time_limit
        self._fewest = fewest
        self._powers = {"seconds": time_power, "bytes": memory_power}
        self._measured: dict[tuple[Hashable, str], list[tuple[int, float]]] = {}

    def remember(self, name: Hashable, length: int, seconds: float | None, peak_bytes: float | None) -> None:
        """What a contender took; None is what is not known."""
        for what, value in (("seconds", seconds), ("bytes", peak_bytes)):
            if value is not None:
                self._measured.setdefault((name, what), []).append((length, value))

    def objection(self, name: Hashable, length: int, free: int | None) -> str:
        """Why a contender should not run at a length, or nothing.

        Args:
            free: bytes, or None where nobody knows.
        """
        needed = self._forecast(name, "bytes", length)
        if needed is not None and free is not None and needed > (1 - RESERVE) * free:
            return (
                f"left out: could take up to {needed / 1e9:,.1f} GB of memory, of which {free / 1e9:,.1f} GB are free"
            )
        seconds = self._forecast(name, "seconds", length)
        if seconds is not None and seconds > self._time_limit:
            return f"left out: a run could take up to {seconds:,.0f} s"
        return ""

    def _forecast(self, name: Hashable, what: str, length: int) -> float | None:
        return forecast(self._measured.get((name, what), []), length, self._powers[what], self._fewest)
