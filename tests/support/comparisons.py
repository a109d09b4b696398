"""Comparison of two deployments in plain Python, which the engine's answers have to equal."""

from __future__ import annotations

import itertools
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from receiver.console.queries.comparison.operation_change import SPANS_MIN, family_p_values
from receiver.console.queries.comparison.statistics import rank_z, tail_z, wilson_interval
from receiver.console.queries.comparison.weights import ErrorCounts, Weights, error_z
from tests.support.message_templates import template_of
from tests.support.random_filters import Span, has_error

MINUTE_NS = 60 * 10**9
Key = tuple[str, str, str]
ESTIMATES = (
    "estimated_count",
    "estimated_errors",
    "estimated_error_rate",
    "estimated_error_rate_low",
    "estimated_error_rate_high",
)


class Expected:
    """The comparison of two deployments in plain Python."""

    def __init__(self, spans: Iterable[Span], a: str, b: str, length_ns: int | None = None) -> None:
        of = {name: [span for span in spans if span["DeploymentId"] == name] for name in (a, b)}
        starts = {name: sorted(span["start_ns"] for span in of[name]) for name in of}
        shorter_ns = min(times[-1] - times[0] for times in starts.values())
        self.length_ns = length_ns or (shorter_ns // MINUTE_NS + 1) * MINUTE_NS
        self.in_range = {"a": of[a], "b": of[b]}
        self.in_window = {
            side: [span for span in of[name] if span["start_ns"] < starts[name][0] + self.length_ns]
            for side, name in (("a", a), ("b", b))
        }
        self.operations = {side: by_operation(found) for side, found in self.in_window.items()}
        self.names = {side: set(by_operation(found)) for side, found in self.in_range.items()}

    def one_sided(self, side: str, other: str) -> dict[Key, int]:
        found = self.operations[side]
        return {key: len(found[key]) for key in found if key not in self.names[other]}

    def common(self) -> set[Key]:
        return {
            key
            for key in self.names["a"] & self.names["b"]
            if key in self.operations["a"] or key in self.operations["b"]
        }

    def new_errors(self) -> Counter[tuple[str, str]]:
        known = set(map(group_of, filter(has_error, self.in_range["a"])))
        found = Counter(map(group_of, filter(has_error, self.in_window["b"])))
        return Counter({group: count for group, count in found.items() if group not in known})

    def p_values(self) -> dict[Key, float]:
        """Return the smallest adjusted p-value of each operation with enough spans."""
        errors: dict[Key, float] = {}
        durations: dict[Key, list[float]] = {}
        for key in self.common():
            a, b = (self.operations[side].get(key, []) for side in ("a", "b"))
            if min(len(a), len(b)) >= SPANS_MIN:
                in_a, in_b = (Counter(bucket_of(span["Duration"]) for span in found) for found in (a, b))
                errors[key] = error_z(error_counts(a), error_counts(b))
                durations[key] = [rank_z(in_a, in_b), tail_z(in_a, in_b, 0.95)]
        of_errors = family_p_values(errors.values())
        of_durations = iter(family_p_values(z for both in durations.values() for z in both))
        return {
            key: min(p_value, *itertools.islice(of_durations, 2))
            for key, p_value in zip(errors, of_errors, strict=True)
        }

    def traces(self, side: str, service: str | None = None) -> tuple[int, int]:
        """Return the traces of a side, or of a service, and how many of them have an error."""
        spans = [span for span in self.in_window[side] if service in (None, span["ServiceName"])]
        return len({span["TraceId"] for span in spans}), len(
            {span["TraceId"] for span in spans if span["StatusCode"] == "Error"}
        )


def error_counts(spans: Sequence[Span]) -> ErrorCounts:
    """Return what the test of errors compares."""
    weights = [span["SampleWeight"] for span in spans]
    of_errors = [span["SampleWeight"] for span in spans if span["StatusCode"] == "Error"]
    known = None
    if None not in weights:
        squares = (sum(weight**2 for weight in each) for each in (weights, of_errors))
        known = Weights(sum(weights), sum(of_errors), *squares)
    return ErrorCounts(len(spans), len(of_errors), known)


def by_operation(spans: Iterable[Span]) -> dict[Key, list[Span]]:
    found: dict[Key, list[Span]] = defaultdict(list)
    for span in spans:
        found[span["ServiceName"], span["SpanName"], span["SpanKind"]].append(span)
    return dict(found)


def failed(spans: Iterable[Span]) -> int:
    return sum(span["StatusCode"] == "Error" for span in spans)


def bucket_of(duration_ns: int) -> int:
    return int.from_bytes(struct.pack(">d", duration_ns), "big") >> 47


def group_of(span: Span) -> tuple[str, str]:
    events = zip(span["Events.Name"], span["Events.Attributes"], strict=True)
    exceptions = [attributes for name, attributes in events if name == "exception"]
    exception = exceptions[0] if exceptions else {}
    message = exception.get("exception.message") or span["StatusMessage"]
    kind = exception.get("exception.type") or span["SpanAttributes"].get("error.type", "")
    return kind, template_of(message)


def key_of(row: dict[str, Any]) -> Key:
    return (row["service"], row["name"], row["kind"])


def estimates_of(spans: Sequence[Span]) -> dict[str, Any]:
    weights = [span["SampleWeight"] for span in spans]
    if None in weights:
        return dict.fromkeys(ESTIMATES)
    errors = sum(span["SampleWeight"] for span in spans if span["StatusCode"] == "Error")
    rate = errors / sum(weights) if weights else 0
    effective = sum(weights) ** 2 / sum(weight**2 for weight in weights) if weights else 0
    low, high = wilson_interval(rate * effective, effective)
    return dict(zip(ESTIMATES, (sum(weights), errors, rate, low, high), strict=True))


def side_of(spans: Sequence[Span]) -> dict[str, Any]:
    durations = sorted(span["Duration"] / 1e6 for span in spans)
    low, high = wilson_interval(failed(spans), len(spans))
    return {
        "count": len(spans),
        "errors": failed(spans),
        "error_rate": failed(spans) / len(spans) if spans else 0,
        "error_rate_low": low,
        "error_rate_high": high,
        **{
            f"p{level}_ms": durations[min(len(durations) - 1, len(durations) * level // 100)]
            if spans
            else None
            for level in (50, 95, 99)
        },
        **estimates_of(spans),
    }
