"""Errors of whole deployments and of services: changes that single operations have too few spans to show.

The unit is the trace, not the span: an error often fails the spans of its callers, too, so that the spans of
a trace are one observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypedDict

import msgspec

from receiver.console.queries.comparison.deployments import IN_BOTH
from receiver.console.queries.comparison.operation_change import (
    FALSE_ALARM_SHARE,
    SAME,
    SPANS_MIN,
    detectable_error_rate,
    family_p_values,
)
from receiver.console.queries.comparison.statistics import wilson_interval
from receiver.console.queries.comparison.weights import ErrorCounts, Weights, error_z
from receiver.console.queries.selection import Selection
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store

MORE: Final = "more errors"
FEWER: Final = "fewer errors"
TOO_FEW_TRACES: Final = "too few traces"
_ORDER: Final = {MORE: 0, FEWER: 1, SAME: 2, TOO_FEW_TRACES: 3}

_LEVELS = """
SELECT
    is_whole,
    service,
    is_b,
    count() AS traces,
    countIf(is_error) AS errors,
    if(countIf(isNull(weight)) = 0,
        [
            sum(ifNull(weight, 0)),
            sumIf(ifNull(weight, 0), is_error),
            sum(ifNull(weight * weight, 0)),
            sumIf(ifNull(weight * weight, 0), is_error)
        ], []) AS weights
FROM
(
    SELECT
        grouping(ServiceName) AS is_whole,
        ServiceName AS service,
        DeploymentId = {b:String} AS is_b,
        max(StatusCode = 'Error') AS is_error,
        -- a sender keeps or drops the spans of a trace together, with one weight
        if(countIf(isNull(SampleWeight)) = 0, max(SampleWeight), NULL) AS weight
    FROM {table}
    WHERE {where}
    GROUP BY GROUPING SETS ((TraceId, DeploymentId, ServiceName), (TraceId, DeploymentId))
)
GROUP BY is_whole, service, is_b
{aggregation_settings}
"""
_IN_WINDOW = Sql(
    "Timestamp < fromUnixTimestamp64Nano(if(DeploymentId = {b:String}, {b_end_ns:Int64}, {a_end_ns:Int64}))"
)


class TraceErrors(TypedDict):
    """The traces of a deployment in its window."""

    traces: int
    errors: int
    """Traces with a failed span."""
    error_rate: float
    error_rate_low: float
    error_rate_high: float


class ErrorChange(TypedDict):
    """Change of the share of traces with an error."""

    service: str | None
    """Null: the whole deployments. Otherwise only spans of the service count."""
    change: str
    p_value: float | None
    detectable_error_rate: float | None
    """Share in B that would have been reported in 95 % of cases; null: none, with so few traces."""
    a: TraceErrors
    b: TraceErrors


class ErrorLevels(NamedTuple):
    """The levels above the operations."""

    whole: ErrorChange
    services: list[ErrorChange]
    """Services of both deployments, the strongest evidence first."""


Sides = tuple[ErrorCounts, ErrorCounts]


def error_levels(store: Store, selected: Selection) -> ErrorLevels:
    """Return the changes of errors of the deployments and of each service."""
    statement = compose(_LEVELS, where=selected.where(_IN_WINDOW, IN_BOTH))
    counts: dict[tuple[str | None, bool], ErrorCounts] = {}
    for line in b"".join(store.lines(statement, selected.parameters)).splitlines():
        row = msgspec.json.decode(line)
        weights = Weights(*row["weights"]) if row["weights"] else None
        key = (None if row["is_whole"] else row["service"], bool(row["is_b"]))
        counts[key] = ErrorCounts(row["traces"], row["errors"], weights)
    sides = {name: (counts.get((name, False)), counts.get((name, True))) for name, _ in counts}
    # Services of both only: the comparison lists the operations of others as vanished or new.
    both = {name: (a, b) for name, (a, b) in sides.items() if a and b}
    whole = both.pop(None, (ErrorCounts(), ErrorCounts()))
    return ErrorLevels(error_changes({None: whole})[0], error_changes(both))


def error_changes(sides: Mapping[str | None, Sides]) -> list[ErrorChange]:
    """Return the changes of a family of tests, the worse ones first, then by evidence."""
    judged = {name: (a, b) for name, (a, b) in sides.items() if min(a.total, b.total) >= SPANS_MIN}
    scores = {name: error_z(a, b) for name, (a, b) in judged.items()}
    p_values = dict(zip(scores, family_p_values(scores.values()), strict=True))
    rows = [
        _row(name, pair, scores.get(name), p_values.get(name), len(judged)) for name, pair in sides.items()
    ]
    return sorted(
        rows,
        key=lambda row: (_ORDER[row["change"]], -abs(scores.get(row["service"], 0.0)), row["service"] or ""),
    )


def _row(name: str | None, sides: Sides, z: float | None, p_value: float | None, tests: int) -> ErrorChange:
    a, b = sides
    if z is None or p_value is None:
        change = TOO_FEW_TRACES
    elif p_value > FALSE_ALARM_SHARE:
        change = SAME
    else:
        change = MORE if z > 0 else FEWER
    return {
        "service": name,
        "change": change,
        "p_value": p_value,
        "detectable_error_rate": None if p_value is None else detectable_error_rate(a, b, tests),
        "a": _side(a),
        "b": _side(b),
    }


def _side(counts: ErrorCounts) -> TraceErrors:
    low, high = wilson_interval(counts.errors, counts.total)
    return {
        "traces": counts.total,
        "errors": counts.errors,
        "error_rate": counts.rate,
        "error_rate_low": low,
        "error_rate_high": high,
    }
