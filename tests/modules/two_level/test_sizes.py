"""The sizes of two levels follow from a text's length, and stay within k windows and what is told."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.two_level.sizes import DEFAULTS, EXACT_BELOW, SizeRule, Sizes

PLACES = tuple(x for places in DEFAULTS.values() for x in places.values())
RULES = st.builds(
    SizeRule,
    projected_dim=st.integers(1, 20),
    defaults=st.sampled_from(PLACES),
    open_slots=st.sampled_from([None, 1, 2, 7]),
    slot_width=st.sampled_from([None, 1, 3, 8]),
    block_size=st.sampled_from([None, 1, 5]),
    exact_below=st.sampled_from([0, 1, 10, 150]),
)


@pytest.mark.parametrize(
    ("rules", "place", "n", "sizes"),
    [
        (1, "encoder", 1024, (16, 8, 64, 0)),
        (1, "encoder", 1025, (32, 8, 128, 0)),
        (1, "encoder", 8192, (128, 4, 256, 0)),
        (1, "encoder", 32768, (512, 2, 256, 0)),
        (1, "cross", 1024, (16, 16, 64, 0)),
        (1, "cross", 8192, (128, 4, 128, 0)),
        (1, "decoder", 1024, (16, 4, 32, 0)),
        (1, "decoder", 32768, (512, 2, 256, 0)),
        (2, "encoder", 1024, (16, 4, 64, 64)),
        (2, "cross", 1024, (16, 12, 64, 0)),
        (2, "cross", 8192, (128, 4, 128, 0)),
        (2, "decoder", 1024, (16, 3, 64, 128)),
    ],
)
def test_what_follows_from_64_windows(rules: int, place: str, n: int, sizes: tuple[int, ...]) -> None:
    rule = SizeRule(64, DEFAULTS[rules][place])
    assert rule.sizes(n) == rule.cut(n) == sizes
    assert rule.sizes(EXACT_BELOW - 1) is None
    assert rule.sizes(EXACT_BELOW) is not None


@given(rule=RULES, n=st.integers(1, 300))
def test_windows_pay_or_there_are_none(rule: SizeRule, n: int) -> None:
    sizes = rule.sizes(n)
    cut = rule.cut(n)
    assert isinstance(cut, Sizes)
    assert sizes in (None, cut)
    exact = n < rule.exact_below or n <= rule.projected_dim or cut.width == 1 or n <= cut.opened * cut.width
    assert (sizes is None) == exact
    for own, given_size in zip(cut[:3], (rule.slot_width, rule.open_slots, rule.block_size), strict=True):
        assert own == given_size if given_size is not None else own >= 1
    if rule.slot_width is None:
        assert -(-n // cut.width) <= rule.projected_dim
        assert cut.width == 1 or -(-2 * n // cut.width) > rule.projected_dim  # half as wide were too many
    if rule.open_slots is None:
        assert cut.opened <= 2 or cut.opened * cut.width <= 512


@given(rule=RULES, longest=st.integers(1, 300))
def test_ranges_are_the_lengths_with_the_same_sizes(rule: SizeRule, longest: int) -> None:
    ranges = list(rule.ranges(longest))
    assert ranges[0][0] == 1
    assert ranges[-1][1] == longest
    for first, last, sizes in ranges:
        assert {rule.sizes(n) for n in range(first, last + 1)} == {sizes}
    for (_, last, sizes), (first, _, other) in pairwise(ranges):
        assert first == last + 1
        assert sizes != other


@pytest.mark.parametrize("name", ["open_slots", "slot_width", "block_size"])
def test_refuses_impossible_sizes(name: str) -> None:
    flag = f"--linformer-{name.replace('_', '-')}"
    with pytest.raises(ValueError, match=f"{flag} must be at least 1, not 0"):
        SizeRule(4, DEFAULTS[1]["encoder"], **{name: 0})
    with pytest.raises(ValueError, match=f"{flag} takes a whole number, not '3'"):
        SizeRule(4, DEFAULTS[1]["encoder"], **{name: "3"})
    with pytest.raises(ValueError, match="--linformer-exact-below must be at least 0, not -1"):
        SizeRule(4, DEFAULTS[1]["encoder"], exact_below=-1)
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        SizeRule(0, DEFAULTS[1]["encoder"])
