"""Metrics of all processes, merged, in Prometheus' text format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from receiver.metrics import SECONDS_BUCKETS, Series, Snapshot, Spec, added_up, spec_of

PREFIX = "trace_drain_"


def render(snapshots: Iterable[Snapshot]) -> bytes:
    """Write the merged snapshots in Prometheus' text format."""
    # A registry for each scrape: the series come from other processes and change with every report.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(snapshots))
    return generate_latest(registry)


def _labelled_by_process(snapshot: Snapshot) -> Iterator[Series]:
    """Add a process label to the gauges that cannot be summed over processes."""
    for series in snapshot.series:
        if spec_of(series.name).kind == "gauge_by_process":
            yield Series(series.name, (*series.labels, snapshot.process), series.value)
        else:
            yield series


class _Merged(Collector):
    """Collector of the summed series, ordered by name."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        labelled = [series for snapshot in snapshots for series in _labelled_by_process(snapshot)]
        self._by_name: dict[str, list[Series]] = defaultdict(list)
        for series in added_up(labelled).values():
            self._by_name[series.name].append(series)

    def collect(self) -> Iterator[Metric]:
        for name in sorted(self._by_name):
            yield _family(name, spec_of(name), self._by_name[name])


def _family(name: str, spec: Spec, series_list: list[Series]) -> Metric:
    full_name, labels = PREFIX + name, list(spec.labels)
    if spec.kind == "seconds":
        histogram = HistogramMetricFamily(full_name, spec.help, labels=labels)
        for series in series_list:
            histogram.add_metric(series.labels, list(_cumulative(series.buckets)), series.value)
        return histogram
    if spec.kind == "counter":
        counter = CounterMetricFamily(full_name, spec.help, labels=labels)
        for series in series_list:
            counter.add_metric(series.labels, series.value)
        return counter
    by_process = ["process"] if spec.kind == "gauge_by_process" else []
    gauge = GaugeMetricFamily(full_name, spec.help, labels=labels + by_process)
    for series in series_list:
        gauge.add_metric(series.labels, series.value)
    return gauge


def _cumulative(buckets: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    """Yield Prometheus' cumulative buckets: upper bound and number of observations up to it."""
    edges = [*(str(edge) for edge in SECONDS_BUCKETS), "+Inf"]
    return zip(edges, (float(total) for total in accumulate(buckets)), strict=True)
