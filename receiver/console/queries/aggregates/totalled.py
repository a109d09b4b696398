"""Rollups with total rows as table expressions: their rows where proven, and the spans of the other hours.

An expression has a row for each row of the rollup, and for each span that the rollup does not cover, so
`Spans` has to be added up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from receiver.console.queries.aggregates.proven_hours import ProvenHours, proven_hours
from receiver.console.queries.aggregates.rollup_lines import Reading, columns_of, is_short, lines_of_reading
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.errors import (
    ERROR_COLUMNS,
    ERROR_KEYS,
    IS_ERROR,
    SEEN_KEYS,
    definitions,
    error_of_span,
)
from receiver.console.queries.rollup.proof import Checked
from receiver.console.queries.rollup.ranges import Values, condition
from receiver.console.queries.rollup.tables import ERRORS, SEEN
from receiver.engine.sql_text import Sql, compose, identifier, joined, names
from receiver.engine.store import Store


class Totalled(NamedTuple):
    """A rollup with total rows."""

    table: Sql
    columns: Sql
    of_span: Sql
    """What a span has for the columns."""
    keys: Collection[str]
    """Columns by which a filter can select."""
    is_counted: Sql = Sql("1")
    """Condition of the spans that have a row."""


def errors_of(store: Store) -> Totalled:
    """Return the spans with an error. The statement needs `TEMPLATE_PARAMETERS`."""
    return Totalled(ERRORS, ERROR_COLUMNS, error_of_span(store), ERROR_KEYS, IS_ERROR)


_SEEN_OF_SPAN = "{keys}, Timestamp AS First, Timestamp AS Last, toUInt64(StatusCode = 'Error') AS Errors"
DEPLOYMENTS_SEEN = Totalled(
    SEEN,
    compose("{keys}, First, Last, Errors", keys=names(SEEN_KEYS)),
    compose(_SEEN_OF_SPAN, keys=names(SEEN_KEYS)),
    SEEN_KEYS,
)
"""First and last start of the spans of each deployment."""


def source(rollup: Totalled, hours: ProvenHours, where: Sql, values: Values) -> Sql:
    """Return the table expression of the rows that match a condition, and add its parameters."""
    name = rollup.table
    selects = []
    if hours.slots:
        template = "SELECT {columns}, Spans FROM {name} WHERE {rows} AND Source != '' AND ({where})"
        rows = hours.of_rollup(name, values)
        selects.append(compose(template, columns=rollup.columns, name=name, rows=rows, where=where))
    ranges = hours.of_spans()
    if ranges or not selects:
        of_spans = compose(
            "SELECT {of_span}, toUInt64(1) AS Spans "
            "FROM {table} WHERE {ranges} AND {is_counted} AND ({where})",
            of_span=rollup.of_span,
            ranges=condition(ranges, values, f"{identifier(name)}_spans"),
            is_counted=rollup.is_counted,
            where=where,
        )
        selects.append(of_spans)
    return compose("({selects})", selects=joined(" UNION ALL ", selects))


def totalled_lines(
    store: Store,
    asked: Asked[Any],
    now_s: float,
    rollups: Sequence[Totalled],
    statement: Callable[[ProvenHours], tuple[Sql, Values]],
) -> Iterator[bytes]:
    """Run a statement over these rollups where all of them are proven, and over the spans elsewhere.

    The filter selects rows of the first.
    """
    tables = [rollup.table for rollup in rollups]
    bounds_ns = asked.range.bounds_ns(now_s)

    def reading() -> Reading | None:
        if is_short(asked.range, now_s) or not columns_of(asked.filter) <= {*rollups[0].keys}:
            return None
        defined = definitions(store)
        checked = Checked(totals={table: defined[table] for table in tables})
        hours = found = proven_hours(store, checked, *bounds_ns)
        for table in tables:
            hours = hours.complete(table)
        return Reading(*statement(hours), found.are_unchanged) if hours.slots else None

    return lines_of_reading(store, reading, lambda: statement(ProvenHours(*bounds_ns, Checked())))
