"""Selection: the spans that a query reads, as a condition in SQL and its parameters.

Invariant: every filter passes here, so that its regular expressions are checked and its time range is
compared alike. The projects of a caller are not part of it: the store adds them to each read, see `projects`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from receiver.console.queries.filters.filter import And, Filter, TraceFilter, spansets
from receiver.console.queries.filters.filter_sql import check_regexes, compiled
from receiver.console.queries.filters.trace_sql import TraceCondition, compiled_traces
from receiver.engine.sql_text import Sql, compose, joined
from receiver.engine.store import Store
from receiver.time_range import TimeRange


class Filtered(Protocol):
    """A query with a filter and a time range."""

    @property
    def filter(self) -> Filter:
        """Condition on spans."""

    @property
    def range(self) -> TimeRange:
        """When the spans started."""


class Selection(NamedTuple):
    """A filter in SQL, and the parameters of the filter and of the time range."""

    condition: Sql
    parameters: dict[str, str | int]

    def where(self, *conditions: Sql) -> Sql:
        """Return the condition for the spans in the time range that match these conditions and the filter."""
        # The filter is last, because it may cost the most.
        ordered = (compose("{in_range}"), *conditions, compose("({filter})", filter=self.condition))
        return joined("\n  AND ", ordered)


def selection(store: Store, asked: Filtered, now_s: float, prefix: str = "filter") -> Selection:
    """Return the spans of a query. `prefix`: see `compiled`. Raises `InvalidFilter`."""
    found = matching_any_time(store, asked.filter, prefix)
    return found._replace(parameters={**found.parameters, **asked.range.parameters(now_s)})


def matching_any_time(store: Store, tree: Filter, prefix: str = "filter") -> Selection:
    """Return the spans that match a filter, without a time range. Raises `InvalidFilter`."""
    check_regexes(store, tree)
    condition = compiled(store, tree, prefix)
    return Selection(Sql(condition.sql), {**condition.parameters})


def trace_selection(store: Store, tree: TraceFilter, time_range: TimeRange, now_s: float) -> TraceCondition:
    """Return the condition on traces, with the parameters of the time range. Raises `InvalidFilter`."""
    # All together: the limit of their size is of the whole filter.
    check_regexes(store, And(tuple(spanset.part for spanset in spansets(tree))))
    condition = compiled_traces(store, tree)
    return condition._replace(parameters={**condition.parameters, **time_range.parameters(now_s)})
