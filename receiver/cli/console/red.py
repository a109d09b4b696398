"""`trace-drain red`: rate, errors and durations of requests, as a table or as sparklines over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from receiver.cli.console.charts import epoch_s, parts, sparkline, starts_of, time_axis
from receiver.cli.console.questions import command_of, run_question
from receiver.cli.shell.api_client import Row
from receiver.cli.shell.table import columns_max, lines_of, ms_text
from receiver.time_range import parse_seconds

_DURATIONS: Final = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
_CHART_CHARS = 30
_OTHER_CHARS = 60
"""Columns of a line besides its two charts, with a group of 12 characters."""


def _run(**options: str | None) -> None:
    run_question("red", options, partial(_table, every_s=parse_seconds(options["every"] or "")))


def _table(rows: Iterable[Row], every_s: int | None) -> Iterator[str]:
    listed = list(rows)
    if not listed:
        return iter(())
    return _totals(listed) if every_s is None else _over_time(listed, every_s)


def _totals(rows: Sequence[Row]) -> Iterator[str]:
    has_estimates = any(row["estimated_spans"] not in (None, row["spans"]) for row in rows)
    cells = [
        (
            row["group"],
            str(row["spans"]),
            *([_estimate(row)] if has_estimates else []),
            f"{row['rate_per_s']:.3g}",
            str(row["errors"]),
            f"{row['error_rate']:.2%}",
            *(ms_text(row[name]) for name in _DURATIONS),
        )
        for row in rows
    ]
    estimated = ["before sampling"] if has_estimates else []
    head = ["group", "spans", *estimated, "per s", "errors", "error rate", "p50", "p95", "p99", "max"]
    optional = ("max", "before sampling", "per s", "p50")
    return lines_of(head, cells, numbers=range(1, len(head)), optional=optional)


def _over_time(rows: Sequence[Row], every_s: int) -> Iterator[str]:
    starts = starts_of(rows, every_s)
    chart_chars = max(1, min(_CHART_CHARS, (columns_max() - _OTHER_CHARS) // 2))
    columns = [starts[part] for part in parts(len(starts), int(chart_chars))]
    groups: dict[str, dict[int, Row]] = {}
    for row in rows:
        groups.setdefault(row["group"], {})[epoch_s(row["start"])] = row
    cells = []
    for group, by_start in groups.items():
        per_column = [[by_start[start] for start in column if start in by_start] for column in columns]
        # Means, because the last column may have fewer intervals.
        rates = [
            sum(row["rate_per_s"] for row in in_column) / len(column)
            for column, in_column in zip(columns, per_column, strict=True)
        ]
        cells.append(
            (
                group,
                str(sum(row["spans"] for row in by_start.values())),
                str(sum(row["errors"] for row in by_start.values())),
                sparkline(rates),
                f"{max(row['rate_per_s'] for row in by_start.values()):.3g}",
                sparkline([max((row["p95_ms"] for row in column), default=0) for column in per_column]),
                ms_text(max(row["p95_ms"] for row in by_start.values())),
            )
        )
    head = ("group", "spans", "errors", "rate", "max per s", "p95", "max p95")
    yield from lines_of(head, cells, numbers=(1, 2, 4, 6), whole=(3, 5))
    yield time_axis(starts, rows)


def _estimate(row: Row) -> str:
    """Return the estimated spans before sampling, with half the 95 % interval if that is not zero."""
    if row["estimated_spans"] is None:
        return "unknown"
    margin = f" ± {row['estimated_spans_margin']:.0f}" if row["estimated_spans_margin"] else ""
    return f"{row['estimated_spans']:.0f}{margin}"


red: Final = command_of("red")
red.callback = _run
