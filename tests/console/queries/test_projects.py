"""Users with limited projects: no route answers with anything of another project's spans."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import pytest

from receiver.console.api.traces import comparison_answer, trace_answer
from receiver.console.queries.attributes import attributes
from receiver.console.queries.projects import TABLES, table_filters
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.tables import SLOTS
from receiver.console.queries.span_metrics.series import SpanCounts
from receiver.console.queries.span_metrics.statement import requests_of
from receiver.console.ui.views.store import SavedView, ViewFile
from receiver.engine.store import COMPANION, Store
from receiver.model import SegmentId
from receiver.platform.deployment_events.event_table import store_events
from receiver.reports import RecordedSegment
from receiver.settings import Access, Proxy, User
from receiver.time_range import TimeRange
from tests.support import two_projects
from tests.support.access import VIEWER, Client, Headers, bearer, receiver_with, session
from tests.support.attribute_rollups import ReadTables
from tests.support.cases import each_case
from tests.support.hostile_filters import RecordingStore
from tests.support.random_filters import NOW_S, Span
from tests.support.rollups import MIDNIGHT_S, derive_all
from tests.support.two_projects import HIDDEN, MARKER, MINE, ODD_PROJECT, OTHERS, ROOT, SHARED

TIMES: Final = {"since": "72h"}
LIMITED = User(name="lim", token="token of lim....", projects=("prj_mine",))
EMPTY = User(name="emp", token="token of emp....", projects=("prj_none",))
ODD = User(name="odd", token="token of odd....", projects=(ODD_PROJECT,))
ACCESS = Access(user=(VIEWER, LIMITED, EMPTY, ODD))


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    return two_projects.spans()


@pytest.fixture(scope="module", autouse=True)
def deployment_events(store: Store) -> None:
    """Store events of a deployment in both projects."""
    for texts in ("mine", MARKER):
        payload = {"id": texts, "text": f"{texts} failed", "requestId": texts, "info": {"name": texts}}
        event = {"type": "stderr", "created": (MIDNIGHT_S + 7_200) * 1_000, "payload": payload}
        store_events(store, f"prj_{texts}", "dpl_1", [event], NOW_S * 1_000)


@pytest.fixture
async def client(store: Store, tmp_path: Path) -> AsyncIterator[Client]:
    urls = {
        "a": f"/search?project=prj_{MARKER}",
        "b": "/search?project=prj_mine",
        "c": f"/search?filter={MARKER}",
    }
    ViewFile(tmp_path).put(SavedView(name, url) for name, url in urls.items())
    segment = RecordedSegment(SegmentId(0, 0), (0, 2 * NOW_S * 1_000), None, 0)
    counts = SpanCounts(0.0)
    counts.add(requests_of(store, [segment]).groups, 2_000, NOW_S)
    async with receiver_with(tmp_path, ACCESS, store=store, span_counts=counts) as client:
        yield client


class Call(NamedTuple):
    """A request of a route that answers with spans, or with what is derived from them."""

    query: Mapping[str, object] = {}
    parts: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    has_texts: bool = True
    """Whether the answer has texts of spans in plain: not numbers only, and not compressed."""
    headers: Mapping[str, str] = {}


def _tool(name: str, **arguments: str) -> Call:
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
        _tool("search_traces", **TIMES),
        _tool("get_trace", trace_id=SHARED),
        _tool("compare_deployments", a="dpl_1", b="dpl_2", **TIMES),
        _tool("errors", **TIMES),
        _tool("services", **TIMES),
        _tool("attribute_values", key="common", **TIMES),
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
    *("/api/v1/rollup", "/api/v1/rollup/rebuild"),
    *("/api/v1/dead", "/api/v1/dead/{id}", "/api/v1/dead/{id}/replay"),
    *("/api/v1/platform/projects", "/api/v1/platform/projects/{id}/keep", "/platform/projects/{id}/keep"),
    *("/api/v1/views/{name}", "/views/save", "/views/delete", "/views/import"),
    *("/receiver", "/connect", "/connect/checks", "/sql"),
    *("/platform", "/platform/install", "/platform/installed", "/api/v1/platform/installations"),
    *("/receiver/dead/{id}", "/receiver/dead/{id}/replay", "/receiver/dead/{id}/drop"),
}
FOR_OPERATORS: Final = {"/api/v1/traces/{id}/explain", "/trace/{id}/explain"}
"""Routes for operators of some projects, too: tests/platform/explain/ shows that they are limited."""
ONE_SPAN: Final = "/trace/{id}/span/{span}"


def routes_of(client: Client) -> set[tuple[str, str]]:
    application = client.app
    assert application is not None
    return {
        (route.method, route.resource.canonical)
        for route in application.router.routes()
        if route.resource is not None
    }


async def answer_of(client: Client, path: str, call: Call, user: User) -> tuple[int, bytes]:
    url = re.sub(r"\{(\w+)\}", lambda match: call.parts[match[1]], path)
    answer = await client.request(
        "POST" if call.body else "GET",
        f"{url}?{urlencode(call.query, doseq=True)}",
        json=call.body,
        headers={**bearer(user), **call.headers},
    )
    return answer.status, await answer.read()


@pytest.fixture(params=[False, True], ids=["spans", "rollups"])
def is_rolled_up(request: pytest.FixtureRequest, store: Store) -> Iterator[bool]:
    """Yield whether the answers come from rollups where these help."""
    if request.param:
        assert derive_all(store)
    yield bool(request.param)
    store.command("TRUNCATE TABLE otel_rollup_slots")


def test_every_route_is_in_exactly_one_of_the_lists(client: Client) -> None:
    paths = [*CALLS, *OF_NOW, *WITHOUT_SPANS, *REFUSED, *FOR_OPERATORS, ONE_SPAN]

    assert sorted(paths) == sorted({path for _, path in routes_of(client)})


@pytest.mark.usefixtures("is_rolled_up")
async def test_answer_has_nothing_of_another_project(client: Client) -> None:
    for path, calls in {**CALLS, **OF_NOW}.items():
        for call in calls:
            _, whole = await answer_of(client, path, call, VIEWER)
            status, limited = await answer_of(client, path, call, LIMITED)

            assert status == 200, (path, call, limited)
            assert MARKER.encode() not in limited.replace(f"prj_{MARKER} or".encode(), b""), (path, call)
            assert OTHERS.encode() not in limited, (path, call)
            # Otherwise the request would not show that anything is left out.
            assert MARKER.encode() in whole or not call.has_texts, (path, call, whole)
            assert limited != whole


async def test_user_of_a_project_without_spans_learns_no_name(client: Client) -> None:
    for path, calls in {**CALLS, **OF_NOW}.items():
        for call in calls:
            status, found = await answer_of(client, path, call, EMPTY)

            assert status < 500, (path, call, found)
            names = re.findall(rb"zzother(?! or)|mine(?! or)|GET", found.replace(b"prj_mine", b""))
            assert not names, (path, call, found)


async def test_trace_of_another_project_is_answered_like_an_unknown_one(client: Client) -> None:
    unknown = "f" * 32

    def plain(answer: tuple[int, bytes]) -> tuple[int, str]:
        text = re.sub(f"({OTHERS[:8]}|{unknown[:8]})[0-9a-f…]*", "ID", answer[1].decode())
        return answer[0], re.sub(r"\d{4}-\d\d-\d\dT[\d:.%AZ]+|\d\d-\d\d [\d:.]+", "TIME", text)

    for path in (path for path in CALLS if "{id}" in path):
        found = [
            plain(
                await answer_of(client, path, Call(parts={"id": each, "other": MINE, "span": ROOT}), LIMITED)
            )
            for each in (OTHERS, unknown)
        ]
        assert found[0] == found[1], path


async def test_span_of_another_project_is_not_found(client: Client) -> None:
    for span, status in ((HIDDEN, 404), (ROOT, 200)):
        call = Call(parts={"id": SHARED, "span": span})
        assert (await answer_of(client, ONE_SPAN, call, LIMITED))[0] == status
        assert (await answer_of(client, ONE_SPAN, call, VIEWER))[0] == 200


@pytest.mark.parametrize(("trace_id", "hides"), [(SHARED, True), (MINE, False)])
async def test_trace_says_that_spans_of_other_projects_are_left_out(
    client: Client, trace_id: str, *, hides: bool
) -> None:
    for user in (LIMITED, VIEWER):
        expected = hides and user is LIMITED
        _, lines = await answer_of(client, "/api/v1/traces/{id}", Call(parts={"id": trace_id}), user)
        assert json.loads(lines.splitlines()[-1])["end"].get("hidden", False) is expected
        _, page = await answer_of(client, "/trace/{id}", Call(parts={"id": trace_id}), user)
        assert (b"Spans of projects that you may not see" in page) == expected
        _, summary = await answer_of(client, "/mcp", _tool("get_trace", trace_id=trace_id), user)
        assert (b"spans of projects that the user may not see" in summary) == expected


async def test_route_that_cannot_be_limited_is_refused_with_the_reason(client: Client) -> None:
    for method, path in sorted(routes_of(client)):
        if path in REFUSED:
            url = path.replace("{id}", "1")
            answer = await client.request(method, url, headers=bearer(User(**_as_admin(LIMITED))))
            assert answer.status in {401, 403}, f"{method} {path}"
            answer = await client.request(method, url, headers=bearer(LIMITED))
            assert answer.status == 403, f"{method} {path}"
    problem = await (await client.get("/api/v1/ledger", headers=bearer(LIMITED))).json()
    assert problem["detail"] == "the answer cannot be limited to the projects of the user"


def _as_admin(user: User) -> dict[str, Any]:
    return {"name": user.name, "token": user.token, "role": "admin", "projects": user.projects}


async def test_id_of_a_project_is_quoted(client: Client) -> None:
    _, found = await answer_of(client, "/api/v1/spans", Call(TIMES), ODD)

    assert [json.loads(line)["ProjectId"] for line in found.splitlines()[:-1]] == [ODD_PROJECT]


@pytest.mark.parametrize("by", ["session", "proxy"])
async def test_limit_holds_for_every_proof_of_a_name(store: Store, tmp_path: Path, by: str) -> None:
    peers = Proxy(user_header="x-user", allowed_peers=("127.0.0.0/8",), projects=("prj_mine",))
    headers: Headers = {"x-user": "ann"} if by == "proxy" else session(LIMITED)
    async with receiver_with(tmp_path, Access(user=(LIMITED,), proxy=peers), store=store) as client:
        answer = await client.get("/api/v1/services", params=TIMES, headers=headers)
        assert [json.loads(line)["service"] for line in (await answer.text()).splitlines()[:-1]] == [
            "web",
            "mine db",
        ]


async def test_entity_tag_of_one_user_is_not_valid_for_another(client: Client) -> None:
    url = f"/api/v1/traces/{SHARED}"
    whole = await client.get(url, headers=bearer(VIEWER))
    tag = {"If-None-Match": whole.headers["ETag"]}

    assert (await client.get(url, headers={**bearer(VIEWER), **tag})).status == 304
    assert (await client.get(url, headers={**bearer(LIMITED), **tag})).status == 200
    assert whole.headers["Cache-Control"] == "no-store"


async def test_pages_link_to_no_page_that_is_refused(client: Client) -> None:
    for path in ("/", "/tail", "/search"):
        for user, is_linked in ((LIMITED, False), (EMPTY, False), (VIEWER, True)):
            _, page = await answer_of(client, path, Call(), user)
            assert (b'href="/connect' in page or b'href="/receiver' in page) == is_linked, path


def test_every_table_with_projects_has_a_condition(store: Store) -> None:
    rows = store.rows("SELECT table, name FROM system.columns WHERE database = currentDatabase()")
    tables = {table for table, _ in rows}
    without_projects = {COMPANION, f"{COMPANION}_mv", SLOTS, "trace_drain_migrations"}

    assert {table for table, name in rows if name == "ProjectId"} == set(TABLES)
    # A new table has projects, or a reason to be here: a trace id must be known to find its times.
    assert tables - set(TABLES) == without_projects


def test_question_of_a_limited_user_still_reads_rollups(store: Store, *, is_rolled_up: bool) -> None:
    recorded, asked = ReadTables(store), Asked[str | None](TimeRange(since_s=72 * 3_600))
    with store.marked("test", table_filters(("prj_mine",))):
        lines = b"".join(attributes(recorded, asked, NOW_S).pieces())

    assert b"mine.key" in lines
    assert MARKER.encode() not in lines
    assert recorded.reads_rollup == is_rolled_up


@each_case("form", ["lines", "otlp-json", "compare"])
def test_trace_of_another_project_takes_the_statements_of_an_unknown_trace(store: Store, form: str) -> None:
    statements, found, unknown = {}, {}, "f" * 32
    for trace_id in (MINE, OTHERS, unknown):
        recording: Any = RecordingStore(store)
        answer = (
            comparison_answer(trace_id, MINE, {})
            if form == "compare"
            else trace_answer(trace_id, {"format": form}, ["prj_mine"])
        )
        with store.marked("lookup", table_filters(["prj_mine"])):
            found[trace_id] = b"".join(answer.pieces(recording))
        statements[trace_id] = recording.statements

    assert found[MINE]
    assert (found[OTHERS], found[unknown]) == (b"", b"")
    assert statements[OTHERS] == statements[unknown]
