"""Row ranges: their operations give the same rows as operations on sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from receiver.writer.units import Rows, intersect, merge_adjacent, row_count, split_in_half


def ranges_of(rows: set[int]) -> Rows:
    return merge_adjacent((row, row + 1) for row in rows)


def rows_in(ranges: Rows) -> set[int]:
    return {row for first, stop in ranges for row in range(first, stop)}


ROWS = st.sets(st.integers(0, 40)).map(ranges_of)


@given(ROWS, ROWS)
def test_intersection_contains_the_rows_of_both(left: Rows, right: Rows) -> None:
    assert rows_in(intersect(left, right)) == rows_in(left) & rows_in(right)


@given(st.sets(st.integers(0, 40), min_size=2).map(ranges_of))
def test_halves_are_ordered_disjoint_and_of_almost_equal_size(rows: Rows) -> None:
    first, second = split_in_half(rows)

    assert merge_adjacent([*first, *second]) == rows
    assert 0 <= row_count(second) - row_count(first) <= 1
