"""Series of the metrics of spans: sums by project, deployment, service and operation, and their limit.

Above the limit a new series first takes the place of one without a request for `IDLE_S`, whose requests move
to `retired`. If there is none, the requests are counted in a series `(other)`: for all further operations of
a service, then for all services of a deployment, then for a project, then for all projects.

Invariant: requests of all series + retired requests = requests that were added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from receiver.model import SegmentId

OTHER: Final = "(other)"
"""Label value of the requests that have no series of their own. Spans rarely have such a name."""
IDLE_S: Final = 3_600.0
"""Time without a request after which a series may be replaced. Longer than the ranges of the alert rules."""
ZERO: Final = -1_000
"""Index of the bucket of durations of 0. The bucket of 1 ns has -119."""
_RESERVED: Final = (4, 8, 16)
"""Parts of the limit that are reserved for series of each further level of `(other)`: a quarter, ..."""


class SeriesKey(NamedTuple):
    """Labels of a series, in the order of the exposition."""

    project: str
    deployment: str
    service: str
    operation: str


class TraceExemplar(msgspec.Struct, frozen=True, array_like=True):
    """A request that stands for others of its series."""

    trace_id: str
    seconds: float
    at_s: float
    """Start of the span, seconds since 1970."""


class SpanSeries(msgspec.Struct, array_like=True):
    """Sums of the requests of a series."""

    requests: int = 0
    errors: int = 0
    estimated_requests: float = 0.0
    """Requests before sampling: the sum of the weights, where an unknown weight counts as 1."""
    estimated_errors: float = 0.0
    seconds: float = 0.0
    buckets: dict[int, int] = {}
    """Index → requests; a bucket ends at 2^(index/4) s."""
    failed: TraceExemplar | None = None
    """Slowest failed request of the latest segments that had one."""
    slow: TraceExemplar | None = None
    created_s: float = 0.0
    updated_s: float = 0.0

    def add(self, other: SpanSeries) -> None:
        """Add sums of newer requests."""
        self.requests += other.requests
        self.errors += other.errors
        self.estimated_requests += other.estimated_requests
        self.estimated_errors += other.estimated_errors
        self.seconds += other.seconds
        for index, count in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count
        self.failed = other.failed or self.failed
        self.slow = other.slow or self.slow


class SpanCounts(msgspec.Struct):
    """Everything that is stored of the metrics."""

    since_s: float
    """Time from which on spans are counted."""
    series: dict[SeriesKey, SpanSeries] = {}
    folded: dict[str, int] = {}
    """Project → requests that were counted in a series `(other)`."""
    retired: dict[str, int] = {}
    """Project → requests of series that were replaced."""
    missing: int = 0
    """Rows of recorded segments that the store did not have any more."""
    counted: set[tuple[int, int]] = set()
    """Epoch and number of the counted segments that may be recorded again."""

    def has_counted(self, segment: SegmentId) -> bool:
        """Return whether the rows of a segment are in the sums."""
        return (segment.epoch, segment.seq) in self.counted

    def add(self, groups: Iterable[tuple[SeriesKey, SpanSeries]], series_max: int, now_s: float) -> None:
        """Add the sums of new requests, large groups first."""
        # Tried at most once for each call: it looks at all series.
        may_retire = True
        for key, sums in groups:
            if key not in self.series and may_retire and len(self.series) >= _limits(series_max)[0]:
                may_retire = self._retire(series_max, now_s)
            place = self._place(key, series_max)
            if OTHER in place:
                _count(self.folded, key.project, sums.requests, series_max)
            series = self.series.get(place)
            if series is None:
                series = self.series[place] = SpanSeries(created_s=now_s)
            series.add(sums)
            series.updated_s = now_s

    def within(self, projects: tuple[str, ...]) -> SpanCounts:
        """Return the part of these projects; of all if empty."""
        if not projects:
            return self
        return SpanCounts(
            self.since_s,
            {key: series for key, series in self.series.items() if key.project in projects},
            {project: count for project, count in self.folded.items() if project in projects},
            {project: count for project, count in self.retired.items() if project in projects},
        )

    def _place(self, key: SeriesKey, series_max: int) -> SeriesKey:
        """Return the key of the series that counts these requests."""
        for place, limit in zip(_levels(key), _limits(series_max), strict=True):
            if place in self.series or len(self.series) < limit:
                return place
        return SeriesKey(OTHER, OTHER, OTHER, OTHER)

    def _retire(self, series_max: int, now_s: float) -> bool:
        """Remove idle series, the longest idle first. Return whether there was one."""
        idle = sorted(
            (key for key, series in self.series.items() if now_s - series.updated_s >= IDLE_S),
            key=lambda key: self.series[key].updated_s,
        )
        # Several at a time, because the search looks at all series.
        for key in idle[: series_max // 8]:
            _count(self.retired, key.project, self.series.pop(key).requests, series_max)
        return bool(idle)


def _levels(key: SeriesKey) -> Iterator[SeriesKey]:
    yield key
    yield key._replace(operation=OTHER)
    yield key._replace(operation=OTHER, service=OTHER)
    yield SeriesKey(key.project, OTHER, OTHER, OTHER)


def _limits(series_max: int) -> tuple[int, ...]:
    """Return the number of series up to which a series of each level is added."""
    # The last place is for the series of all projects.
    return (*(series_max - series_max // part for part in _RESERVED), series_max - 1)


def _count(counts: dict[str, int], project: str, requests: int, projects_max: int) -> None:
    """Add to the count of a project. The number of projects is limited, too."""
    place = project if project in counts or len(counts) < projects_max else OTHER
    counts[place] = counts.get(place, 0) + requests
