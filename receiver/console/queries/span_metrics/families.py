"""Families of the metrics of spans, independent of the format in which they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from receiver.console.queries.span_metrics.series import (
    OTHER,
    ZERO,
    SeriesKey,
    SpanCounts,
    SpanSeries,
    TraceExemplar,
)

PREFIX: Final = "traces_spans_"
SCHEMA: Final = 2
"""Schema of the native histogram: 2^SCHEMA buckets an octave."""
BOUNDS: Final = tuple(range(-8, 6))
"""Exponents of the classic bounds: 2^-8 s (3.9 ms) to 2^5 s (32 s), each of which ends a native bucket."""
_WHAT: Final = "requests (server and consumer spans, and spans without a parent) that are stored"
_FOLDED: Final = f"Above api.span_metrics_series_max, further requests are counted with labels {OTHER}."


_COUNTERS: Final[tuple[tuple[str, str, Callable[[SpanSeries], TraceExemplar | None]], ...]] = (
    ("requests", f"Number of {_WHAT}. {_FOLDED}", lambda each: each.slow),
    ("errors", f"Number of {_WHAT} and have the status Error.", lambda each: each.failed),
    (
        "estimated_requests",
        "Estimated number of requests before sampling: the sum of the weights of the stored ones.",
        lambda _: None,
    ),
    ("estimated_errors", "Estimated number of failed requests before sampling.", lambda _: None),
)
"""Name of a counter and of its field of a series, its help, and the exemplar of its samples."""


class Bucket(NamedTuple):
    """Classic bucket."""

    exponent: int | None
    """The bucket ends at 2^exponent s; `None`: at infinity."""
    cumulative: int
    exemplar: TraceExemplar | None


class MetricSample(NamedTuple):
    """MetricSample of a counter or gauge."""

    labels: Mapping[str, str]
    value: float
    exemplar: TraceExemplar | None = None
    created_s: float = 0.0


class HistogramSample(NamedTuple):
    """MetricSample of a histogram."""

    labels: Mapping[str, str]
    series: SpanSeries

    def classic(self) -> Iterator[Bucket]:
        """Yield the classic buckets. A failed request is the exemplar rather than a slow one."""
        exemplars = [each for each in (self.series.failed, self.series.slow) if each is not None]
        found = sorted(self.series.buckets.items())
        at = cumulative = 0
        low = 0.0
        for exponent in (*BOUNDS, None):
            while at < len(found) and (exponent is None or found[at][0] <= exponent << SCHEMA):
                cumulative += found[at][1]
                at += 1
            high = float("inf") if exponent is None else 2.0**exponent
            inside = (each for each in exemplars if low < each.seconds <= high or each.seconds == low == 0)
            yield Bucket(exponent, cumulative, next(inside, None))
            low = high

    def native(self) -> list[tuple[int, int]]:
        """Return index and count of each native bucket, ascending, without that of durations of 0."""
        return [item for item in sorted(self.series.buckets.items()) if item[0] != ZERO]


class Family(NamedTuple):
    """A metric: its name without suffix, its type, and its samples."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    help: str
    samples: list[MetricSample] | list[HistogramSample]


def families(counts: SpanCounts, series_max: int, waiting: int) -> Iterator[Family]:
    """Yield all families. `waiting`: stored segments that are not counted yet."""
    series = [(_labels(key), each) for key, each in sorted(counts.series.items())]
    has_estimates = any(each.estimated_requests != each.requests for _, each in series)
    # Without sampling, the estimates are equal to the counters before them.
    for name, help_text, exemplar in _COUNTERS if has_estimates else _COUNTERS[:2]:
        samples = [
            MetricSample(labels, getattr(each, name), exemplar(each), each.created_s)
            for labels, each in series
        ]
        yield Family(name, "counter", help_text, samples)
    yield Family(
        "duration_seconds",
        "histogram",
        f"Durations of {_WHAT}.",
        [HistogramSample(labels, each) for labels, each in series],
    )
    yield _first_counted(counts)
    yield from _of_itself(counts, series_max, waiting)


def _first_counted(counts: SpanCounts) -> Family:
    """Return when each deployment was first counted, which tells the newest one from those before it."""
    first: dict[tuple[str, str, str], float] = {}
    for key, series in counts.series.items():
        if key.deployment not in {"", OTHER}:
            first[key[:3]] = min(series.created_s, first.get(key[:3], series.created_s))
    names = SeriesKey._fields[:3]
    return Family(
        "first_counted_timestamp_seconds",
        "gauge",
        "Time at which the first request of a deployment and service was counted.",
        [MetricSample(dict(zip(names, key, strict=True)), at_s) for key, at_s in sorted(first.items())],
    )


def _of_itself(counts: SpanCounts, series_max: int, waiting: int) -> Iterator[Family]:
    """Yield the families about the limit of series, and what the other families lack."""
    yield Family(
        "folded_requests",
        "counter",
        f"Requests that are counted with labels {OTHER}, because of the limit of series.",
        _by_project(counts.folded),
    )
    yield Family(
        "retired_requests",
        "counter",
        "Requests of series that had no request for an hour and made room for others.",
        _by_project(counts.retired),
    )
    yield Family(
        "missing_spans",
        "counter",
        "Spans that were deleted from the store before they could be counted.",
        [MetricSample({}, counts.missing)],
    )
    gauges = (
        ("series", "Number of sets of labels.", len(counts.series)),
        ("series_max", "Limit of that number: api.span_metrics_series_max.", series_max),
        ("waiting_segments", "Stored segments whose requests are not counted yet.", waiting),
        ("since_timestamp_seconds", "Time from which on spans are counted.", counts.since_s),
    )
    for name, help_text, value in gauges:
        yield Family(name, "gauge", help_text, [MetricSample({}, value)])


def _by_project(counts: Mapping[str, int]) -> list[MetricSample]:
    return [MetricSample({"project": project}, count) for project, count in sorted(counts.items())]


def _labels(key: SeriesKey) -> Mapping[str, str]:
    return key._asdict()
