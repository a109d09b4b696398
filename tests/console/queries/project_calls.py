"""Calls of every route, for the tests of callers who are limited to projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.support.random_filters import NOW_S
from tests.support.two_projects import MARKER, MINE, OTHERS, ROOT, SHARED

TIMES: Final = {"since": "72h"}


class Call(NamedTuple):
    """A request of a route that answers with spans, or with what is derived from them."""

    query: Mapping[str, object] = {}
    parts: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    has_texts: bool = True
    """Whether the answer has texts of spans in plain: not numbers only, and not compressed."""
    headers: Mapping[str, str] = {}


def tool(name: str, **arguments: str) -> Call:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    return Call(body={**message, "params": {"name": name, "arguments": arguments}})


_SINCE: Final = Call(TIMES)
_OF_SHARED: Final = Call(parts={"id": SHARED})
_MAP: Final = Call({"endTs": NOW_S * 1_000, "lookback": 72 * 3_600_000})
_METRICS: Final = {**_MAP.query, "service": "web", "groupByOperation": "true", "step": 3_600_000}
_TEMPO: Final = {"start": NOW_S - 72 * 3_600, "end": NOW_S}
_JAEGER: Final = {"service": "web", "start": (NOW_S - 72 * 3_600) * 10**6, "end": NOW_S * 10**6}
_V3: Final = {
    "query.service_name": "web",
    "query.start_time_min": "2020-01-31T10:00:00Z",
    "query.start_time_max": "2100-01-31T10:00:00Z",
}
CALLS: Final[Mapping[str, tuple[Call, ...]]] = {
    "/api/v1/traces/{id}": (
        _OF_SHARED,
        Call({"format": "otlp-json"}, {"id": SHARED}),
        Call({"format": "otlp-protobuf"}, {"id": SHARED}),
    ),
    "/api/v1/traces/{id}/compare/{other}": (Call(parts={"id": SHARED, "other": MINE}),),
    "/api/v1/search": (
        Call({**TIMES, "columns": "span.common,host.name", "sort": "-span.common"}),
        _SINCE,
        Call({**TIMES, "q": "{ status = error }"}),
        Call({**TIMES, "cursor": ""}),
    ),
    "/api/v1/spans": (
        _SINCE,
        Call({**TIMES, "filter": f"project=prj_{MARKER} or project=prj_mine"}),
        Call({**TIMES, "cursor": ""}),
        Call(TIMES, headers={"Accept": "application/vnd.apache.arrow.stream"}, has_texts=False),
    ),
    "/api/v1/services": (_SINCE,),
    "/api/v1/operations": (Call({**TIMES, "service": "web"}),),
    "/api/v1/attributes": (
        _SINCE,
        Call({**TIMES, "key": "common"}),
        Call({**TIMES, "key": "http.route"}),
        Call({**TIMES, "key": "host.name"}),
        Call({**TIMES, "key": "common", "filter": "status=error"}),
    ),
    "/api/v1/tail": (_SINCE, Call({**TIMES, "filter": "service=web"})),
    "/api/v1/service-map": (_SINCE,),
    "/api/v1/red": tuple(
        Call({**TIMES, "by": by, "spans": "all", **every})
        for by in ("project", "operation", "deployment", "http.route", "resource.host.name")
        for every in ({}, {"every": "1h"})
    ),
    "/api/v1/chart": (
        Call({**TIMES, "by": "http.route,project", "spans": "all", "measure": "p95", "every": "1h"}),
        Call({**TIMES, "by": "deployment", "top": "1"}, has_texts=False),
        Call({**TIMES, "by": "resource.host.name", "measure": "sum:span.common"}),
    ),
    "/api/v1/latency": (Call(TIMES, has_texts=False),),
    "/api/v1/errors": (_SINCE,),
    "/api/v1/deployments": (_SINCE,),
    "/api/v1/deployment-events": (
        Call({**TIMES, "deployment": "dpl_1"}),
        Call({**TIMES, "deployment": "dpl_1", "kind": "error"}),
    ),
    "/api/v1/deployments/{id}/events": (Call(TIMES, {"id": "dpl_1"}),),
    "/deployment/{id}": (Call(TIMES, {"id": "dpl_1"}), Call({**TIMES, "kind": "request"}, {"id": "dpl_1"})),
    "/api/v1/compare": (Call({**TIMES, "a": "dpl_1", "b": "dpl_2"}),),
    "/api/v1/shifts": (Call({**TIMES, "filter": "deployment=dpl_2", "against": "deployment=dpl_1"}),),
    "/api/v1/export": (
        *(Call({**TIMES, "format": form}) for form in ("jsonl", "csv", "otlp")),
        Call({**TIMES, "format": "parquet"}, has_texts=False),
    ),
    "/api/v1/counts": (Call({**TIMES, "trace_id": "00"}, has_texts=False),),
    "/api/v1/metrics/spans": (
        Call(),
        Call(headers={"Accept": "application/openmetrics-text"}),
        Call(headers={"Accept": "application/vnd.google.protobuf"}),
    ),
    "/": (_SINCE,),
    "/search": (
        _SINCE,
        Call({**TIMES, "facet": "http.route"}),
        Call({**TIMES, "selection": "status=error", "q": "service=web"}),
    ),
    "/services": (_SINCE, Call({**TIMES, "service": "web"})),
    "/map": (_SINCE, Call({**TIMES, "focus": "web", "levels": "2"})),
    "/errors": (_SINCE,),
    "/compare": (Call({**TIMES, "a": "dpl_1", "b": "dpl_2"}),),
    "/choices": (Call(),),
    "/views": (Call(),),
    "/views/export": (Call(),),
    "/api/v1/views": (Call(),),
    "/trace/{id}": (
        _OF_SHARED,
        Call({"show": "flame"}, {"id": SHARED}),
        Call({"show": "statistics", "by": "operation"}, {"id": SHARED}),
        Call({"linking": "1"}, {"id": SHARED}),
    ),
    "/trace/{id}/span/{span}/linking": (Call(parts={"id": OTHERS, "span": ROOT}),),
    "/trace/{id}/outline": (_OF_SHARED,),
    "/trace/{id}/matches": (Call({"text": "get"}, {"id": SHARED}, has_texts=False),),
    "/trace/{id}/with/{other}": (Call(parts={"id": SHARED, "other": MINE}),),
    "/jaeger/api/services": (Call(),),
    "/jaeger/api/services/{service}/operations": (Call(parts={"service": "web"}),),
    "/jaeger/api/operations": (Call({"service": "web"}),),
    "/jaeger/api/traces": (Call(_JAEGER), Call({"traceID": [SHARED, OTHERS]})),
    "/jaeger/api/traces/{id}": (_OF_SHARED,),
    "/jaeger/api/dependencies": (_MAP,),
    "/jaeger/api/metrics/latencies": (Call({**_METRICS, "quantile": 0.5}),),
    "/jaeger/api/metrics/calls": (Call(_METRICS),),
    "/jaeger/api/metrics/errors": (Call(_METRICS),),
    "/jaeger/api/v3/services": (Call(),),
    "/jaeger/api/v3/operations": (Call({"service": "web"}),),
    "/jaeger/api/v3/trace-summaries": (Call(_V3),),
    "/jaeger/api/v3/traces/{id}": (_OF_SHARED,),
    "/tempo/api/traces/{id}": (_OF_SHARED,),
    "/tempo/api/v2/traces/{id}": (_OF_SHARED,),
    "/tempo/api/search": (Call({**_TEMPO, "q": "{}", "spss": 10}),),
    "/tempo/api/search/tags": (Call(_TEMPO),),
    "/tempo/api/v2/search/tags": (Call(_TEMPO),),
    "/tempo/api/search/tag/{tag}/values": (Call(_TEMPO, {"tag": "host.name"}),),
    "/tempo/api/v2/search/tag/{tag}/values": (
        Call(_TEMPO, {"tag": "resource.host.name"}),
        Call({**_TEMPO, "q": "{status=error}"}, {"tag": "span.common"}),
    ),
    "/mcp": (
        tool("search_traces", **TIMES),
        tool("get_trace", trace_id=SHARED),
        tool("compare_deployments", a="dpl_1", b="dpl_2", **TIMES),
        tool("errors", **TIMES),
        tool("services", **TIMES),
        tool("attribute_values", key="common", **TIMES),
    ),
}
"""Path → requests whose answers are of the spans."""
OF_NOW: Final[Mapping[str, tuple[Call, ...]]] = {"/tail": (Call(),), "/tail/rows": (Call(),)}
"""The same for the last hour."""
WITHOUT_SPANS: Final = {
    *("/api/v1/health", "/api/v1/openapi.json", "/docs"),
    "/filter/check",
    *("/login", "/logout", "/static/{digest}/{name}", "/traces/compare"),
    "/jaeger/api/metrics/minstep",
    *("/tempo/api/echo", "/tempo/api/status/buildinfo"),
}
REFUSED: Final = {
    *("/api/v1/sql", "/api/v1/ledger", "/api/v1/schema", "/api/v1/refusals"),
    *("/api/v1/rollup", "/api/v1/rollup/rebuild", "/api/v1/store/snapshot", "/api/v1/store/read"),
    "/api/v1/store/deletion",
    *("/api/v1/dead", "/api/v1/dead/{id}", "/api/v1/dead/{id}/replay"),
    *("/api/v1/platform/projects", "/api/v1/platform/projects/{id}/keep", "/platform/projects/{id}/keep"),
    *("/views/save", "/views/delete", "/views/import"),
    *("/receiver", "/connect", "/connect/checks", "/sql"),
    *("/platform", "/platform/install", "/platform/installed", "/api/v1/platform/installations"),
    *("/receiver/dead/{id}", "/receiver/dead/{id}/replay", "/receiver/dead/{id}/drop"),
}
FOR_OPERATORS: Final = {"/api/v1/traces/{id}/explain", "/trace/{id}/explain"}
"""Routes for operators of some projects, too: tests/platform/explain/ shows that they are limited."""
