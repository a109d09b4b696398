"""The operators' API over the embedded store: what it answers, to whom, and what it never lets through."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from receiver.api.routes import Api
from receiver.api.spool import SpoolSpace
from receiver.api.streaming import stream_from_thread
from receiver.engine.store import Store
from receiver.errors import Refused, StoreTrouble
from receiver.query.spans import SpanFilter, parse_limit, parse_since, spans
from receiver.query.traces import normalized_trace_id
from receiver.store_process.stop_signal import StopSignal
from receiver.writer.environment import Stopping
from tests.support import engines
from tests.support.fake_clickhouse import NOW_S
from tests.support.segments import Segment, SegmentMaker

Client = TestClient[Any, Any]
Ask = Callable[..., Awaitable[Client]]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> SegmentMaker:
    return SegmentMaker(tmp_path_factory.mktemp("segments"))


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture(scope="module")
def stored(store: Store, maker: SegmentMaker) -> Segment:
    """Four spans of today, two of each project and service, each a trace of its own."""
    segment = maker.make(0, 0, 0, 0)
    store.insert(segment.path, token="api#0", query_id="trace-drain-api#0")
    return segment


def no_spool(directory: Path) -> SpoolSpace:
    """Return a space without disk: answers stay in memory."""
    return SpoolSpace(directory, 0, lambda: 0)


class BrokenStore:
    """A store whose questions fail, at once or after the first rows."""

    def __init__(self, *, after_rows: bool = False) -> None:
        self._after_rows = after_rows

    def rows(self, _statement: str, _parameters: object = None) -> list[tuple[int, int, int]]:
        return [(0, 1, 1)]

    def lines(self, _statement: str, _parameters: object = None) -> Iterator[bytes]:
        if self._after_rows:
            yield b'{"a":1}\n'
        raise StoreTrouble("value 'secret of a row' cannot be read", code=241, name="MEMORY_LIMIT_EXCEEDED")


@pytest.fixture
async def api(store: Store, tmp_path: Path) -> AsyncIterator[Ask]:
    clients: list[Client] = []
    pool, stream_pool = ThreadPoolExecutor(2), ThreadPoolExecutor(1)

    async def serve(of: Any = store, *, token: str = "") -> Client:  # noqa: ANN401 - also broken ones
        health = {"store": "retry: no answer"} if token else {"store": ""}
        made = Api(
            store=of,
            token=lambda: token,
            health=lambda: health,
            schema=lambda: {"applied": []},
            ledger=dict,
            pool=pool,
            stream_pool=stream_pool,
            space=no_spool(tmp_path),
        )
        client = TestClient(TestServer(made.application()))
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
    """Read an answer in lines, and check the count in its last line."""
    *rows, end = (json.loads(line) for line in text.splitlines())
    assert end == {"end": {"count": len(rows)}}
    return rows


async def test_a_trace_comes_with_every_stored_column(api: Ask, stored: Segment) -> None:
    trace_id = f"{stored.held.segment.seq:016x}{1:016x}"

    (row,) = await rows_of(await api(), f"/api/v1/traces/{trace_id.upper()}")

    assert row["TraceId"] == trace_id
    assert row["SpanAttributes"] == {"k": "v1"}
    assert row["Duration"] == 2**63 + 1
    assert row["SegmentEpoch"] == stored.held.segment.epoch
    assert row["SpanName"] == "it's a \\ 'name' {a:String}"
    assert len(row) == 38


@pytest.mark.parametrize(
    ("query", "count"),
    [
        pytest.param({}, 4, id="the newest hour"),
        pytest.param({"project": "prj_1"}, 2, id="of a project"),
        pytest.param({"project": ""}, 0, id="of no project"),
        pytest.param({"service": "cart", "project": "prj_1"}, 0, id="both filters hold"),
        pytest.param({"limit": "3"}, 3, id="at most three"),
    ],
)
def test_spans_are_filtered(store: Store, stored: Segment, query: dict[str, str], count: int) -> None:
    limit = parse_limit(query.get("limit", "100"))
    wanted = SpanFilter(project=query.get("project"), service=query.get("service"), limit=limit)

    found = b"".join(spans(store, wanted, now_s=NOW_S + 60)).splitlines()

    assert len(found) == count
    assert sum(stored.days.values()) == 4


async def test_spans_come_newest_first_over_http(api: Ask, stored: Segment) -> None:
    found = await rows_of(await api(), "/api/v1/spans", since="30d", limit="1000")

    times = [row["Timestamp"] for row in found]
    assert len(found) == sum(stored.days.values())
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    "hostile", ["'", "' OR 1=1 --", "\\", "{project:String}", "a\x00b", "') FORMAT Null"]
)
async def test_a_filter_is_data_whatever_it_looks_like(api: Ask, stored: Segment, hostile: str) -> None:
    client = await api()

    for name in ("project", "service"):
        assert await rows_of(client, "/api/v1/spans", since="30d", **{name: hostile}) == []
    assert stored.days


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/api/v1/traces/xyz", 400, id="no trace id"),
        pytest.param(f"/api/v1/traces/{'0' * 32}", 404, id="no such trace"),
        pytest.param("/api/v1/spans?since=soon", 400, id="no age"),
        pytest.param("/api/v1/spans?limit=0", 400, id="limit too small"),
        pytest.param("/api/v1/spans?limit=1000001", 400, id="limit too large"),
        pytest.param("/api/v1/spans?select=1", 400, id="unknown parameter"),
        pytest.param("/api/v1/nothing", 404, id="no such path"),
    ],
)
async def test_a_question_that_makes_no_sense_is_told_so_in_json(api: Ask, path: str, status: int) -> None:
    answer = await (await api()).get(path)

    body = await answer.json()
    assert (answer.status, body["status"]) == (status, status)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_with_a_token_nobody_without_it_is_answered(api: Ask) -> None:
    client = await api(token="s3cret")

    refused = [
        await client.get("/api/v1/health", headers=headers)
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"})
    ]
    admitted = await client.get("/api/v1/health", headers={"Authorization": "Bearer s3cret"})

    assert [answer.status for answer in refused] == [401] * 3
    assert refused[0].headers["WWW-Authenticate"] == "Bearer"
    assert await admitted.json() == {"ok": False, "checks": {"store": "retry: no answer"}}


async def test_trouble_with_the_store_is_503_and_tells_no_value_of_a_row(api: Ask) -> None:
    answer = await (await api(BrokenStore())).get("/api/v1/spans")

    text = await answer.text()
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "2"
    assert "MEMORY_LIMIT_EXCEEDED (241)" in text
    assert "secret" not in text


async def test_an_answer_that_breaks_off_is_not_taken_for_whole(api: Ask) -> None:
    answer = await (await api(BrokenStore(after_rows=True))).get("/api/v1/spans")

    assert answer.status == 200
    with pytest.raises(Exception, match=r"payload|closed|complete|reset"):
        await answer.read()


async def test_short_answers_do_not_wait_for_answers_in_lines(api: Ask) -> None:
    release = threading.Event()

    class SlowStore(BrokenStore):
        def lines(self, _statement: str, _parameters: object = None) -> Iterator[bytes]:
            yield b'{"a":1}\n'
            release.wait(60)

    client = await api(SlowStore())
    async with client.get("/api/v1/spans") as listed:
        schema = await client.get("/api/v1/schema")
        release.set()
        rows = rows_before_end(await listed.text())

    assert schema.status == 200
    assert rows == [{"a": 1}]


async def test_a_reader_who_leaves_ends_the_question(tmp_path: Path) -> None:
    ended = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        async with stream_from_thread(pool, no_spool(tmp_path), endless) as pieces:
            assert await anext(pieces) == b"x"
        assert await asyncio.to_thread(ended.wait, 10)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("24h", 86_400), (" 7d ", 604_800), ("999999999d", 6_324_480_000)],
)
def test_ages_are_read_as_people_write_them(text: str, seconds: int) -> None:
    assert parse_since(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "-1m", "1.5h", "1w", "1m; DROP", "\uff11m"])
def test_other_ages_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="since"):
        parse_since(text)


def test_trace_ids_are_read_as_people_paste_them() -> None:
    assert normalized_trace_id(" 0AF7651916CD43DD8448EB211C80319C\n") == "0af7651916cd43dd8448eb211c80319c"
    assert normalized_trace_id("0af76519-16cd-43dd-8448-eb211c80319c") == "0af7651916cd43dd8448eb211c80319c"


def test_a_stop_cuts_a_wait_short_lets_one_more_try_happen_and_then_ends_it() -> None:
    pause = StopSignal(lambda: 0.0)
    pause.stop(10.0)

    pause.sleep(0)
    pause.sleep(3600)
    with pytest.raises(Stopping):
        pause.sleep(3600)


def test_a_stop_ends_work_too_when_its_time_is_up() -> None:
    now = [0.0]
    pause = StopSignal(lambda: now[0])
    pause.stop(10.0)
    now[0] = 11.0

    with pytest.raises(Stopping):
        pause.sleep(0)


async def test_spans_are_counted_by_the_beginning_of_their_trace_id(
    api: Ask,
    stored: Segment,  # noqa: ARG001 - is there
) -> None:
    client = await api()
    listed = await client.get("/api/v1/spans?since=30d")
    trace_ids = {row["TraceId"] for row in rows_before_end(await listed.text())}
    prefix = min(trace_ids)[:2]

    answer = await client.get(f"/api/v1/counts?trace_id={prefix}&digits=32&since=30d")

    counted = rows_before_end(await answer.text())
    expected = sorted(one for one in trace_ids if one.startswith(prefix))
    assert [row["Prefix"] for row in counted] == expected
    assert {(row["Spans"], row["Distinct"]) for row in counted} == {(1, 1)}


@pytest.mark.parametrize(
    "query",
    ["", "trace_id=f", "trace_id=xyz", "trace_id=ab&digits=0", "trace_id=ab&digits=33", "trace_id=ab&by=1"],
)
async def test_a_count_of_nothing_sensible_is_refused(api: Ask, query: str) -> None:
    client = await api()

    answer = await client.get(f"/api/v1/counts?{query}")

    assert answer.status == 400
