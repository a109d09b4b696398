"""Limits of queries and of concurrent queries: an answer names each, and short questions do not wait."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api.query_queue import HEAVY, QUERIES_MAX
from receiver.console.api.routes import Api
from receiver.console.api.spool import SpoolSpace
from receiver.console.queries.limits import limit_exceeded
from receiver.engine.embedded import MARKED_QUERY_THREADS
from receiver.engine.sql_text import SECONDS_MAX, SETTINGS
from receiver.engine.store import NO_FILTERS, Store
from receiver.errors import StoreTrouble
from tests.support import engines

Client = TestClient[Any, Any]
StartApi = Callable[[Any], Awaitable[Client]]
WAIT_S = 60.0


class FakeStore:
    """Store with one row. Its questions about spans wait for `release`, or fail with an error code."""

    definition_version = None

    def __init__(self, code: int | None = None) -> None:
        self._code = code
        self.release = threading.Event()

    def marked(self, _mark: str, _filters: Mapping[str, str] = NO_FILTERS) -> AbstractContextManager[None]:
        return nullcontext()

    def lines(self, statement: str, _parameters: object = None) -> Iterator[bytes]:
        if self._code is not None:
            raise StoreTrouble("value 'secret of a row' cannot be read", code=self._code, name="ERROR")
        if "SELECT *" in statement:
            self.release.wait(WAIT_S)
        yield b'{"a":1}\n'


@pytest.fixture
async def start_api(tmp_path: Path) -> AsyncIterator[StartApi]:
    clients: list[Client] = []
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:

        async def serve(store: Any) -> Client:  # noqa: ANN401 - a fake store
            api = Api(
                store=store,
                token=str,
                health=dict,
                schema=dict,
                ledger=dict,
                pool=pool,
                stream_pool=stream_pool,
                space=SpoolSpace(tmp_path, 0, lambda: 0),
            )
            clients.append(TestClient(TestServer(api.application())))
            await clients[-1].start_server()
            return clients[-1]

        yield serve
        for client in clients:
            await client.close()


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.mark.parametrize(
    ("statement", "limit"),
    [
        ("SELECT count() FROM numbers_mt(3000000000)", "rows_read"),
        ("SELECT groupArray(toString(number)) FROM numbers(1000000000)", "memory"),
        ("SELECT count() FROM numbers(1900000000) WHERE sipHash64(number) % 7 = 9", "seconds"),
    ],
)
def test_engine_enforces_the_limit(store: Store, statement: str, limit: str) -> None:
    time_limit = f"max_execution_time = {SECONDS_MAX}"
    assert time_limit in SETTINGS
    settings = SETTINGS.replace(time_limit, "max_execution_time = 1") if limit == "seconds" else SETTINGS

    with pytest.raises(StoreTrouble) as failed:
        store.rows(f"{statement} {settings}")

    exceeded = limit_exceeded(failed.value)
    assert exceeded is not None
    assert exceeded.field == limit


@pytest.mark.parametrize(
    ("code", "limit", "detail"),
    [
        (158, "rows_read", "the query reads over 2000000000 rows"),
        (307, "bytes_read", "the query reads over 1024 GiB"),
        (396, "rows", "the answer has more rows than its limit"),
        (241, "memory", "the query needs over 2 GiB of memory, or the store has less left"),
        (159, "seconds", "the query takes over 60 s"),
    ],
)
async def test_exceeded_limit_is_named_with_the_way_to_narrow_the_query(
    start_api: StartApi, code: int, limit: str, detail: str
) -> None:
    answer = await (await start_api(FakeStore(code))).get("/api/v1/spans")

    problem = await answer.json()
    assert (answer.status, problem["limit"], problem["detail"]) == (422, limit, detail)
    assert problem["hint"].startswith("expected a shorter time range")
    assert "Retry-After" not in answer.headers
    assert "secret" not in str(problem)


async def test_short_question_does_not_wait_for_heavy_questions(start_api: StartApi) -> None:
    store = FakeStore()
    client = await start_api(store)
    asked = HEAVY.running_max + HEAVY.waiting_per_caller_max - 1
    heavy = [asyncio.create_task(client.get("/api/v1/spans")) for _ in range(asked)]
    try:
        operations = await client.get("/api/v1/operations?service=a")
        lines = [json.loads(line) for line in (await operations.text()).splitlines()]
        assert not any(task.done() for task in heavy)
    finally:
        store.release.set()
    answers = await asyncio.gather(*heavy)

    assert lines[0] == {"a": 1}
    assert [answer.status for answer in answers] == [200] * asked


async def test_caller_with_too_many_waiting_queries_gets_429(start_api: StartApi) -> None:
    store = FakeStore()
    client = await start_api(store)
    asked = HEAVY.running_per_caller_max + HEAVY.waiting_per_caller_max + 1
    tasks = [asyncio.create_task(client.get("/api/v1/spans")) for _ in range(asked)]
    refused = await next(asyncio.as_completed(tasks))
    store.release.set()
    answers = await asyncio.gather(*tasks)

    assert refused.headers["Retry-After"] == "2"
    assert (await refused.json())["detail"] == "this client has 16 waiting queries already"
    assert sorted(answer.status for answer in answers) == [200] * (asked - 1) + [429]


def test_operators_query_leaves_cores_to_the_intakes(store: Store) -> None:
    with store.marked("trace-drain-api-test"):
        assert store.rows("SELECT toUInt64(getSetting('max_threads'))") == [(MARKED_QUERY_THREADS,)]

    assert max(2, len(os.sched_getaffinity(0))) >= MARKED_QUERY_THREADS * 2
