"""Lines of an answer from a rollup, or from the spans alone where it does not help or changes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from receiver.console.queries.aggregates.red_source import Wanted, red_source
from receiver.console.queries.filters.close_keys import close_group_keys
from receiver.console.queries.filters.filter import Comparison, Exists, Filter, Intrinsic, terms
from receiver.console.queries.group_key import FIELDS, GroupKey
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.tables import DEPLOYMENTS, HOUR_S, HOURS_OF_DAY, IS_REQUEST, OPERATIONS
from receiver.console.queries.selection import Selection
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.time_range import TimeRange

SOURCE: Final = Sql("{rollup}")
"""Stands for the table expression in a statement over a rollup."""
RANGE_S_MIN = 3 * 3_600
"""Longest range that reads only spans: the proof costs more than a rollup of few hours saves."""
ATTEMPTS_MAX = 2
"""How many times a rollup is read if it changes meanwhile."""


class Statement(NamedTuple):
    """A statement over the spans, and one over a rollup with the same lines."""

    of_spans: Sql
    of_rows: Sql
    """Has `SOURCE` in place of the table."""
    parameters: Mapping[str, str | int]


def is_short(time_range: TimeRange, now_s: float) -> bool:
    """Return whether a range reads only spans."""
    begin_s, end_s = time_range.past_s(now_s)
    return end_s - begin_s <= RANGE_S_MIN


class Reading(NamedTuple):
    """A statement over a rollup and the spans that it does not cover."""

    sql: str
    parameters: Parameters
    is_unchanged: Callable[[Store], bool]
    """Returns whether the rollup still has the rows that were proven. Called after the last line."""


def wanted_in(time_range: TimeRange, now_s: float, wanted: Wanted) -> Wanted | None:
    """Return what to read of a rollup in this range; `None` if the range is short."""
    if is_short(time_range, now_s):
        return None
    from_ns, to_ns = time_range.bounds_ns(now_s)
    return wanted._replace(from_ns=from_ns, to_ns=to_ns)


def rollup_of(  # noqa: PLR0913, PLR0917 - what a query groups and selects
    asked: Asked[Any],
    groups: Sequence[GroupKey],
    counted: Sql,
    every_s: int,
    selected: Selection,
    now_s: float,
) -> Wanted | None:
    """Return what to read of a rollup; `None` if no rollup has the groups, the filter and the buckets."""
    columns = {*(group.column for group in groups), *columns_of(asked.filter)}
    of_requests = counted == IS_REQUEST
    if every_s % HOUR_S:
        return None
    if of_requests and columns <= {*DEPLOYMENTS.keys}:
        rollup, condition = DEPLOYMENTS, selected.condition
    elif columns <= {*OPERATIONS.keys}:
        rollup, condition = OPERATIONS, selected.condition
        if of_requests:
            condition = compose("({filter}) AND IsRequest", filter=condition)
    else:
        return None
    by_hour = every_s % (HOURS_OF_DAY * HOUR_S) > 0
    wanted = Wanted(rollup=rollup, condition=condition, parameters=selected.parameters, by_hour=by_hour)
    return wanted_in(asked.range, now_s, wanted)


def columns_of(tree: Filter) -> set[str]:
    """Return the columns that a filter reads; one is empty if it reads others than fields of groups."""
    return {_column_of(term) for term in terms(tree)}


def _column_of(term: Comparison | Exists) -> str:
    """Return the column that a comparison reads; empty if it reads another one than fields of groups."""
    return FIELDS.get(term.field.name, "") if isinstance(term.field, Intrinsic) else ""


def rollup_lines(store: Store, statement: Statement, wanted: Wanted | None) -> Iterator[bytes]:
    """Run the statement over the rollup; over the spans if no slot is proven or no rollup is wanted."""

    def reading() -> Reading | None:
        source = red_source(store, wanted) if wanted is not None else None
        if source is None or not source.slots:
            return None
        sql = statement.of_rows.replace(SOURCE, source.sql)
        return Reading(sql, {**statement.parameters, **source.parameters}, source.is_unchanged)

    return lines_of_reading(store, reading, lambda: (statement.of_spans, statement.parameters))


def lines_of_groups(  # noqa: PLR0913, PLR0917 - as `rollup_of`
    store: Store,
    statement: Statement,
    asked: Asked[Any],
    groups: Sequence[GroupKey],
    wanted: Wanted | None,
    now_s: float,
) -> LimitedLines:
    """Run the statement. Without a line, suggest attributes with keys similar to those of the groups."""
    return LimitedLines(
        within_time(rollup_lines(store, statement, wanted)),
        asked.limit,
        lambda: close_group_keys(store, groups, asked.range, now_s),
    )


def lines_of_reading(
    store: Store, reading: Callable[[], Reading | None], of_spans: Callable[[], tuple[str, Parameters]]
) -> Iterator[bytes]:
    """Run the statement over a rollup; over the spans if there is none, or it keeps changing."""
    lines = None
    try:
        lines = _proven_lines(store, reading)
    # The rollups only save time. Trouble with the spans themselves appears again below.
    except StoreTrouble as trouble:
        limited.warning("rollup", "rollup cannot be read", error=trouble.label)
    yield from store.lines(*of_spans()) if lines is None else lines


def _proven_lines(store: Store, reading: Callable[[], Reading | None]) -> list[bytes] | None:
    """Return the lines of the statement over the rollup; `None` if it cannot be used."""
    for _ in range(ATTEMPTS_MAX):
        found = reading()
        if found is None:
            break
        # Held back until the rollup is checked again: a line that was sent cannot be taken back.
        lines = list(store.lines(found.sql, found.parameters))
        if found.is_unchanged(store):
            return lines
    return None
