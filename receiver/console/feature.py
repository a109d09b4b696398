"""The console in the store process: serves API, pages and ClickHouse port, and keeps the rollups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.query_queue import QUERIES_MAX, default_queues
from receiver.console.api.rollup import RollupRoutes
from receiver.console.api.route import Routes
from receiver.console.api.routes import Api
from receiver.console.api.sessions import load_key
from receiver.console.api.spool import SpoolSpace
from receiver.console.application import operator_application
from receiver.console.extension import NO_EXTENSION, Extension
from receiver.console.queries.rollup.derivation import Closing
from receiver.console.queries.span_metrics.follower import Follower
from receiver.console.rollup_thread import RollupThread
from receiver.console.span_metrics_thread import SpanMetricsThread
from receiver.console.tools.clickhouse_http.endpoint import ClickHouseEndpoint
from receiver.console.tools.prometheus import SpanMetricsRoutes
from receiver.console.ui.admin_port import read_admin_port
from receiver.console.ui.facts import ReceiverFacts
from receiver.feature import StoreParts
from receiver.metrics import Metrics

JOIN_S = 1.0
"""Time to wait for a thread with statements when the process stops."""


class Console:
    """Implements `receiver.feature.Feature`."""

    def __init__(self, parts: StoreParts, extension: Extension = NO_EXTENSION) -> None:
        self._parts = parts
        self._extension = extension
        self._queues = default_queues()
        # A separate pool, so that long responses cannot occupy the threads of short requests.
        self._stream_pool = ThreadPoolExecutor(QUERIES_MAX, thread_name_prefix="answer")
        is_on = parts.settings.store.rollup
        self._rollup = RollupThread(parts.store, self._closing, parts.keeps_up, is_on=is_on)
        settings = parts.settings.api
        path = parts.data_dir / "span-metrics" / "series.msgpack"
        follower = Follower(parts.store, path, settings.span_metrics_series_max)
        self._span_metrics = SpanMetricsThread(
            parts.store, follower, parts.recorded, is_on=settings.span_metrics
        )
        self._facts = ReceiverFacts(
            parts.loaded,
            parts.progress,
            parts.health,
            parts.journal_bytes,
            parts.ledger,
            parts.dead_letters,
            partial(read_admin_port, parts.settings.admin_listen),
            parts.pool,
            extension.project_name,
            extension.refresh_events,
        )

    async def start(self) -> None:
        """Serve the API and the ClickHouse port, and start the rollups."""
        parts, api = self._parts, self._api()
        application = operator_application(
            api,
            DeadLetterRoutes(parts.dead_letters, parts.pool),
            self._derived(),
            self._facts,
            self._extension,
        )
        api_fd, *clickhouse_fds = parts.listen_fds
        await parts.ports.serve("api", application, api_fd)
        endpoint = ClickHouseEndpoint(
            api.source,
            lambda: parts.settings.api.clickhouse_token,
            parts.settings.store.database,
            parts.settings.api_hosts,
        )
        for clickhouse_fd in clickhouse_fds:
            await parts.ports.serve("clickhouse", endpoint.application(), clickhouse_fd)
        self._rollup.start()
        self._span_metrics.start()

    def reload(self) -> None:
        """Show the new settings on pages. The API reads users and tokens for each request."""
        self._facts.loaded = self._parts.loaded

    def report(self, metrics: Metrics) -> Mapping[str, str]:
        """Set the metrics, and check for queries that ignore their cancellation.

        Raises `QueriesDoNotEnd`, which ends the process and with it these queries.
        """
        self._queues.check()
        metrics.set("rollup_lag_seconds", self._rollup.lag_s())
        metrics.set("queries_lost", self._queues.lost_count)
        return {"queries": self._queues.trouble}

    async def stop(self) -> None:
        """End the statement of a rollup. Does not wait for queries, which may hang in the engine."""
        # In threads, because both block, and the event loop must keep sending reports.
        await asyncio.to_thread(self._rollup.stop)
        await asyncio.to_thread(self._rollup.join, JOIN_S)
        await asyncio.to_thread(self._span_metrics.stop, JOIN_S)
        self._stream_pool.shutdown(wait=False)

    def _api(self) -> Api:
        parts = self._parts
        settings = parts.settings
        return Api(
            store=parts.store,
            token=lambda: parts.settings.api_token,
            health=parts.health,
            ledger=parts.ledger,
            schema=parts.schema,
            snapshot=parts.snapshot,
            deletion_report=parts.deletion_report,
            delete=parts.delete,
            pool=parts.pool,
            stream_pool=self._stream_pool,
            queues=self._queues,
            space=SpoolSpace(parts.data_dir, settings.limits.api_spool_bytes_max, parts.disk_free_min),
            hosts=settings.api_hosts,
            allows_sql=settings.api.sql,
            access=lambda: parts.settings.api,
            session_key=load_key(parts.data_dir, settings.api.session_key),
        )

    def _derived(self) -> tuple[Routes, ...]:
        parts, settings = self._parts, self._parts.settings
        rollup = RollupRoutes(
            parts.store, self._closing, settings.store.rollup, self._rollup.wake, parts.pool
        )
        follower, series_max = self._span_metrics.follower, settings.api.span_metrics_series_max
        span_metrics = SpanMetricsRoutes(follower, series_max, self._span_metrics.is_on, parts.pool)
        return rollup, span_metrics

    def _closing(self) -> Closing:
        return Closing(int(time.time()), self._parts.settings.store.rollup_closing_age_s)
