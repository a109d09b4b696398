"""Export: every stored column of all spans that match a filter, oldest first, without a limit on rows.

The time range is read in slices of limited size, a statement each, so that neither the memory nor the time
of a statement depends on the length of the range. Parquet is the exception: a file is the answer to a single
statement.

Invariant: spans are in the order of their start. The beginning of an export is therefore complete up to the
    start of its last span, and a later export can continue there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

import orjson

from receiver.console.queries.csv_text import csv_head, csv_line
from receiver.console.queries.filters.filter import And, Filter
from receiver.console.queries.filters.filter_forms import parse_span_filter
from receiver.console.queries.limits import within_time
from receiver.console.queries.question import reject_unknown_parameters
from receiver.console.queries.selection import selection
from receiver.console.queries.traces.otlp import OtlpFormat, encoded
from receiver.console.queries.traces.trace_model import Row
from receiver.console.queries.traces.traces import group_of
from receiver.engine.sql_text import compose
from receiver.engine.store import TABLE, Store
from receiver.errors import MalformedBody
from receiver.time_range import SINCE_DEFAULT, TimeRange, parse_range

SLICE_ROWS_MAX = 100_000
"""Rows of the time range, matching or not, that a statement reads and sorts."""
OTLP_LINE_SPANS = 1_000
"""Spans of a line of OTLP JSON, at most."""
PARQUET_GROUP_ROWS = 50_000
"""Rows of a row group, which the engine holds in memory."""
BUCKET_NS = 300 * 10**9
"""Five minutes, as in the table's sort key."""

_ROWS_BY_TIME = compose(
    """
SELECT intDiv(toUnixTimestamp64Nano(Timestamp), {bucket_ns}) AS bucket, count()
FROM {table}
WHERE {in_range}
GROUP BY bucket
ORDER BY bucket
{settings}
""",
    bucket_ns=BUCKET_NS,
)
_COLUMNS = compose("""
SELECT name
FROM system.columns
WHERE database = currentDatabase() AND table = {table:String} AND default_kind IN ('', 'DEFAULT')
ORDER BY position
{settings}
""")
_MATCHING = """
SELECT *
FROM {table}
WHERE {where}
{rest}
"""
_IN_ORDER = compose("""ORDER BY Timestamp, TraceId, SpanId
{settings}""")
_IN_GROUPS = compose(
    "{settings}, output_format_parquet_row_group_size = {parquet_group_rows}",
    parquet_group_rows=PARQUET_GROUP_ROWS,
)


class ExportFormat(StrEnum):
    """Encoding of an export."""

    JSONL = "jsonl"
    CSV = "csv"
    OTLP = "otlp"
    PARQUET = "parquet"


FORMATS: Final = tuple(ExportFormat)
CONTENT_TYPES: Final[Mapping[ExportFormat, str]] = {
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.OTLP: "application/x-ndjson",
    ExportFormat.CSV: "text/csv",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


class ExportQuery(NamedTuple):
    """Filter, time range and format of an export."""

    filter: Filter = And(())
    range: TimeRange = TimeRange()
    form: ExportFormat = ExportFormat.JSONL


class TimeSlice(NamedTuple):
    """Part of the time range; its end is exclusive."""

    from_ns: int
    to_ns: int


def parse_export(query: Mapping[str, str]) -> ExportQuery:
    """Check the parameters of an export. Raises `MalformedBody` or `InvalidFilter`."""
    reject_unknown_parameters(query, ("filter", "since", "until", "format"))
    form = query.get("format", ExportFormat.JSONL)
    if form not in FORMATS:
        raise MalformedBody(f"format: expected one of {', '.join(FORMATS)}", field="format")
    return ExportQuery(
        parse_span_filter(query.get("filter", "")),
        parse_range(query.get("since", SINCE_DEFAULT), query.get("until", "")),
        ExportFormat(form),
    )


def export(store: Store, wanted: ExportQuery, now_s: float) -> Iterator[bytes]:
    """Yield the export in its format."""
    if wanted.form == ExportFormat.PARQUET:
        yield from parquet(store, wanted, now_s)
        return
    is_first = True
    for lines in slices(store, wanted, now_s):
        for piece in lines:
            if wanted.form == ExportFormat.JSONL:
                yield piece
            else:
                yield formatted(map(orjson.loads, piece.splitlines()), wanted.form, has_head=is_first)
            is_first = False
    if is_first and wanted.form == ExportFormat.CSV:
        # A reader of CSV fails at an empty file.
        yield f"{csv_head(name for (name,) in store.rows(_COLUMNS, {'table': TABLE}))}\n".encode()


def slices(store: Store, wanted: ExportQuery, now_s: float) -> Iterator[Iterator[bytes]]:
    """Yield the lines of each time slice, one JSON object a span. Each slice must be read before the next."""
    selected = selection(store, wanted, now_s)
    statement = compose(_MATCHING, where=selected.where(), rest=_IN_ORDER)
    whole = TimeSlice(*wanted.range.bounds_ns(now_s))
    counts = store.rows(_ROWS_BY_TIME, whole._asdict())
    # A slice's statement starts only when the slice before was read, so there is one at a time.
    for part in time_slices(counts, whole):
        yield within_time(store.lines(statement, {**selected.parameters, **part._asdict()}))


def parquet(store: Store, wanted: ExportQuery, now_s: float) -> Iterator[bytes]:
    """Yield the export as a Parquet file. Raises if a single statement cannot answer within the limits."""
    selected = selection(store, wanted, now_s)
    statement = compose(_MATCHING, where=selected.where(), rest=_IN_GROUPS)
    yield from within_time(store.parquet(statement, selected.parameters))


def time_slices(
    counts: Iterable[tuple[int, int]], whole: TimeSlice, rows_max: int = SLICE_ROWS_MAX
) -> Iterator[TimeSlice]:
    """Cut a time range into slices of at most `rows_max` rows, if rows are spread evenly.

    `counts`: row counts of five minutes each, in order.
    """
    begin_ns, rows = whole.from_ns, 0
    for bucket, count in counts:
        # The first and the last five minutes may lie only partly in the range.
        first_ns = max(bucket * BUCKET_NS, whole.from_ns)
        end_ns = min((bucket + 1) * BUCKET_NS, whole.to_ns)
        if rows and rows + count > rows_max:
            yield TimeSlice(begin_ns, first_ns)
            begin_ns, rows = first_ns, 0
        rows += count
        # Five busy minutes are cut by time, because the counts say nothing about the rows within them.
        if rows > rows_max:
            parts = -(-rows // rows_max)
            for place in range(1, parts + 1):
                edge_ns = first_ns + (end_ns - first_ns) * place // parts
                yield TimeSlice(begin_ns, edge_ns)
                begin_ns = edge_ns
            rows = 0
    # Up to the end in any case: rows may have arrived there since the count.
    yield TimeSlice(begin_ns, whole.to_ns)


def formatted(rows: Iterable[Row], form: ExportFormat, *, has_head: bool) -> bytes:
    """Return the spans in a format of lines. `has_head`: CSV begins with the line of names."""
    if form == ExportFormat.OTLP:
        return b"".join(_otlp_lines(rows))
    if form == ExportFormat.JSONL:
        return b"".join(orjson.dumps(row) + b"\n" for row in rows)
    return "".join(_csv_lines(rows, has_head=has_head)).encode()


def _csv_lines(rows: Iterable[Row], *, has_head: bool) -> Iterator[str]:
    for place, row in enumerate(rows):
        if has_head and not place:
            yield f"{csv_head(row)}\n"
        yield f"{csv_line(row.values())}\n"


def _otlp_lines(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield lines of one `TracesData` each, as the OpenTelemetry Collector's file exporter writes them."""
    spans = iter(rows)
    while part := list(islice(spans, OTLP_LINE_SPANS)):
        # Sorted, so that spans of a resource are adjacent and name it once.
        yield b"".join(encoded(sorted(part, key=group_of), OtlpFormat.JSON))
