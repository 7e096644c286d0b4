"""Length buckets leave no gaps."""

from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.length_buckets import buckets


@given(st.sets(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 80))
def test_every_length_is_in_one_bucket(ends: set[int], length: int) -> None:
    found = buckets(tuple(sorted(ends)))
    assert len(found) == len(ends) + 1
    (own,) = [bucket for bucket in found if length in bucket]
    assert own.longest is None or own.longest in ends
    assert str(found[-1]) == f"{max(ends) + 1} tokens and more"
