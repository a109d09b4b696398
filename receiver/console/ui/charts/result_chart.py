"""Chart of the result of a SQL statement: lines over time, or a bar for each row.

The first column selects the chart: times with columns of numbers are lines, texts with a column of numbers
are bars. Other results have no chart. Negative numbers have none, because both charts begin at zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from receiver.console.api.source import Row, SqlAnswer
from receiver.console.queries.raw_sql.statement import Column
from receiver.console.ui.charts.over_time import HUES, NUMBER
from receiver.console.ui.charts.svg import Axes, Series, Tick, line_chart
from receiver.console.ui.numbers import parsed

LINES_MAX: Final = 6
BARS_MAX = 40
_WRAPPED: Final = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")
_NUMBER: Final = re.compile(r"(?:U?Int|Float)\d+|Decimal.*|BFloat16")
_TIME: Final = re.compile(r"Date(?:32)?|DateTime(?:64)?(?:\(.*\))?")


_TEXT: Final = re.compile(r"String|FixedString\(.*\)|Enum.*")


class Bar(NamedTuple):
    """A row as a bar."""

    name: str
    value: float
    share: float
    """Share of the largest value."""


class ResultChart(NamedTuple):
    """A chart, as lines or as bars."""

    lines: Markup | None
    legend: Sequence[tuple[str, str]]
    """Name and class of each line."""
    bars: Sequence[Bar]
    left_out: int
    """Number of lines or bars that are not drawn."""


def plain_type(kind: str) -> str:
    """Return a type without `Nullable` and `LowCardinality`."""
    while match := _WRAPPED.fullmatch(kind):
        kind = match[1]
    return kind


def is_number(column: Column) -> bool:
    """Return whether the column has numbers."""
    return _NUMBER.fullmatch(plain_type(column.type)) is not None


def is_time(column: Column) -> bool:
    """Return whether the column has dates or times."""
    return _TIME.fullmatch(plain_type(column.type)) is not None


def result_chart(answer: SqlAnswer) -> ResultChart | None:
    """Return the chart of a result; `None` if it has none."""
    if not answer.columns or not answer.rows:
        return None
    first, *numbers = answer.columns
    if not numbers or not all(map(is_number, numbers)):
        return None
    if any((row[column.name] or 0) < 0 for row in answer.rows for column in numbers):
        return None
    if is_time(first):
        return _lines(answer.rows, first, numbers)
    if _TEXT.fullmatch(plain_type(first.type)) and len(numbers) == 1:
        return _bars(answer.rows, first, numbers[0])
    return None


def _lines(rows: Sequence[Row], first: Column, numbers: Sequence[Column]) -> ResultChart | None:
    dated = sorted(
        ((parsed(row[first.name]), row) for row in rows if row[first.name] is not None),
        key=lambda pair: pair[0],
    )
    if not dated:
        return None
    begin, end = dated[0][0], dated[-1][0]
    positions = _positions([at for at, _ in dated])
    series = [
        Series(column.name, [row[column.name] for _, row in dated], f"hue{hue}", positions)
        for hue, column in zip(HUES[:LINES_MAX], numbers, strict=False)
    ]
    title = f"{', '.join(line.name for line in series)} by {first.name}"
    ticks = [Tick(0, f"{begin:%Y-%m-%d %H:%M:%S}"), Tick(len(dated), f"{end:%Y-%m-%d %H:%M:%S}")]
    chart = line_chart(title, series, Axes(ticks, NUMBER))
    return ResultChart(chart, [(line.name, line.kind) for line in series], (), len(numbers) - len(series))


def _positions(times: Sequence[datetime]) -> list[float]:
    """Return the positions of times, from 0 to their number minus one."""
    length_s = (times[-1] - times[0]).total_seconds()
    return [(at - times[0]).total_seconds() / (length_s or 1) * (len(times) - 1) for at in times]


def _bars(rows: Sequence[Row], first: Column, number: Column) -> ResultChart | None:
    pairs: list[tuple[Any, float]] = [
        (row[first.name], row[number.name]) for row in rows if row[number.name] is not None
    ]
    largest = max((value for _, value in pairs), default=0) or 1
    bars = [
        Bar("NULL" if name is None else str(name), value, value / largest) for name, value in pairs[:BARS_MAX]
    ]
    return ResultChart(None, (), bars, len(pairs) - len(bars)) if bars else None
