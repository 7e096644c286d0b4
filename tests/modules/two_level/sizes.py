"""Sizes of two levels that tests choose among."""

from hypothesis import strategies as st

from linformer_fairseq.modules.two_level.sizes import DEFAULTS

SIZES = st.fixed_dictionaries(
    {
        "k": st.integers(1, 16),
        "open_slots": st.sampled_from([None, 1, 2, 3]),
        "slot_width": st.sampled_from([None, 1, 2, 3, 4]),
        "block_size": st.sampled_from([None, 1, 3, 4, 40]),
        "exact_below": st.sampled_from([0, 12]),
        "sizes": st.sampled_from([*DEFAULTS]),
    }
)
NARROW: dict[str, object] = {"slot_width": 4, "open_slots": 2, "block_size": 8, "exact_below": 0}
