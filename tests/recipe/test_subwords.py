"""The training pairs that are worth learning from, at the very edges of the limits."""

import pytest
from linformer_fairseq.recipe.arguments import parse

from linformer_fairseq.recipe.subwords import unfit


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (250, 250, None),
        (251, 250, "more than 250 subwords"),
        (250, 251, "more than 250 subwords"),
        (20, 30, None),
        (31, 20, "lengths more than 1.5 to 1"),
        (20, 31, "lengths more than 1.5 to 1"),
        (0, 1, "a side without words"),
        (1, 0, "a side without words"),
    ],
)
def test_the_limits_themselves_are_within(source: int, target: int, reason: str | None) -> None:
    """As with Moses' clean-corpus-n, which leaves out what is beyond them."""
    limited = parse(["--max-subwords", "250", "--max-ratio", "1.5"]).settings.text
    assert unfit(source, target, limited) == reason
    unlimited = parse([]).settings.text
    assert unfit(source, target, unlimited) == (reason if not source * target else None)
