"""Ranges of sentence lengths that reports tell apart."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bucket:
    """A range of lengths in tokens, both ends included; `longest` is None where there is no limit."""

    shortest: int
    longest: int | None

    def __contains__(self, length: int) -> bool:
        return self.shortest <= length and (self.longest is None or length <= self.longest)

    def __str__(self) -> str:
        if self.longest is None:
            return f"{self.shortest} tokens and more"
        if self.shortest == self.longest:
            return "1 token" if self.longest == 1 else f"{self.longest} tokens"
        return f"{self.shortest} to {self.longest} tokens"


def buckets(ends: tuple[int, ...]) -> list[Bucket]:
    """Returns a bucket that ends at each of these ascending lengths, and one for all that is longer."""
    starts = (1, *(end + 1 for end in ends))
    return [Bucket(start, end) for start, end in zip(starts, (*ends, None), strict=True)]
