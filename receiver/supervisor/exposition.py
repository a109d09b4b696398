"""The counts of all processes as one, in Prometheus' text format."""

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
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(snapshots))
    return generate_latest(registry)


def _told_apart(snapshot: Snapshot) -> Iterator[Series]:
    """Give the gauges of one process that cannot be added up its name."""
    for one in snapshot.series:
        if spec_of(one.name).kind == "gauge_by_process":
            yield Series(one.name, (*one.labels, snapshot.process), one.value)
        else:
            yield one


class _Merged(Collector):
    """All processes as one, in the order of the names."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        told_apart = [one for snapshot in snapshots for one in _told_apart(snapshot)]
        self._by_name: dict[str, list[Series]] = defaultdict(list)
        for one in added_up(told_apart).values():
            self._by_name[one.name].append(one)

    def collect(self) -> Iterator[Metric]:
        for name in sorted(self._by_name):
            yield _family(name, spec_of(name), self._by_name[name])


def _family(name: str, spec: Spec, series: list[Series]) -> Metric:
    full_name, labels = PREFIX + name, list(spec.labels)
    if spec.kind == "seconds":
        histogram = HistogramMetricFamily(full_name, spec.help, labels=labels)
        for one in series:
            histogram.add_metric(one.labels, list(_le(one.buckets)), one.value)
        return histogram
    if spec.kind == "counter":
        counter = CounterMetricFamily(full_name, spec.help, labels=labels)
        for one in series:
            counter.add_metric(one.labels, one.value)
        return counter
    by_process = ["process"] if spec.kind == "gauge_by_process" else []
    gauge = GaugeMetricFamily(full_name, spec.help, labels=labels + by_process)
    for one in series:
        gauge.add_metric(one.labels, one.value)
    return gauge


def _le(buckets: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    """Prometheus' buckets: upper edge and everything up to it."""
    edges = [*(str(edge) for edge in SECONDS_BUCKETS), "+Inf"]
    return zip(edges, (float(total) for total in accumulate(buckets)), strict=True)
