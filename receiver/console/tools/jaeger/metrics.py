"""Metrics for the tab *Monitor* of Jaeger UI: latencies, calls and errors over time.

The query `red` returns the numbers. Latencies are in milliseconds, calls in calls per second, and errors are
the share of the calls that failed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from multidict import MultiMapping

from receiver.console.queries.aggregates.red import RedParameters, red
from receiver.console.queries.aggregates.red_measures import ALL_PERCENTILES
from receiver.console.queries.aggregates.requests import ALL_SPANS
from receiver.console.queries.aggregates.time_buckets import BUCKETS_MAX, parse_every
from receiver.console.queries.filters.filter import And, Intrinsic, Or
from receiver.console.queries.group_key import parse_group_key
from receiver.console.queries.question import Asked
from receiver.console.queries.traces.trace_model import Row
from receiver.console.queries.traces.traces import rows_of
from receiver.console.tools.common import instant_s, json_line
from receiver.console.tools.jaeger.parameters import compared, recent
from receiver.engine.store import Store
from receiver.errors import LimitExceeded, MalformedBody
from receiver.time_range import TimeRange

Metric = Literal["latencies", "calls", "errors"]
METRICS: Final[Mapping[Metric, tuple[str, str]]] = {
    "latencies": ("latencies", "latency in milliseconds"),
    "calls": ("call_rate", "calls per second"),
    "errors": ("error_rate", "share of the calls that failed"),
}
"""Metric → its name in the answer, and its help."""
COLUMN_OF: Final = {0.5: "p50_ms", 0.75: "p75_ms", 0.95: "p95_ms", 0.99: "p99_ms"}
"""Quantile → column of the query `red`."""
RANGE_S: Final = 3_600.0
STEP_S_MIN: Final = 1
SERVICES_MAX: Final = 20
"""Maximum number of services of a request: each is a query."""
POINTS_MAX = 50_000
"""Maximum number of points of a service, which are answered as a whole."""
_BOOLEANS: Final = {"true": True, "false": False}


class WantedMetrics(NamedTuple):
    """A metric of some services, over time."""

    metric: Metric
    column: str
    by_operation: bool
    questions: Mapping[str, Asked[RedParameters]]
    """Service → its query."""


def wanted_metrics(metric: Metric, query: MultiMapping[str], now_s: float) -> WantedMetrics:
    """Check the parameters of a request. Raises `MalformedBody` or `InvalidFilter`."""
    services = query.getall("service", [])
    if not 1 <= len(services) <= SERVICES_MAX or not all(services):
        raise MalformedBody(f"service: expected the names of 1 to {SERVICES_MAX} services", field="service")
    grouped = query.get("groupByOperation") or "false"
    if grouped not in _BOOLEANS:
        raise MalformedBody("groupByOperation: expected true or false", field="groupByOperation")
    kinds = Or(
        tuple(
            compared(Intrinsic("kind"), "=", kind, "spanKind")
            for kind in query.getall("spanKind", ["server"])
        )
    )
    range_ = recent(query, RANGE_S, now_s)
    every = {"every": f"{_every_s(query, range_, now_s)}s"}
    own = RedParameters(
        parse_group_key("operation" if _BOOLEANS[grouped] else "service"),
        ALL_SPANS,
        parse_every(every, range_, now_s),
    )
    questions = {
        service: Asked(
            range=range_,
            limit=POINTS_MAX,
            filter=And((compared(Intrinsic("service"), "=", service, "service"), kinds)),
            own=own,
        )
        for service in services
    }
    column = _column(query) if metric == "latencies" else ""
    return WantedMetrics(metric, column, _BOOLEANS[grouped], questions)


def metrics(store: Store, wanted: WantedMetrics, now_s: float) -> bytes:
    """Return the points of each service, or of each of its operations."""
    grouped = "operation_" if wanted.by_operation else ""
    name, help_text = METRICS[wanted.metric]
    return json_line(
        {
            "name": f"service_{grouped}{name}",
            "type": "GAUGE",
            "help": help_text,
            "metrics": [
                line
                for service, asked in wanted.questions.items()
                for line in _lines(_rows(store, asked, now_s), service, wanted)
            ],
        }
    )


def _rows(store: Store, asked: Asked[RedParameters], now_s: float) -> list[Row]:
    found = red(store, asked, now_s, ALL_PERCENTILES)
    rows = list(rows_of(found.pieces()))
    # Jaeger's format cannot report that points are missing.
    if found.is_cut:
        raise LimitExceeded(
            f"a service has over {POINTS_MAX} points; expected a longer step or a shorter lookback",
            field="rows",
        )
    return rows


def _lines(rows: list[Row], service: str, wanted: WantedMetrics) -> Iterator[Row]:
    """Yield the points of each group of rows, by time."""
    of_group: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_group[row["group"]].append(row)
    for group, points in of_group.items():
        labels = [{"name": "service_name", "value": service}]
        if wanted.by_operation:
            labels.append({"name": "operation", "value": group})
        yield {
            "labels": labels,
            "metricPoints": [
                {"gaugeValue": {"doubleValue": _value(row, wanted)}, "timestamp": row["start"]}
                for row in sorted(points, key=lambda row: row["start"])
            ],
        }


def _value(row: Row, wanted: WantedMetrics) -> float:
    match wanted.metric:
        case "latencies":
            return float(row[wanted.column])
        case "calls":
            # Sampled spans stand for more calls, if their weights are known.
            return float(row["rate_per_s"] * (row["estimated_spans"] or row["spans"]) / row["spans"])
        case "errors":
            return float(row["error_rate"])


def _column(query: Mapping[str, str]) -> str:
    try:
        return COLUMN_OF[float(query.get("quantile") or "")]
    except (KeyError, ValueError) as error:
        expected = ", ".join(map(str, COLUMN_OF))
        raise MalformedBody(f"quantile: expected one of {expected}", field="quantile") from error


def _every_s(query: Mapping[str, str], range_: TimeRange, now_s: float) -> int:
    """Return the length of a bucket: the step, or longer if the range would have too many points."""
    begin_s, end_s = range_.past_s(now_s)
    step_s = instant_s(query, "step", 1_000) or 0
    return math.ceil(max(STEP_S_MIN, step_s, (end_s - begin_s) / BUCKETS_MAX))
