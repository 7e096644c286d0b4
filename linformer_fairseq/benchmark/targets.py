"""What was measured, against what was meant to be reached."""

from collections.abc import Sequence
from dataclasses import dataclass

from .report import table


@dataclass(frozen=True)
class Target:
    """One comparison of measured numbers."""

    what: str
    measured: float
    relation: str
    """`<=`, `>=`, `>` or `=`."""
    bound: float

    @property
    def met(self) -> bool:
        return {
            "<=": self.measured <= self.bound,
            ">=": self.measured >= self.bound,
            ">": self.measured > self.bound,
            "=": self.measured == self.bound,
        }[self.relation]

    def facts(self) -> dict[str, str | float | bool]:
        """As results.json has it."""
        return {
            "what": self.what,
            "measured": self.measured,
            "target": f"{self.relation} {self.bound:.3g}",
            "met": self.met,
        }


def target_table(targets: Sequence[Target]) -> str:
    """Every target, and whether it was met."""
    if not targets:
        return "None of the sizes that the targets speak of was measured."
    return table(
        ["", "Measured", "Target", "Met"],
        [
            [target.what, f"{target.measured:.3g}", target.facts()["target"], "yes" if target.met else "no"]
            for target in targets
        ],
    )
