"""Route of the metrics of spans, for Prometheus.

GET /api/v1/metrics/spans     text format, OpenMetrics or protobuf, by `Accept`
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from receiver.console.api.access import CALLER
from receiver.console.api.description.operation import BY_STORE, Operation
from receiver.console.api.route import Route
from receiver.console.queries.question import reject_unknown_parameters
from receiver.console.queries.span_metrics.exposition import Exposition, preferred, rendered
from receiver.console.queries.span_metrics.families import families
from receiver.console.queries.span_metrics.follower import Follower
from receiver.errors import DiskTrouble, MalformedBody

PATH: Final = "/api/v1/metrics/spans"
_OPERATION: Final = Operation(
    "spanMetrics",
    "Metrics of spans for Prometheus: requests, errors and durations since counting began.",
    (),
    tuple(form.value.partition(";")[0] for form in Exposition),
    BY_STORE,
)


@dataclass(frozen=True, slots=True)
class SpanMetricsRoutes:
    """Handler of the route and its dependencies."""

    follower: Follower
    series_max: int
    is_on: bool
    pool: ThreadPoolExecutor

    def routes(self) -> tuple[Route, ...]:
        """Return the route. It reads no spans; the handler leaves out the series of other projects."""
        return (Route("GET", PATH, self._scrape, "viewer", within_projects=True, operation=_OPERATION),)

    async def _scrape(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        if not self.is_on:
            raise MalformedBody("metrics of spans are off; expected api.span_metrics = true and a restart")
        counts = self.follower.counts
        if counts is None:
            raise DiskTrouble("metrics of spans are still being read; retry in a few seconds")
        visible = counts.within(request[CALLER].projects)
        form = preferred(request.headers.get(hdrs.ACCEPT, ""))
        body = await asyncio.get_running_loop().run_in_executor(
            self.pool, lambda: rendered(families(visible, self.series_max, self.follower.waiting), form)
        )
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: form.value})
