"""Source of spans for pages: how many traces are in memory, and for how long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api import reader as reader_module
from receiver.console.api.reader import OUTLINES_MAX, PREPARED_MAX
from receiver.console.api.route import Route
from receiver.console.api.source import ApiSource, Row
from tests.support.api import WAIT_S, Client, api_over
from tests.support.fake_clickhouse import MemoryStore

REQUESTS = OUTLINES_MAX + 3
TRACE = "a" * 32


class TraceStore(MemoryStore):
    """Store with one trace of one span, which counts the queries for spans."""

    query_count = 0

    def rows(self, _statement: str, _parameters: object = None) -> list[tuple[int, int]]:
        return [(1, 2)]

    def lines(self, _statement: str, _parameters: object = None) -> Iterator[bytes]:
        self.query_count += 1
        yield b'{"SpanId":"a"}\n'


class Reader:
    """A page's work on the spans of a trace, which takes until `release`."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.running = threading.Semaphore(0)
        self.ended = asyncio.Semaphore(0)
        """Requests that have been answered, or whose clients have disconnected."""

    def read(self, rows: list[Row]) -> str:
        self.running.release()
        self.release.wait(WAIT_S)
        return str(rows[0]["SpanId"])

    async def until_running(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.running.acquire, timeout=WAIT_S)


@pytest.fixture
def store() -> TraceStore:
    return TraceStore()


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
async def client(store: TraceStore, reader: Reader) -> AsyncIterator[Client]:
    class Group:
        def routes(self) -> tuple[Route, ...]:
            return (Route("GET", "/read", self._read, "viewer"),)

        async def _read(self, request: web.Request) -> web.Response:
            try:
                return web.Response(text=await api.source(request).outline(TRACE, reader.read))
            finally:
                reader.ended.release()

    with api_over(store) as api:
        async with TestClient(TestServer(api.application(Group()))) as client:
            yield client
        reader.release.set()


async def test_traces_beyond_the_limit_are_not_read_from_the_store_yet(
    client: Client, store: TraceStore, reader: Reader
) -> None:
    requests = [asyncio.ensure_future(client.get("/read")) for _ in range(REQUESTS)]
    await reader.until_running(OUTLINES_MAX)
    # The other requests have arrived when a later one, which needs no place, is answered.
    assert (await client.get("/api/v1/health")).status == 200
    read_before = store.query_count
    reader.release.set()
    answers = await asyncio.gather(*requests)

    assert read_before == OUTLINES_MAX
    assert [await answer.text() for answer in answers] == ["a"] * REQUESTS
    assert store.query_count == REQUESTS


async def test_trace_of_a_client_that_disconnected_occupies_its_place_until_its_thread_ends(
    client: Client, store: TraceStore, reader: Reader
) -> None:
    abandoned = [asyncio.ensure_future(client.get("/read")) for _ in range(OUTLINES_MAX)]
    await reader.until_running(OUTLINES_MAX)
    for request in abandoned:
        request.cancel()
        await reader.ended.acquire()
    later = asyncio.ensure_future(client.get("/read"))
    assert (await client.get("/api/v1/health")).status == 200
    read_before = store.query_count
    reader.release.set()

    assert (await (await later).text()) == "a"
    assert read_before == OUTLINES_MAX


@asynccontextmanager
async def sources() -> AsyncIterator[tuple[ApiSource, ApiSource]]:
    """Yield a source of all spans, and one that is limited to a project, for a request that is served."""
    found: asyncio.Queue[tuple[ApiSource, ApiSource]] = asyncio.Queue()
    is_over = asyncio.Event()

    class Group:
        def routes(self) -> tuple[Route, ...]:
            return (Route("GET", "/sources", self._sources, "viewer"),)

        async def _sources(self, request: web.Request) -> web.Response:
            of_request = api.source(request)
            found.put_nowait((of_request, of_request.within(["prj_mine"])))
            await is_over.wait()
            return web.Response()

    with api_over(TraceStore()) as api:
        async with TestClient(TestServer(api.application(Group()))) as client:
            request = asyncio.ensure_future(client.get("/sources"))
            yield await found.get()
            is_over.set()
            await request


async def test_prepared_answer_is_sent_once_and_only_to_a_caller_with_equal_projects() -> None:
    async with sources() as (unlimited, limited):
        unlimited.prepare(TRACE, lambda: b"every span")
        of_limited = await limited.prepared(TRACE)
        answers = [await unlimited.prepared(TRACE) for _ in range(2)]

        assert of_limited is None
        assert answers == [b"every span", None]


async def test_prepared_answers_are_limited_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"{number:032x}" for number in range(PREPARED_MAX + 1)]
    computed = threading.Event()
    async with sources() as (source, _):
        for trace_id in ids[:-1]:
            source.prepare(trace_id, lambda: b"spans")
        source.prepare(ids[-1], computed.set)  # type: ignore[arg-type]  # it is not called
        oldest, newest = await source.prepared(ids[0]), await source.prepared(ids[-1])
        monkeypatch.setattr(reader_module, "PREPARED_S", 0)
        source.prepare(TRACE, lambda: b"spans")
        await asyncio.sleep(0.01)

        assert (oldest, newest) == (b"spans", None)
        assert not computed.is_set()
        assert await source.prepared(TRACE) is None
