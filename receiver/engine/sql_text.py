"""Text of SQL statements, composed of text of our own, and their limits. Values travel as parameters.

    {name:Type}   parameter: stays in the text, and the engine binds its value
    {name}        piece: `compose` puts text of our own, or a number, in its place

Invariant: text from outside never becomes `Sql`. Templates are literals, mypy refuses a piece that is a
`str`, and tests/tidy/test_sql_text.py lists the modules that may declare other text to be `Sql`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NewType

Parameters = Mapping[str, str | int | Sequence[int] | Sequence[str]]
"""Query parameters, bound by the engine as `{name:Type}` and never put into the text of a statement."""
TABLE: Final = "otel_traces"
COMPANION: Final = "otel_traces_trace_id_ts"
DEPLOYMENT_EVENTS: Final = "otel_deployment_events"
ROW_CHECKSUM: Final = "sum(cityHash64(SegmentEpoch, SegmentSeq, Timestamp, TraceId, SpanId))"
"""Checksum of a set of rows, independent of their order: a UInt64 that wraps around."""
ALL_ROWS: Final = "additional_table_filters = {}"
"""Setting of a statement that reads every row in spite of the filters of `Store.marked`.

For proofs and checks whose answers contain no value of a row.
"""
SECONDS_MAX = 60
"""Time limit in the engine."""
MEMORY_BYTES_MAX = 2 << 30
"""Memory limit in the engine."""
ROWS_READ_MAX = 2_000_000_000
"""Maximum number of rows that a statement reads."""
BYTES_READ_MAX = 1 << 40
"""Maximum number of uncompressed bytes that a statement reads."""

SETTINGS = (
    "SETTINGS session_timezone = 'UTC', output_format_json_quote_64bit_integers = 0, "
    "output_format_json_escape_forward_slashes = 0, "
    f"max_execution_time = {SECONDS_MAX}, timeout_before_checking_execution_speed = 0, "
    f"max_memory_usage = {MEMORY_BYTES_MAX}, max_rows_to_read = {ROWS_READ_MAX}, "
    f"max_bytes_to_read = {BYTES_READ_MAX}"
)
"""Times are UTC. 64-bit integers are JSON numbers; readers that parse them as doubles lose precision."""

SHORT_SETTINGS = f"{SETTINGS}, optimize_use_implicit_projections = 0"
"""For statements with aggregates that read little: the engine does not plan an answer from the parts' sizes,
which takes 0.7 ms of CPU."""

BLOCK_BYTES = 16 << 20
AGGREGATION_SETTINGS = f"{SETTINGS}, preferred_block_size_bytes = {BLOCK_BYTES}"
"""Settings of statements that reduce many spans with maps or regular expressions to few lines.

The engine's default of 1 MB makes blocks of few spans, and compiles each regular expression for each block.
"""

Sql = NewType("Sql", str)
"""A statement or a part of one."""

_PIECE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_NAME: Final = re.compile(r"[A-Za-z0-9._/-]+")


class Composer:
    """Composes statements of templates and pieces; knows the pieces that many of its templates have."""

    def __init__(self, pieces: Mapping[str, Sql | int]) -> None:
        self._pieces = pieces

    def __call__(self, template: str, /, **pieces: Sql | int) -> Sql:
        """Return the template, a literal, with its pieces."""
        known = {**self._pieces, **pieces}
        return Sql(_PIECE.sub(lambda match: str(known[match[1]]), template))

    def knowing(self, **pieces: Sql | int) -> Composer:
        """Return a composer that knows these pieces, too."""
        return Composer({**self._pieces, **pieces})


def identifier(name: str) -> Sql:
    """Return a name of our own, or the key of a promoted attribute: text that needs no quotes to be safe."""
    if not _NAME.fullmatch(name):
        raise ValueError("expected letters, digits and ._/- in a name that becomes a part of a statement")
    return Sql(name)


def names(columns: Iterable[str]) -> Sql:
    """Return names of columns, separated by commas."""
    return Sql(", ".join(map(identifier, columns)))


def joined(separator: str, parts: Iterable[Sql]) -> Sql:
    """Return the parts with a separator, a literal, between them."""
    return Sql(separator.join(parts))


def started_between(begin: str, end: str, *, is_closed: bool = False) -> Sql:
    """Return the condition for spans that started in a range of time. `begin`, `end`: names of parameters."""
    return Composer({"begin": identifier(begin), "end": identifier(end)})(
        "Timestamp >= fromUnixTimestamp64Nano({{begin}:Int64}) "
        "AND Timestamp {before} fromUnixTimestamp64Nano({{end}:Int64})",
        before=Sql("<=") if is_closed else Sql("<"),
    )


compose: Final = Composer(
    {
        "table": Sql(TABLE),
        "companion": Sql(COMPANION),
        "deployment_events": Sql(DEPLOYMENT_EVENTS),
        "row_checksum": Sql(ROW_CHECKSUM),
        "all_rows": Sql(ALL_ROWS),
        "settings": Sql(SETTINGS),
        "short_settings": Sql(SHORT_SETTINGS),
        "aggregation_settings": Sql(AGGREGATION_SETTINGS),
        "in_range": started_between("from_ns", "to_ns"),
        "in_closed_range": started_between("from_ns", "to_ns", is_closed=True),
    }
)
"""Composer with the tables, the settings of statements, and the time range of a query."""
