"""Heatmap of durations over time: its cells, each with the time range and the selection of its spans.

Invariant: the number of a cell equals the number of spans that its link selects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from receiver.console.api.source import Row
from receiver.console.queries.aggregates.latency import BOUNDS_NS
from receiver.console.ui.charts.timeline import Timeline

ROWS_MAX = 16
"""Maximum number of rows; neighbouring buckets are merged until they fit."""
NS_PER_MS: Final = 1_000_000
END_NS: Final = 2**64
"""End of the last row: longer durations do not exist."""


class Cell(NamedTuple):
    """The spans that started in an interval and whose duration is in a row."""

    column: int
    row: int
    """Index of the row; row 0 has the shortest durations."""
    spans: int
    errors: int
    since: str
    until: str
    low_ns: int
    selection: str
    """Filter of the durations of the row."""


class Heatmap(NamedTuple):
    """The cells that have spans, and their grid."""

    cells: Sequence[Cell]
    bounds_ns: Sequence[int]
    """Lower bound of each row, and the end of the last."""
    timeline: Timeline

    @property
    def bounds(self) -> str:
        """Return the bounds of the rows in the notation of filters, for the script that draws a selection."""
        return " ".join(_plain_ms(bound) for bound in self.bounds_ns)

    @property
    def slow(self) -> str:
        """Return the filter of the slowest spans: the rows that have at most a twentieth of all spans."""
        spans: Counter[int] = Counter()
        for cell in self.cells:
            spans[cell.row] += cell.spans
        slow_count, first = 0, len(self.bounds_ns) - 1
        while first > 0 and 20 * (slow_count + spans[first - 1]) <= spans.total():
            first -= 1
            slow_count += spans[first]
        return selection_of(self.bounds_ns[first]) if slow_count else ""


def heatmap(rows: Sequence[Row], timeline: Timeline) -> Heatmap:
    """Return the heatmap of the lines of `latency`."""
    # The middle of a bucket, because its bounds in milliseconds are rounded.
    indices = [bisect_right(BOUNDS_NS, (row["from_ms"] + row["to_ms"]) / 2 * NS_PER_MS) - 1 for row in rows]
    per_row = _buckets_per_row(indices)
    first = min(indices) // per_row
    bounds = [_bound(row * per_row) for row in range(first, max(indices) // per_row + 2)]
    spans: Counter[tuple[int, int]] = Counter()
    errors: Counter[tuple[int, int]] = Counter()
    for line, index in zip(rows, indices, strict=True):
        cell = int(timeline.position(line["start"])), index // per_row - first
        spans[cell] += line["spans"]
        errors[cell] += line["errors"]
    cells = [
        Cell(
            column,
            row,
            count,
            errors[column, row],
            **timeline.bounds(column),
            low_ns=bounds[row],
            selection=selection_of(bounds[row], bounds[row + 1]),
        )
        for (column, row), count in sorted(spans.items())
    ]
    return Heatmap(cells, bounds, timeline)


def selection_of(low_ns: int, high_ns: int = END_NS) -> str:
    """Return the filter of the durations from a bound, inclusive, to another bound, exclusive."""
    low = f"duration>={_plain_ms(low_ns)}"
    return low if high_ns == END_NS else f"{low} duration<{_plain_ms(high_ns)}"


def _buckets_per_row(indices: Sequence[int]) -> int:
    per_row = 1
    while max(indices) // per_row - min(indices) // per_row >= ROWS_MAX:
        per_row *= 2
    return per_row


def _bound(index: int) -> int:
    return BOUNDS_NS[index] if index < len(BOUNDS_NS) else END_NS


def _plain_ms(nanoseconds: int) -> str:
    """Return a duration as filters write it, with all its digits."""
    return f"{Decimal(nanoseconds).scaleb(-6).normalize():f}ms"
