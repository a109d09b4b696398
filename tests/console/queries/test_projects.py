"""Users with limited projects: no route answers with anything of another project's spans."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final
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
from tests.console.queries.project_calls import (
    CALLS,
    FOR_OPERATORS,
    OF_NOW,
    REFUSED,
    TIMES,
    WITHOUT_SPANS,
    Call,
    tool,
)
from tests.support import two_projects
from tests.support.access import VIEWER, Client, Headers, bearer, receiver_with, session
from tests.support.attribute_rollups import ReadTables
from tests.support.cases import each_case
from tests.support.hostile_filters import RecordingStore
from tests.support.random_filters import NOW_S, Span
from tests.support.rollups import MIDNIGHT_S, derive_all
from tests.support.two_projects import HIDDEN, MARKER, MINE, ODD_PROJECT, OTHERS, ROOT, SHARED

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
        _, summary = await answer_of(client, "/mcp", tool("get_trace", trace_id=trace_id), user)
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
