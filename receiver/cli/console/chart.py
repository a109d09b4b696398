"""`trace-drain chart`: a measure of groups of spans, as a table of totals or with a sparkline over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from receiver.cli.console.charts import epoch_s, parts, sparkline, starts_of, time_axis
from receiver.cli.console.questions import command_of, run_question
from receiver.cli.shell.api_client import Row
from receiver.cli.shell.table import lines_of, ms_text
from receiver.time_range import parse_seconds

_CHART_CHARS = 24
_DURATIONS: Final = ("p50", "p95", "p99", "max")
_REST: Final = "(the rest)"


def _run(**options: str | None) -> None:
    every_s = parse_seconds(options["every"] or "")
    keys = [key.strip() for key in (options["by"] or "").split(",")]
    run_question(
        "chart", options, partial(_table, every_s=every_s, keys=keys, measure=options["measure"] or "spans")
    )


def _table(rows: Iterable[Row], every_s: int | None, keys: Sequence[str], measure: str) -> Iterator[str]:
    listed = list(rows)
    totals = [row for row in listed if row["start"] is None]
    intervals = [row for row in listed if row["start"] is not None]
    starts = starts_of(intervals, every_s) if intervals and every_s else range(0)
    columns = [starts[part] for part in parts(len(starts), _CHART_CHARS)]
    values: dict[tuple[str, ...], dict[int, float]] = {}
    for row in intervals:
        values.setdefault(_group(row), {})[epoch_s(row["start"])] = row["value"] or 0.0
    cells = []
    for row in totals:
        by_start = values.get(_group(row), {})
        chart = sparkline(
            [max((by_start.get(start, 0.0) for start in column), default=0.0) for column in columns]
        )
        name = [_REST, *("" for _ in keys[1:])] if row["is_rest"] else _group(row)[: len(keys)]
        cells.append((*name, _value(row["value"], measure), str(row["spans"]), *([chart] if columns else [])))
    heads = [key or "group" for key in keys]
    head = (*heads, measure, "spans", *(["over time"] if columns else []))
    yield from (
        lines_of(
            head, cells, numbers=range(len(keys), len(keys) + 2), whole=(len(keys) + 2,), optional=("spans",)
        )
        if cells
        else ()
    )
    if columns:
        yield time_axis(starts, intervals)


def _group(row: Row) -> tuple[str, ...]:
    return row["group"], row.get("second_group", ""), "rest" if row["is_rest"] else ""


def _value(value: float | None, measure: str) -> str:
    if value is None:
        return "-"
    if measure in _DURATIONS:
        return ms_text(value)
    return f"{value:.2%}" if measure == "error_rate" else f"{value:.6g}"


chart: Final = command_of("chart")
chart.callback = _run
