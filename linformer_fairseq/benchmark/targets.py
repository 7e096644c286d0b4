"""What was measured, against what was meant to be reached."""

from collections.abc import Sequence
from dataclasses import dataclass

from .report import UNKNOWN, table


@dataclass(frozen=True)
class Target:
    """One comparison of measured numbers."""

    what: str
    measured: float | None
    """None where it was asked for and could not be measured."""
    relation: str
    """`<=`, `>=`, `>` or `=`."""
    bound: float

    @property
    def met(self) -> bool | None:
        """None where it is not known."""
        if self.measured is None:
            return None
        return {
            "<=": self.measured <= self.bound,
            ">=": self.measured >= self.bound,
            ">": self.measured > self.bound,
            "=": self.measured == self.bound,
        }[self.relation]

    @property
    def wanted(self) -> str:
        """As it reads."""
        return f"{self.relation} {self.bound:.3g}"

    def facts(self) -> dict[str, str | float | bool | None]:
        """As results.json has it."""
        return {"what": self.what, "measured": self.measured, "target": self.wanted, "met": self.met}


def target_table(targets: Sequence[Target]) -> str:
    """Every target, and whether it was met."""
    if not targets:
        return "None of the sizes that the targets speak of was measured."
    return table(
        ["", "Measured", "Target", "Met"],
        [[target.what, *_outcome(target)] for target in targets],
    )


def _outcome(target: Target) -> tuple[str, str, str]:
    if target.measured is None:
        return "not measured", target.wanted, UNKNOWN
    return f"{target.measured:.3g}", target.wanted, "yes" if target.met else "no"
