"""Intervals of a page's time range: their length, and the rows of `red` by interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from receiver.console.api.source import Row
from receiver.console.ui.charts.svg import Axes, Number, Tick, Unit
from receiver.console.ui.numbers import parsed
from receiver.console.ui.view import View, instant

INTERVALS_MAX = 60
_STEPS_S: Final = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
"""Lengths of intervals, all round numbers."""
_TICKS_MAX: Final = 7
_DAY_S: Final = 86_400


class Timeline:
    """The intervals of a time range, aligned to whole multiples of their length."""

    def __init__(self, view: View) -> None:
        self._view = view
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

    def bounds(self, index: int) -> dict[str, str]:
        """Return the part of an interval that is in the time range, as parameters of a page."""
        begin_s = self.begin_s + index * self.step_s
        since_s = max(begin_s, self._view.begin_s)
        return {"since": instant(since_s), "until": instant(min(begin_s + self.step_s, self._view.end_s))}

    def links(self, filter_text: str) -> list[str]:
        """Return for each interval the URL of its spans that match a filter."""
        return [
            self._view.link("/search", filter=filter_text, **self.bounds(index))
            for index in range(self.count)
        ]

    def axes(self, unit: Unit) -> Axes:
        """Return the axes of a chart of these intervals."""
        data: dict[str, str | float] = {
            "data_begin": self.begin_s,
            "data_step": self.step_s,
            "data_columns": self.count,
            "data_since": self._view.times["since"],
            "data_until": self._view.times["until"],
            "data_bounds": "",
        }
        return Axes(list(self._ticks()), unit, data)

    def _ticks(self) -> Iterable[Tick]:
        length_s = self.count * self.step_s
        every_s = next((step for step in _STEPS_S if length_s / step <= _TICKS_MAX), _days(8 * length_s))
        form = "%m-%d" if every_s % _DAY_S == 0 else "%m-%d %H:%M" if length_s > _DAY_S else "%H:%M"
        if every_s < 60:  # noqa: PLR2004 - a minute
            form = "%H:%M:%S"
        for at_s in range(-(-self.begin_s // every_s) * every_s, self.begin_s + length_s, every_s):
            at = datetime.fromtimestamp(at_s, UTC)
            yield Tick((at_s - self.begin_s) / self.step_s, at.strftime(form), at.isoformat())


def _days(seconds: float) -> int:
    return -(-int(seconds) // (86_400 * INTERVALS_MAX)) * 86_400
