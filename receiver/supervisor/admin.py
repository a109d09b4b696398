"""Admin port: `/livez`, `/readyz`, `/metrics` and `/version` for all processes.

The supervisor serves it, because that process is never busy. The number of connections is limited, so that
the supervisor always has the descriptors that it needs to start a process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from socket import socket

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from receiver.http.listener import Listener
from receiver.http.media_types import JSON
from receiver.http.origin import OriginCheck
from receiver.http.protocol import Limits
from receiver.metrics import SECONDS_BUCKETS, Metrics, Series, Snapshot, Spec, added_up, spec_of
from receiver.settings import Settings
from receiver.supervisor.health import Readiness
from receiver.supervisor.versions import versions

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True)
class Admin:
    """Handlers of the admin port and their data sources."""

    readiness: Callable[[], Readiness]
    counts: Callable[[], Iterable[Snapshot]]
    settings: Settings
    metrics: Metrics
    version: Mapping[str, str] = field(default_factory=versions)

    async def serve(self, listening: socket) -> Listener:
        """Serve this socket until the listener is closed. Raises `OperatorError` without a C parser."""
        check = OriginCheck("admin", self.settings.api_hosts, allows_short_names=True)
        app = web.Application(middlewares=[check.middleware])
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/version", self._version),
            ]
        )
        limits = self.settings.limits
        listener = Listener(
            Limits("admin", limits.admin_connections_max, limits.header_timeout_s, limits.write_timeout_s),
            self.metrics,
        )
        await listener.open(app, listening)
        return listener

    # Ignores the children: the supervisor replaces them itself, and a restart of everything would not help.
    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def _readyz(self, request: web.Request) -> web.Response:
        readiness = self.readiness()
        status = 200 if readiness.ready else 503
        if "json" in request.headers.get("Accept", ""):
            return _json(readiness, status)
        return web.Response(
            text=readiness.as_text(is_verbose="verbose" in request.query), status=status, headers=HEADERS
        )

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=render(self.counts()), headers={**HEADERS, "Content-Type": METRICS_TYPE})

    async def _version(self, _request: web.Request) -> web.Response:
        return _json(self.version, 200)


def _json(content: object, status: int) -> web.Response:
    headers = {**HEADERS, "Content-Type": JSON}
    return web.Response(body=msgspec.json.encode(content) + b"\n", status=status, headers=headers)


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
    by_process = ["process"] if spec.kind == "gauge_by_process" else []
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    family = kind(full_name, spec.help, labels=labels + by_process)
    for series in series_list:
        family.add_metric(series.labels, series.value)
    return family


def _cumulative(buckets: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    """Yield Prometheus' cumulative buckets: upper bound and number of observations up to it."""
    edges = [*(str(edge) for edge in SECONDS_BUCKETS), "+Inf"]
    return zip(edges, (float(total) for total in accumulate(buckets)), strict=True)
