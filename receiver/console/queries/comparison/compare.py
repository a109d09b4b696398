"""Comparison of two deployments, A and B: which operations changed, and how certain that is.

Both are compared in windows of equal length, counted from the first span of each in the time range. The
engine reduces the durations of an operation to percentiles and a histogram; the tests need no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypedDict

import msgspec

from receiver.console.queries.comparison.deployments import IN_BOTH, seen_of
from receiver.console.queries.comparison.error_levels import ErrorChange, error_levels
from receiver.console.queries.comparison.new_errors import NewErrorRow, new_errors
from receiver.console.queries.comparison.operation_change import SPANS_MIN, Samples, changes, relative_changes
from receiver.console.queries.comparison.shifts import ShiftRow, Sides, shift_rows
from receiver.console.queries.comparison.statistics import wilson_interval
from receiver.console.queries.comparison.verdict import Facts, Judged, verdict_of
from receiver.console.queries.comparison.weights import Estimates, Weights, estimates_of
from receiver.console.queries.comparison.windows import Length, Windows, common_length, parse_first, window_of
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.question import Asked
from receiver.console.queries.selection import Selection, selection
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange

OPERATIONS_DEFAULT = 100
OPERATIONS_MAX = 5_000
"""Maximum number of operations that a comparison judges; it fails if there are more."""
SHIFTS_SHOWN = 10
_COMPARED_KEYS = frozenset({"deployment", "status"})
"""Fields of spans that differ by definition, or that the operations show."""

_BUCKET = Sql("bitShiftRight(reinterpretAsUInt64(toFloat64(Duration)), 47)")
"""Exponent and the first 5 bits of the mantissa: durations in a bucket differ by at most 3.1 %."""
_OPERATIONS = """
WITH Timestamp < fromUnixTimestamp64Nano(
    if(DeploymentId = {b:String}, {b_end_ns:Int64}, {a_end_ns:Int64})) AS is_in_window,
    ifNull(SampleWeight, 0) AS weight
SELECT
    ServiceName AS service,
    SpanName AS name,
    SpanKind AS kind,
    DeploymentId = {b:String} AS is_b,
    countIf(is_in_window) AS count,
    countIf(is_in_window AND StatusCode = 'Error') AS errors,
    quantilesExactIf(0.5, 0.95, 0.99)(Duration, is_in_window) AS percentiles_ns,
    sumMapIf(map({bucket}, toUInt64(1)), is_in_window) AS buckets,
    if(countIf(is_in_window AND isNull(SampleWeight)) = 0,
        [
            sumIf(weight, is_in_window),
            sumIf(weight, is_in_window AND StatusCode = 'Error'),
            sumIf(weight * weight, is_in_window),
            sumIf(weight * weight, is_in_window AND StatusCode = 'Error')
        ], []) AS weights
FROM {table}
WHERE {where}
GROUP BY service, name, kind, is_b
LIMIT {limit:UInt64}
{settings}
"""
_IN_WINDOW = """
DeploymentId = {{side}:String} AND Timestamp < fromUnixTimestamp64Nano({{side}_end_ns:Int64}) AND ({filter})
"""


class Side(Estimates):
    """Counts and durations of an operation in the window of a deployment."""

    count: int
    errors: int
    error_rate: float
    error_rate_low: float
    error_rate_high: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class OperationChange(TypedDict):
    """An operation of both deployments."""

    service: str
    name: str
    kind: str
    change: str
    p_value: float | None
    detectable_error_rate: float | None
    """Error rate of B that would have been reported in 95 % of cases; null: none, with so few spans."""
    a: Side
    b: Side
    p50_change: float | None
    p95_change: float | None
    p99_change: float | None


class OneSided(TypedDict):
    """An operation that only one deployment has."""

    service: str
    name: str
    kind: str
    count: int


class Totals(TypedDict):
    """Length of each list before the limit is applied."""

    services: int
    operations: int
    new_errors: int
    vanished: int
    appeared: int


class DeploymentComparison(TypedDict):
    """Two deployments compared."""

    a: str
    b: str
    verdict: str
    windows: Windows
    whole: ErrorChange
    services: list[ErrorChange]
    operations: list[OperationChange]
    new_errors: list[NewErrorRow]
    vanished: list[OneSided]
    appeared: list[OneSided]
    shifts: list[ShiftRow]
    """Attribute shifts with B as the selection and A as the rest."""
    totals: Totals


class _Pair(NamedTuple):
    """The same operation in both deployments."""

    a: Samples = Samples()
    b: Samples = Samples()
    a_in_range: bool = False
    """Whether A has it in the time range, perhaps after its window."""
    b_in_range: bool = False


def compare(store: Store, asked: Asked[CompareParameters], now_s: float) -> LimitedLines:
    """Return one JSON object: the comparison of two deployments."""
    return LimitedLines(within_time(_line(store, asked, now_s)), 1)


class CompareParameters(NamedTuple):
    """Parameters of this question."""

    a: str
    b: str
    first: Length | None
    """Length of the windows; `None`: the length of the shorter deployment."""


def parse_own(query: Mapping[str, str], _: TimeRange) -> CompareParameters:
    """Parse the parameters of this question."""
    if query["a"] == query["b"]:
        raise MalformedBody("b: expected another deployment than a", field="b")
    return CompareParameters(query["a"], query["b"], parse_first(query))


def _line(store: Store, asked: Asked[CompareParameters], now_s: float) -> Iterator[bytes]:
    yield msgspec.json.encode(_comparison(store, asked, now_s)) + b"\n"


def _comparison(store: Store, asked: Asked[CompareParameters], now_s: float) -> DeploymentComparison:
    a, b, chosen = asked.own
    selected = selection(store, asked, now_s)
    seen_a, seen_b = seen_of(store, a, b, selected)
    length = chosen or common_length(seen_a, seen_b)
    ends = {"a_end_ns": seen_a.first_ns + length.ns, "b_end_ns": seen_b.first_ns + length.ns}
    compared = selected._replace(parameters={**selected.parameters, **ends, "a": a, "b": b})
    pairs = _pairs(store, compared)
    judged = _judged(pairs)
    levels = error_levels(store, compared)
    errors = new_errors(store, compared)
    vanished = _one_sided({key: pair.a.spans for key, pair in pairs.items() if not pair.b_in_range})
    appeared = _one_sided({key: pair.b.spans for key, pair in pairs.items() if not pair.a_in_range})
    read_to_ns = min(round(now_s * 10**9), asked.range.bounds_ns(now_s)[1])
    facts = Facts(a, b, levels, judged, errors.total, _frequent(vanished), _frequent(appeared))
    return {
        "a": a,
        "b": b,
        "verdict": verdict_of(facts),
        "windows": {
            "a": window_of(seen_a, length, read_to_ns, [pair.a for pair in pairs.values()]),
            "b": window_of(seen_b, length, read_to_ns, [pair.b for pair in pairs.values()]),
        },
        "whole": levels.whole,
        "services": levels.services[: asked.limit],
        "operations": [_row(operation) for operation in judged[: asked.limit]],
        "new_errors": errors.rows,
        "vanished": vanished[: asked.limit],
        "appeared": appeared[: asked.limit],
        "shifts": _shifts(store, compared, pairs),
        "totals": {
            "services": len(levels.services),
            "operations": len(judged),
            "new_errors": errors.total,
            "vanished": len(vanished),
            "appeared": len(appeared),
        },
    }


def _pairs(store: Store, selected: Selection) -> dict[tuple[str, str, str], _Pair]:
    """Return the operations (service, name, kind) of both deployments."""
    statement = compose(_OPERATIONS, bucket=_BUCKET, where=selected.where(IN_BOTH))
    # An operation has a line for each side.
    lines = store.lines(statement, {**selected.parameters, "limit": 2 * OPERATIONS_MAX + 1})
    pairs: dict[tuple[str, str, str], _Pair] = defaultdict(_Pair)
    for line in b"".join(lines).splitlines():
        row = msgspec.json.decode(line)
        key = (row["service"], row["name"], row["kind"])
        if row["is_b"]:
            pairs[key] = pairs[key]._replace(b=_samples(row), b_in_range=True)
        else:
            pairs[key] = pairs[key]._replace(a=_samples(row), a_in_range=True)
    # An error, not a part of the operations: the verdict and the adjustment need all of them.
    if len(pairs) > OPERATIONS_MAX:
        raise MalformedBody(
            f"the deployments have over {OPERATIONS_MAX} operations; narrow the comparison by filter, "
            "such as service=web",
            field="filter",
        )
    return pairs


def _samples(row: dict[str, Any]) -> Samples:
    p50_ns, p95_ns, p99_ns = row["percentiles_ns"]
    return Samples(
        row["count"],
        row["errors"],
        (p50_ns / 1e6, p95_ns / 1e6, p99_ns / 1e6),
        {int(bucket): count for bucket, count in row["buckets"].items()},
        Weights(*row["weights"]) if row["weights"] else None,
    )


def _judged(pairs: dict[tuple[str, str, str], _Pair]) -> list[Judged]:
    """Return the operations of both deployments with their change, the worst first."""
    common = {
        key: pair
        for key, pair in pairs.items()
        # An operation that occurs outside of both windows only has nothing to compare.
        if pair.a_in_range and pair.b_in_range and pair.a.spans + pair.b.spans
    }
    found = changes([(pair.a, pair.b) for pair in common.values()])
    judged = [
        Judged(*key, pair.a, pair.b, change)
        for (key, pair), change in zip(common.items(), found, strict=True)
    ]
    return sorted(judged, key=lambda item: (item.change.order, -item.b.spans, item[:3]))


def _row(judged: Judged) -> OperationChange:
    p50_change, p95_change, p99_change = relative_changes(judged.a, judged.b)
    return {
        "service": judged.service,
        "name": judged.name,
        "kind": judged.kind,
        "change": ", ".join(judged.change.words),
        "p_value": judged.change.p_value,
        "detectable_error_rate": judged.change.detectable_error_rate,
        "a": _side(judged.a),
        "b": _side(judged.b),
        "p50_change": p50_change,
        "p95_change": p95_change,
        "p99_change": p99_change,
    }


def _side(samples: Samples) -> Side:
    low, high = wilson_interval(samples.errors, samples.spans)
    p50_ms, p95_ms, p99_ms = samples.percentiles_ms if samples.spans else (None, None, None)
    return {
        "count": samples.spans,
        "errors": samples.errors,
        "error_rate": samples.errors / samples.spans if samples.spans else 0.0,
        "error_rate_low": low,
        "error_rate_high": high,
        "p50_ms": p50_ms,
        "p95_ms": p95_ms,
        "p99_ms": p99_ms,
        **estimates_of(samples.weights),
    }


def _one_sided(counts: dict[tuple[str, str, str], int]) -> list[OneSided]:
    """Return the operations that have spans in the window, the most frequent first."""
    return [
        {"service": service, "name": name, "kind": kind, "count": count}
        for (service, name, kind), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if count
    ]


def _frequent(operations: list[OneSided]) -> int:
    """Count the operations whose absence in the other deployment is unlikely to be chance."""
    return sum(operation["count"] >= SPANS_MIN for operation in operations)


def _shifts(store: Store, selected: Selection, pairs: dict[tuple[str, str, str], _Pair]) -> list[ShiftRow]:
    """Return the attribute values whose shares differ between the windows, strongest evidence first."""

    def in_window(side: Sql) -> Sql:
        return compose(_IN_WINDOW, side=side, filter=selected.condition)

    sides = Sides(
        in_window(Sql("b")),
        in_window(Sql("a")),
        selected.parameters,
        sum(pair.b.spans for pair in pairs.values()),
        sum(pair.a.spans for pair in pairs.values()),
        common=IN_BOTH,
        excluded_keys=_COMPARED_KEYS,
        # Attributes such as versions often repeat the id, and would be the strongest shifts of all.
        excluded_values=[str(id_) for side in ("a", "b") if (id_ := selected.parameters[side])],
    )
    return list(shift_rows(store, sides, SHIFTS_SHOWN))
