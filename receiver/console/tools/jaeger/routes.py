"""Routes of Jaeger's HTTP API, the older version and v3, below `/jaeger`.

    GET /jaeger/api/services                        names of services
    GET /jaeger/api/services/{service}/operations   names of its operations
    GET /jaeger/api/operations?service=&spanKind=   names and kinds of its operations
    GET /jaeger/api/traces?service=&tags=&start=    matching traces with all spans; `traceID`: these traces
    GET /jaeger/api/traces/{id}                     a trace
    GET /jaeger/api/dependencies?endTs=&lookback=   calls between services
    GET /jaeger/api/metrics/latencies, calls, errors, minstep   metrics of services: see `metrics`
    GET /jaeger/api/v3/services, operations         the same names
    GET /jaeger/api/v3/trace-summaries?query.…      summaries of traces that match
    GET /jaeger/api/v3/traces/{id}                  a trace in OTLP JSON

Invariant: parameters become a filter tree, which is compiled to SQL with parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

from aiohttp import web

from receiver.console.api.answers import send_document
from receiver.console.api.responses import Handler
from receiver.console.api.route import Route
from receiver.console.queries.aggregates.service_map import service_map
from receiver.console.queries.limits import NAMES_MAX, SPANS_MAX
from receiver.console.queries.names import operation_names, services
from receiver.console.queries.question import Asked
from receiver.console.queries.search import SearchQuery, WholeTraces, found_traces, whole_traces
from receiver.console.queries.tool_search import overviews, whole_spans
from receiver.console.queries.traces.otlp import OtlpFormat
from receiver.console.queries.traces.trace_model import Row
from receiver.console.queries.traces.traces import rows_of, trace_otlp
from receiver.console.tools.common import TRACES_MAX, ToolRoutes, json_line, tool_route, trace_id_of
from receiver.console.tools.jaeger.legacy import encoded_traces, envelope
from receiver.console.tools.jaeger.metrics import METRICS, STEP_S_MIN, Metric, metrics, wanted_metrics
from receiver.console.tools.jaeger.parameters import (
    EDGES_RANGE_S,
    LEGACY,
    NAMES_RANGE_S,
    V3,
    check_named,
    in_snake_case,
    recent,
    search_query,
)
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.http.media_types import JSON
from receiver.time_range import TimeRange

PREFIX: Final = "/jaeger/api"
NO_KIND: Final = "Unspecified"


class JaegerRoutes(ToolRoutes):
    """Handlers of Jaeger's routes."""

    def routes(self) -> Iterator[Route]:
        """Yield the routes."""
        legacy: dict[str, Handler] = {
            "/services": self._services,
            "/services/{service}/operations": self._operation_names,
            "/operations": self._operations,
            "/traces": self._search,
            "/traces/{id}": partial(self._trace, JSON, _legacy_trace),
            "/dependencies": self._dependencies,
            **{f"/metrics/{metric}": partial(self._metrics, metric) for metric in METRICS},
            "/metrics/minstep": _step_min,
        }
        v3: dict[str, Handler] = {
            "/services": self._services_v3,
            "/operations": self._operations_v3,
            "/trace-summaries": self._summaries,
            "/traces/{id}": partial(self._trace, JSON, _otlp_trace),
        }
        for path, handler in legacy.items():
            yield tool_route(f"{PREFIX}{path}", handler, legacy_error, "filter")
        for path, handler in v3.items():
            yield tool_route(f"{PREFIX}/v3{path}", handler, v3_error, "filter")

    async def _services(self, request: web.Request) -> web.StreamResponse:
        return await self._document(request, lambda store: _enveloped(_service_names(store)), is_short=True)

    async def _services_v3(self, request: web.Request) -> web.StreamResponse:
        return await self._document(
            request, lambda store: json_line({"services": _service_names(store)}), is_short=True
        )

    async def _operation_names(self, request: web.Request) -> web.StreamResponse:
        service = request.match_info["service"]
        check_named(service, "service")
        return await self._document(
            request,
            lambda store: _enveloped(sorted({item["name"] for item in _operations(store, service, "")})),
            is_short=True,
        )

    async def _operations(self, request: web.Request) -> web.StreamResponse:
        service, kind = _required_service(request), request.query.get("spanKind", "")
        return await self._document(
            request, lambda store: _enveloped(_operations(store, service, kind)), is_short=True
        )

    async def _operations_v3(self, request: web.Request) -> web.StreamResponse:
        service, kind = _required_service(request), in_snake_case(request.query).get("span_kind", "")
        return await self._document(
            request, lambda store: json_line({"operations": _operations(store, service, kind)}), is_short=True
        )

    async def _search(self, request: web.Request) -> web.StreamResponse:
        now_s = time.time()
        ids = request.query.getall("traceID", [])
        find: Callable[[Store], WholeTraces]
        if ids:
            if len(ids) > TRACES_MAX:
                raise MalformedBody(f"traceID: expected at most {TRACES_MAX} ids", field="traceID")
            find = partial(whole_traces, ids=[trace_id_of(text) for text in ids])
        else:
            wanted = search_query(request.query, LEGACY, now_s, request.query.getall("tag", []))
            find = partial(found_traces, wanted=wanted, now_s=now_s)
        source = self._source_for(request)
        return await send_document(
            source, source.queues.heavy, lambda store: encoded_traces(whole_spans(store, find(store)))
        )

    async def _summaries(self, request: web.Request) -> web.StreamResponse:
        now_s = time.time()
        wanted = search_query(in_snake_case(request.query), V3, now_s)
        return await self._document(request, lambda store: _summaries(store, wanted, now_s))

    async def _dependencies(self, request: web.Request) -> web.StreamResponse:
        now_s = time.time()
        asked = Asked[None](range=recent(request.query, EDGES_RANGE_S, now_s), limit=NAMES_MAX)
        return await self._document(request, lambda store: _edges(store, asked, now_s))

    async def _metrics(self, metric: Metric, request: web.Request) -> web.StreamResponse:
        now_s = time.time()
        wanted = wanted_metrics(metric, request.query, now_s)
        return await self._document(request, lambda store: metrics(store, wanted, now_s))


async def _step_min(_request: web.Request) -> web.Response:
    """Answer with the shortest step of a metric, in milliseconds."""
    return web.Response(body=envelope(STEP_S_MIN * 1_000, 0), content_type=JSON)


def legacy_error(status: int, message: str) -> tuple[bytes, str]:
    """Return an error in the form of the older API."""
    error = {"code": status, "msg": message}
    return json_line({"data": None, "total": 0, "limit": 0, "offset": 0, "errors": [error]}), JSON


def v3_error(status: int, message: str) -> tuple[bytes, str]:
    """Return an error in the form of API v3."""
    return json_line({"error": {"httpCode": status, "message": message}}), JSON


def _required_service(request: web.Request) -> str:
    service = request.query.get("service", "")
    if not service:
        raise MalformedBody("service is missing; expected the name of a service", field="service")
    check_named(service, "service")
    return service


def _of_names(service: str | None = None) -> Asked[Any]:
    return Asked(TimeRange(since_s=int(NAMES_RANGE_S)), NAMES_MAX, own=service)


def _service_names(store: Store) -> list[str]:
    found = services(store, _of_names(), time.time())
    return sorted(row["service"] for row in rows_of(found.pieces()))


def _operations(store: Store, service: str, kind: str) -> list[dict[str, str]]:
    found = operation_names(store, _of_names(service), time.time())
    items = ({"name": row["name"], "spanKind": _kind_word(row["kind"])} for row in rows_of(found.pieces()))
    return [item for item in items if kind in ("", item["spanKind"])]


def _kind_word(stored: str) -> str:
    return "" if stored == NO_KIND else stored.lower()


def _legacy_trace(store: Store, trace_id: str) -> Iterator[bytes]:
    """Yield the trace in pieces; none for an unknown trace."""
    rows = whole_spans(store, whole_traces(store, [trace_id]), SPANS_MAX)
    first = next(rows, None)
    if first is not None:
        yield from encoded_traces(chain([first], rows))


def _otlp_trace(store: Store, trace_id: str) -> Iterator[bytes]:
    """Yield the trace in pieces; none for an unknown trace."""
    before = b'{"result":'
    for piece in trace_otlp(store, trace_id, OtlpFormat.JSON):
        yield before + piece
        before = b""
    if not before:
        yield b"}\n"


def _summaries(store: Store, wanted: SearchQuery, now_s: float) -> bytes:
    found = found_traces(store, wanted, now_s)
    return json_line({"summaries": [_summary(row) for row in overviews(store, found)]})


def _summary(row: Row) -> dict[str, Any]:
    return {
        "traceId": row["trace_id"],
        "rootServiceName": row["service"],
        "rootOperationName": row["name"],
        # Proto JSON has 64-bit integers as texts.
        "minStartTimeUnixNano": str(row["start_ns"]),
        "maxEndTimeUnixNano": str(row["start_ns"] + int(row["duration_ns"])),
        "spanCount": row["spans"],
        "errorSpanCount": row["errors"],
        "orphanSpanCount": row["orphans"],
        "services": [
            {"name": name, "spanCount": spans, "errorSpanCount": row["service_errors"].get(name, 0)}
            for name, spans in row["service_spans"].items()
        ],
    }


def _edges(store: Store, asked: Asked[None], now_s: float) -> bytes:
    return _enveloped(
        [
            {"parent": row["client"], "child": row["server"], "callCount": row["calls"]}
            for row in rows_of(service_map(store, asked, now_s).pieces())
        ]
    )


def _enveloped(data: list[Any]) -> bytes:
    return envelope(data, len(data))
