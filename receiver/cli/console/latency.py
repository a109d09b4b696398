"""`trace-drain latency`: numbers of requests by time and duration, as a heatmap."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from receiver.cli.console.charts import epoch_s, parts, shade, starts_of, time_axis
from receiver.cli.console.questions import command_of, filter_errors_shown, run_question
from receiver.cli.shell.api_client import Row
from receiver.console.queries.aggregates.latency import BOUNDS_NS
from receiver.console.queries.aggregates.time_buckets import automatic_every_s
from receiver.sizes import duration_text
from receiver.time_range import SINCE_DEFAULT, parse_range, parse_seconds

_CHART_CHARS = 60
_CHART_LINES = 32


def _run(**options: str | None) -> None:
    with filter_errors_shown(options["filter"] or ""):
        # Chosen here, because the chart has to know it, and an interval without spans has no line.
        time_range = parse_range(options["since"] or SINCE_DEFAULT, options["until"] or "")
        every_s = parse_seconds(options["every"] or "") or automatic_every_s(time_range, time.time())
    parameters = {**options, "every": options["every"] or f"{every_s}s"}
    run_question("latency", parameters, partial(_heatmap, every_s=every_s))


def _heatmap(rows: Iterable[Row], every_s: int) -> Iterator[str]:
    """Print a line for each range of durations, the longest first, and a column for each time interval."""
    listed = list(rows)
    if not listed:
        return
    starts = starts_of(listed, every_s)
    column_of = {
        start: column
        for column, part in enumerate(parts(len(starts), _CHART_CHARS))
        for start in starts[part]
    }
    buckets = [_bucket(row["from_ms"]) for row in listed]
    bounds = range(min(buckets), max(buckets) + 1)
    lines = [bounds[part] for part in parts(len(bounds), _CHART_LINES)]
    line_of = {bucket: number for number, line in enumerate(lines) for bucket in line}
    counts: Counter[tuple[int, int]] = Counter()
    totals: Counter[int] = Counter()
    for row, bucket in zip(listed, buckets, strict=True):
        counts[line_of[bucket], column_of[epoch_s(row["start"])]] += row["spans"]
        totals[line_of[bucket]] += row["spans"]
    largest = max(counts.values())
    width = 1 + max(column_of.values())
    total_chars = len(str(max(totals.values())))
    for number, line in reversed(list(enumerate(lines))):
        cells = "".join(shade(counts[number, column], largest) for column in range(width))
        yield f"{duration_text(BOUNDS_NS[line[0]]):>8}  |{cells}|  {totals[number]:>{total_chars}}"
    yield time_axis(starts, listed)
    yield f"each line counts spans from its duration up to that of the line above; darkest: {largest} spans"


def _bucket(from_ms: float) -> int:
    """Return the index of a duration bucket; its lower bound in milliseconds may have been rounded."""
    return bisect_left(BOUNDS_NS, from_ms * 1e6 * (1 - 1e-9))


latency: Final = command_of("latency")
latency.callback = _run
