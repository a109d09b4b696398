"""Tests of the operators' API over the embedded store: answers, access control, hostile input."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from aiohttp import ClientTimeout
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api.query_queue import QUERIES_MAX
from receiver.console.api.routes import Api
from receiver.console.api.spool import SpoolSpace
from receiver.console.api.streaming import stream_from_thread
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.spans import spans
from receiver.console.queries.traces.traces import normalized_trace_id
from receiver.engine.store import NO_FILTERS, Store
from receiver.errors import Refused, StoreTrouble
from receiver.store_process.writer_thread import StopSignal
from receiver.time_range import parse_since
from receiver.writer.environment import Stopping
from tests.support import engines
from tests.support.fake_clickhouse import NOW_S
from tests.support.segments import Segment, SegmentMaker

Client = TestClient[Any, Any]
StartApi = Callable[..., Awaitable[Client]]

QUERY_WAS_CANCELLED = 394
WAIT_S = 30.0


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> SegmentMaker:
    return SegmentMaker(tmp_path_factory.mktemp("segments"))


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture(scope="module")
def stored(store: Store, maker: SegmentMaker) -> Segment:
    """Store four spans of today, two per project and service, each in its own trace."""
    segment = maker.make(0, 0, 0, 0)
    store.insert(segment.path, token="api#0", query_id="trace-drain-api#0")
    return segment


def no_spool(directory: Path) -> SpoolSpace:
    """Return a spool without disk space: answers stay in memory."""
    return SpoolSpace(directory, 0, lambda: 0)


class BrokenStore:
    """Store whose queries fail, at once or after the first rows."""

    definition_version = None

    def __init__(self, code: int = 210, name: str = "ERROR", *, after_rows: bool = False) -> None:
        self._code, self._name = code, name
        self._after_rows = after_rows

    def marked(self, _mark: str, _filters: Mapping[str, str] = NO_FILTERS) -> AbstractContextManager[None]:
        return nullcontext()

    def rows(self, _statement: str, _parameters: object = None) -> list[tuple[int, int, int]]:
        return [(0, 1, 1)]

    def lines(self, _statement: str, _parameters: object = None) -> Iterator[bytes]:
        if self._after_rows:
            yield b'{"a":1}\n'
        raise StoreTrouble("value 'secret of a row' cannot be read", code=self._code, name=self._name)


@pytest.fixture
async def start_api(store: Store, tmp_path: Path) -> AsyncIterator[StartApi]:
    clients: list[Client] = []
    pool, stream_pool = ThreadPoolExecutor(2), ThreadPoolExecutor(QUERIES_MAX)

    async def serve(served_store: Any = store, *, token: str = "") -> Client:  # noqa: ANN401 - also broken stores
        health = {"store": "retry: no answer"} if token else {"store": ""}
        api = Api(
            store=served_store,
            token=lambda: token,
            health=lambda: health,
            schema=lambda: {"applied": []},
            ledger=dict,
            pool=pool,
            stream_pool=stream_pool,
            space=no_spool(tmp_path),
        )
        client = TestClient(TestServer(api.application()))
        await client.start_server()
        clients.append(client)
        return client

    yield serve
    for client in clients:
        await client.close()
    pool.shutdown()
    stream_pool.shutdown()


async def rows_of(client: Client, path: str, **query: str) -> list[dict[str, Any]]:
    answer = await client.get(path, params=query)
    assert answer.status == 200, await answer.text()
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return rows_before_end(await answer.text())


def rows_before_end(text: str) -> list[dict[str, Any]]:
    """Parse the lines of an answer, and check the count in its last line."""
    *rows, end = (json.loads(line) for line in text.splitlines())
    assert end["end"]["count"] == len(rows)
    return rows


async def test_trace_has_every_stored_column(start_api: StartApi, stored: Segment) -> None:
    trace_id = f"{stored.location.segment.seq:016x}{1:016x}"

    answer = await (await start_api()).get(f"/api/v1/traces/{trace_id.upper()}")

    row, end = (json.loads(line) for line in (await answer.text()).splitlines())
    assert end == {"end": {"count": 1, "cut": False}}
    assert row["TraceId"] == trace_id
    assert row["SpanAttributes"] == {"k": "v1"}
    assert row["Duration"] == 2**63 + 1
    assert row["SegmentEpoch"] == stored.location.segment.epoch
    assert row["SpanName"] == "it's a \\ 'name' {a:String}"
    assert len(row) == 38


@pytest.mark.parametrize(
    ("query", "count"),
    [
        pytest.param({}, 4, id="no filter"),
        pytest.param({"project": "prj_1"}, 2, id="project"),
        pytest.param({"project": ""}, 0, id="empty project"),
        pytest.param({"service": "cart", "project": "prj_1"}, 0, id="project and service"),
        pytest.param({"limit": "3"}, 3, id="limit"),
    ],
)
def test_spans_are_filtered_by_project_service_and_limit(
    store: Store, stored: Segment, query: dict[str, str], count: int
) -> None:
    asked = QUESTIONS["spans"].parse(query)

    rows = b"".join(spans(store, asked, NOW_S + 60).pieces()).splitlines()

    assert len(rows) == count
    assert sum(stored.days.values()) == 4


async def test_spans_are_sorted_newest_first(start_api: StartApi, stored: Segment) -> None:
    rows = await rows_of(await start_api(), "/api/v1/spans", since="30d", limit="1000")

    times = [row["Timestamp"] for row in rows]
    assert len(rows) == sum(stored.days.values())
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    "hostile_text", ["'", "' OR 1=1 --", "\\", "{project:String}", "a\x00b", "') FORMAT Null"]
)
async def test_filter_value_is_never_interpreted_as_sql(
    start_api: StartApi, stored: Segment, hostile_text: str
) -> None:
    client = await start_api()

    for name in ("project", "service"):
        assert await rows_of(client, "/api/v1/spans", since="30d", **{name: hostile_text}) == []
    assert stored.days


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/api/v1/traces/xyz", 400, id="invalid trace id"),
        pytest.param(f"/api/v1/traces/{'0' * 32}", 404, id="unknown trace"),
        pytest.param("/api/v1/spans?since=soon", 400, id="invalid age"),
        pytest.param("/api/v1/spans?limit=0", 400, id="limit too small"),
        pytest.param("/api/v1/spans?limit=1000001", 400, id="limit too large"),
        pytest.param("/api/v1/spans?select=1", 400, id="unknown parameter"),
        pytest.param("/api/v1/spans?service=a&service=b", 400, id="repeated parameter"),
        pytest.param("/api/v1/counts?trace_id=ab&trace_id=cd", 400, id="repeated parameter of counts"),
        pytest.param("/api/v1/ledger?since=1h&since=1s", 400, id="repeated parameter of the ledger"),
        pytest.param("/api/v1/nothing", 404, id="unknown path"),
    ],
)
async def test_invalid_request_is_answered_with_a_json_error(
    start_api: StartApi, path: str, status: int
) -> None:
    answer = await (await start_api()).get(path)

    body = await answer.json()
    assert (answer.status, body["status"]) == (status, status)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_request_without_the_token_is_refused(start_api: StartApi) -> None:
    client = await start_api(token="s3cret")

    refused = [
        await client.get("/api/v1/health", headers=headers)
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"})
    ]
    admitted = await client.get("/api/v1/health", headers={"Authorization": "Bearer s3cret"})

    assert [answer.status for answer in refused] == [401] * 3
    assert refused[0].headers["WWW-Authenticate"] == "Bearer"
    assert await admitted.json() == {"ok": False, "checks": {"store": "retry: no answer"}}


async def test_store_error_is_answered_503_without_row_values(start_api: StartApi) -> None:
    answer = await (await start_api(BrokenStore(210, "NETWORK_ERROR"))).get("/api/v1/spans")

    text = await answer.text()
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "2"
    assert "NETWORK_ERROR (210)" in text
    assert "secret" not in text


async def test_store_without_tables_is_answered_503_that_says_when_to_retry(start_api: StartApi) -> None:
    answer = await (await start_api(BrokenStore(60, "UNKNOWN_TABLE"))).get("/api/v1/spans")

    assert answer.status == 503
    assert answer.headers["Retry-After"] == "2"
    problem = await answer.json()
    assert problem["detail"] == "the store has no tables"
    assert "retry in a few seconds" in problem["hint"]


async def test_interrupted_answer_is_detectably_incomplete(start_api: StartApi) -> None:
    answer = await (await start_api(BrokenStore(after_rows=True))).get("/api/v1/spans")

    assert answer.status == 200
    with pytest.raises(Exception, match=r"payload|closed|complete|reset"):
        await answer.read()


async def test_short_answers_do_not_wait_for_streamed_answers(start_api: StartApi) -> None:
    release = threading.Event()

    class SlowStore(BrokenStore):
        def lines(self, _statement: str, _parameters: object = None) -> Iterator[bytes]:
            yield b'{"a":1}\n'
            release.wait(60)

    client = await start_api(SlowStore())
    async with client.get("/api/v1/spans") as listed:
        schema = await client.get("/api/v1/schema")
        release.set()
        rows = rows_before_end(await listed.text())

    assert schema.status == 200
    assert rows == [{"a": 1}]


async def test_disconnected_client_ends_the_query(tmp_path: Path) -> None:
    ended = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        async with stream_from_thread(
            pool, no_spool(tmp_path), endless, cancel=lambda: None, is_abandoned=lambda: False
        ) as pieces:
            assert await anext(pieces) == b"x"
        assert await asyncio.to_thread(ended.wait, 10)


class SlowStore:
    """Store whose query has no row for hours."""

    definition_version = None

    def __init__(self, store: Store) -> None:
        self.marked, self.cancel = store.marked, store.cancel
        self.rows = store.rows
        self.codes: Queue[int | None] = Queue()

    def lines(self, _statement: str, _parameters: object = None) -> Iterator[bytes]:
        try:
            self.rows("SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) % 7 = 9")
        except StoreTrouble as trouble:
            self.codes.put(trouble.code)
            raise
        return iter(())


async def test_statement_without_rows_is_cancelled_when_its_client_disconnects(
    store: Store, start_api: StartApi
) -> None:
    slow = SlowStore(store)
    client = await start_api(slow)

    with pytest.raises(TimeoutError):
        await client.get("/api/v1/operations?service=web", timeout=ClientTimeout(1))

    assert await asyncio.to_thread(slow.codes.get, timeout=WAIT_S) == QUERY_WAS_CANCELLED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("24h", 86_400), (" 7d ", 604_800), ("999999999d", 6_324_480_000)],
)
def test_age_is_parsed(text: str, seconds: int) -> None:
    assert parse_since(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "-1m", "1.5h", "1w", "1m; DROP", "\uff11m"])
def test_invalid_age_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="since"):
        parse_since(text)


def test_trace_id_is_normalized() -> None:
    assert normalized_trace_id(" 0AF7651916CD43DD8448EB211C80319C\n") == "0af7651916cd43dd8448eb211c80319c"
    assert normalized_trace_id("0af76519-16cd-43dd-8448-eb211c80319c") == "0af7651916cd43dd8448eb211c80319c"


def test_stop_signal_ends_the_current_wait_and_raises_at_the_next() -> None:
    stop_signal = StopSignal(lambda: 0.0)
    stop_signal.stop(10.0)

    stop_signal.sleep(0)
    stop_signal.sleep(3600)
    with pytest.raises(Stopping):
        stop_signal.sleep(3600)


def test_stop_signal_raises_after_its_deadline() -> None:
    now = [0.0]
    stop_signal = StopSignal(lambda: now[0])
    stop_signal.stop(10.0)
    now[0] = 11.0

    with pytest.raises(Stopping):
        stop_signal.sleep(0)


async def test_spans_are_counted_by_trace_id_prefix(
    start_api: StartApi,
    stored: Segment,  # noqa: ARG001 - stores the spans
) -> None:
    client = await start_api()
    listed = await client.get("/api/v1/spans?since=30d")
    trace_ids = {row["TraceId"] for row in rows_before_end(await listed.text())}
    prefix = min(trace_ids)[:2]

    answer = await client.get(f"/api/v1/counts?trace_id={prefix}&digits=32&since=30d")

    counts = rows_before_end(await answer.text())
    expected = sorted(trace_id for trace_id in trace_ids if trace_id.startswith(prefix))
    assert [row["Prefix"] for row in counts] == expected
    assert {(row["Spans"], row["Distinct"]) for row in counts} == {(1, 1)}


@pytest.mark.parametrize(
    "query",
    ["", "trace_id=f", "trace_id=xyz", "trace_id=ab&digits=0", "trace_id=ab&digits=33", "trace_id=ab&by=1"],
)
async def test_invalid_count_query_is_refused(start_api: StartApi, query: str) -> None:
    client = await start_api()

    answer = await client.get(f"/api/v1/counts?{query}")

    assert answer.status == 400
