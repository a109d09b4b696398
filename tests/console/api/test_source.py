"""Source of spans for pages: how many traces are in memory, and for how long."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api import source
from receiver.console.api.reader import OUTLINES_MAX
from receiver.console.api.route import Route
from receiver.console.api.source import Row
from tests.support.api import WAIT_S, Client, api_over
from tests.support.fake_clickhouse import MemoryStore

REQUESTS = OUTLINES_MAX + 3


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
                return web.Response(text=await api.source(request).outline("a" * 32, reader.read))
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


class Tree:
    """Refers to itself, as parents and children of a tree do, so that only a collection frees it."""

    def __init__(self) -> None:
        self.other = self


async def test_spans_of_a_large_trace_are_freed_when_its_page_is_answered(
    client: Client, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees: list[weakref.ref[Tree]] = []

    def read(_rows: list[Row]) -> str:
        trees.append(weakref.ref(Tree()))
        return ""

    monkeypatch.setattr(source, "ROWS_COLLECTED_MIN", 1)
    monkeypatch.setattr(reader, "read", read)
    gc.disable()
    try:
        assert (await client.get("/read")).status == 200
        assert trees[0]() is None
    finally:
        gc.enable()
