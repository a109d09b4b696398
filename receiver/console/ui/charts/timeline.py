"""Intervals of a page's time range: their length, and the rows of `red` by interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from receiver.console.api.source import Row
from receiver.console.ui.charts.svg import Number
from receiver.console.ui.numbers import parsed
from receiver.console.ui.view import View

INTERVALS_MAX = 60
"""Maximum number of intervals of a chart or sparkline."""
_STEPS_S: Final = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
"""Lengths of intervals, all round numbers."""


class Timeline:
    """The intervals of a time range, aligned to whole multiples of their length."""

    def __init__(self, view: View) -> None:
        self.step_s = next(
            (step for step in _STEPS_S if view.seconds / step <= INTERVALS_MAX), _days(view.seconds)
        )
        self.begin_s = int(view.begin_s) // self.step_s * self.step_s
        self.count = max(1, -(-int(view.end_s - self.begin_s) // self.step_s))
        past_end_s = min(view.end_s, view.now_s)
        starts = [self.begin_s + index * self.step_s for index in range(self.count)]
        # Like `complete` in the rows of a query, which has no row for an interval without spans.
        self.incomplete = [
            index
            for index, start_s in enumerate(starts)
            if start_s < view.begin_s or start_s + self.step_s > past_end_s
        ]
        """Indices of the intervals that are only partly in the time range."""

    @property
    def every(self) -> str:
        """Return the length as a parameter of a query."""
        return f"{self.step_s}s"

    def position(self, at: str) -> float:
        """Return the position of a time: the number of intervals from the start of the range."""
        return (parsed(at).timestamp() - self.begin_s) / self.step_s

    def values(self, rows: Iterable[Row], field: str, missing: Number = 0.0) -> list[Number]:
        """Return the field of each interval's row; `missing` for an interval without a row."""
        values = [missing] * self.count
        for row in rows:
            index = int(self.position(row["start"]))
            if 0 <= index < self.count:
                values[index] = row[field]
        return values

    def values_by_group(self, rows: Iterable[Row], field: str) -> defaultdict[str, list[Number]]:
        """Return the values of each group; zeros for a group without a row."""
        rows_of_group: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows:
            rows_of_group[row["group"]].append(row)
        values = {group: self.values(group_rows, field) for group, group_rows in rows_of_group.items()}
        return defaultdict(lambda: [0.0] * self.count, values)


def _days(seconds: float) -> int:
    return -(-int(seconds) // (86_400 * INTERVALS_MAX)) * 86_400
