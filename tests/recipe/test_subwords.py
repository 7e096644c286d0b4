"""The training pairs that are worth learning from, at the very edges of the limits."""

import pytest

from linformer_fairseq.recipe.datasets import Made
from linformer_fairseq.recipe.settings import SUBWORD_NMT, Text
from linformer_fairseq.recipe.subwords import unfit


def limits(max_subwords: int, max_ratio: float) -> Text:
    return Text(
        dataset=Made({}, 1),
        source_lang="en",
        target_lang="de",
        bpe=SUBWORD_NMT,
        bpe_merges=100,
        normalise_punctuation=True,
        aggressive_hyphens=True,
        max_subwords=max_subwords,
        max_ratio=max_ratio,
    )


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (1, 1, None),
        (250, 250, None),
        (251, 250, "more than 250 subwords"),
        (250, 251, "more than 250 subwords"),
        (30, 20, None),
        (20, 30, None),
        (31, 20, "lengths more than 1.5 to 1"),
        (20, 31, "lengths more than 1.5 to 1"),
        (2, 1, "lengths more than 1.5 to 1"),
        (0, 1, "a side without words"),
        (1, 0, "a side without words"),
    ],
)
def test_the_limits_of_wmt14_themselves_are_within(source: int, target: int, reason: str | None) -> None:
    """As with Moses' clean-corpus-n, which leaves out what is beyond them."""
    assert unfit(source, target, limits(250, 1.5)) == reason


def test_no_limits() -> None:
    assert unfit(1, 100_000, limits(0, 0)) is None
    assert unfit(0, 0, limits(0, 0)) == "a side without words"
