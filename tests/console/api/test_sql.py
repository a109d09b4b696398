"""SQL over HTTP: off by default, logged without its text, limited in time and to one per caller."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from receiver.console.api import reader, source, streaming
from receiver.console.api import sql as sql_routes
from receiver.console.api.lines import StreamedAnswer
from receiver.console.api.query_queue import QUERIES_MAX, SQL
from receiver.console.api.routes import Api
from receiver.console.api.spool import SpoolSpace
from receiver.engine.store import NO_FILTERS, Store
from receiver.errors import StoreTrouble
from tests.support import engines
from tests.support.fake_clickhouse import MemoryStore

Client = TestClient[Any, Any]
PATH = "/api/v1/sql"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@asynccontextmanager
async def client_of(store: Any, directory: Path, *, allows_sql: bool = True) -> AsyncIterator[Client]:  # noqa: ANN401 - a store or a fake
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:
        api = Api(
            store=store,
            token=str,
            health=dict,
            schema=dict,
            ledger=dict,
            pool=pool,
            stream_pool=stream_pool,
            space=SpoolSpace(directory, 0, lambda: 0),
            allows_sql=allows_sql,
        )
        async with TestClient(TestServer(api.application())) as client:
            yield client


async def test_sql_is_refused_unless_the_setting_allows_it(store: Store, tmp_path: Path) -> None:
    async with client_of(store, tmp_path, allows_sql=False) as client:
        read = await client.get(PATH, params={"query": "SELECT 1"})
        posted = await client.post(PATH, json={"query": "SELECT 1"})
        message = await read.text()

    assert (read.status, posted.status) == (403, 403)
    assert "api.sql = true" in message


async def test_lines_of_an_answer_are_counted_and_cut(store: Store, tmp_path: Path) -> None:
    query = {"query": "SELECT number FROM numbers(9)", "limit": "2"}
    async with client_of(store, tmp_path) as client:
        read = await client.get(PATH, params=query)
        posted = await client.post(PATH, json={**query, "limit": 2})
        lines = [json.loads(line) for line in (await read.text()).splitlines()]

        assert lines == [{"number": 0}, {"number": 1}, {"end": {"count": 2, "cut": True}}]
        assert await posted.text() == await read.text()


NUMBERS = "SELECT number a, if(a = 0, NULL, '=1') b, toInt128(18446744073709551616) c FROM numbers({})"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_answer_as_csv_has_names_and_no_formulas(store: Store, tmp_path: Path, method: str) -> None:
    query = {"query": NUMBERS.format(3), "limit": "2", "format": "csv"}
    async with client_of(store, tmp_path) as client:
        answer = await (client.get(PATH, params=query) if method == "GET" else client.post(PATH, json=query))
        empty = await client.get(PATH, params={**query, "query": NUMBERS.format(0)})

        assert await answer.text() == ("a,b,c\n0,,18446744073709551616\n1,'=1,18446744073709551616\n")
        assert answer.content_type == "text/csv"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="rows.csv"'
        assert await empty.text() == "a,b,c\n"


async def test_answer_as_parquet_has_the_rows_and_types(store: Store, tmp_path: Path) -> None:
    query = {"query": "SELECT number AS a, 'x' AS b FROM numbers(9)", "limit": "2", "format": "parquet"}
    async with client_of(store, tmp_path) as client:
        answer = await client.get(PATH, params=query)
        file = tmp_path / "rows.parquet"
        file.write_bytes(await answer.read())

    rows = store.rows("SELECT a, b, toTypeName(a) FROM file({path:String}, Parquet)", {"path": str(file)})
    assert rows == [(0, "x", "UInt64"), (1, "x", "UInt64")]
    assert answer.content_type == "application/vnd.apache.parquet"


@pytest.mark.parametrize("form", ["csv", "parquet"])
async def test_statement_that_is_refused_is_no_file(store: Store, tmp_path: Path, form: str) -> None:
    async with client_of(store, tmp_path) as client:
        refused = await client.get(PATH, params={"query": "SELECT file('a')", "format": form})
        unknown = await client.get(PATH, params={"query": "SELECT 1", "format": "xml"})

    assert (refused.status, unknown.status) == (400, 400)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"query": "SELECT 1"}', 415),
        (b"{", 400),
        (b"[]", 400),
        (b'{"query": ["SELECT 1"]}', 400),
        (b'{"query": "SELECT 1", "query_id": "x"}', 400),
        (b'{"query": "SELECT \xff"}', 400),
        (b'{"query": "' + b"x" * (2 << 20) + b'"}', 413),
    ],
)
async def test_post_that_is_not_a_statement_is_refused(
    store: Store, tmp_path: Path, body: bytes, status: int
) -> None:
    content_type = "text/plain" if status == 415 else "application/json"
    async with client_of(store, tmp_path) as client:
        answer = await client.post(PATH, data=io.BytesIO(body), headers={"Content-Type": content_type})

    assert answer.status == status


async def test_refused_statement_is_named_as_the_wrong_parameter(store: Store, tmp_path: Path) -> None:
    async with client_of(store, tmp_path) as client:
        refused = await client.get(PATH, params={"query": "SELECT file('/etc/passwd')"})
        problem = await refused.json()

    assert (refused.status, problem["parameter"]) == (400, "query")
    assert problem["detail"] == "the function file is not allowed"


async def test_log_has_the_digest_and_the_outcome_of_each_statement_without_its_text(
    store: Store, tmp_path: Path
) -> None:
    async with client_of(store, tmp_path) as client:
        with capture_logs() as logs:
            for text in ("SELECT 'canary'", "SELECT 'canary'", "SELECT nosuch('canary')"):
                await client.get(PATH, params={"query": text})

    ended = [line for line in logs if line["event"] == "SQL statement ended"]
    assert [line["error"] for line in ended] == ["", "", "InvalidStatement"]
    assert ended[0]["digest"] == ended[1]["digest"] != ended[2]["digest"]
    assert {line["peer"] for line in ended} == {"127.0.0.1"}
    assert all(line["seconds"] >= 0 for line in ended)
    assert "canary" not in str(logs)


async def test_head_checks_the_statement_without_the_store(tmp_path: Path) -> None:
    async with client_of(MemoryStore(), tmp_path) as client:
        with capture_logs() as logs:
            head = await client.head(PATH, params={"query": "SELECT 1"})
            refused = await client.head(PATH, params={"query": ""})

    assert (head.status, head.content_type) == (200, "application/x-ndjson")
    assert refused.status == 400
    assert not [line for line in logs if line["event"] == "SQL statement ended"]


class HangingStore:
    """Store whose statements do not end before `release`, also if they are cancelled."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.started = 0
        self.cancelled = threading.Event()

    def marked(self, _mark: str, _filters: Mapping[str, str] = NO_FILTERS) -> AbstractContextManager[None]:
        return nullcontext()

    def cancel(self, _mark: str) -> None:
        self.cancelled.set()

    @contextmanager
    def read_only(self, _settings: Mapping[str, str]) -> Iterator[None]:
        self.started += 1
        self.release.wait(WAIT_S)
        raise StoreTrouble("cancelled", code=394, name="QUERY_WAS_CANCELLED")
        yield


async def test_statement_that_the_engine_does_not_stop_is_cancelled_and_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HangingStore()
    monkeypatch.setattr(source, "WALL_SECONDS_MAX", 0.2)
    async with client_of(store, tmp_path) as client:
        answer = await client.get(PATH, params={"query": "SELECT 1"})
        problem = await answer.json()
        await asyncio.to_thread(store.cancelled.wait, WAIT_S)
        store.release.set()

    assert (answer.status, problem["limit"]) == (422, "seconds")
    assert store.cancelled.is_set()


async def test_caller_has_one_statement_at_a_time(tmp_path: Path) -> None:
    store = HangingStore()
    async with client_of(store, tmp_path) as client:
        asked = [
            asyncio.create_task(client.get(PATH, params={"query": "SELECT 1"}))
            for _ in range(SQL.waiting_per_caller_max + 2)
        ]
        # The last statement is one more than may run and wait.
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        started_meanwhile = store.started
        store.release.set()
        statuses = sorted([(await task).status for task in asked])

    assert len(done) == 1
    assert started_meanwhile == SQL.running_per_caller_max == 1
    assert statuses == [429, *[503] * (SQL.waiting_per_caller_max + 1)]


async def test_statements_that_do_not_end_leave_room_for_other_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clients = HangingStore(), iter("abca")
    monkeypatch.setattr(source, "WALL_SECONDS_MAX", 0.1)
    monkeypatch.setattr(streaming, "LOST_AFTER_S", 0.1)
    monkeypatch.setattr(reader, "network_of", lambda _: next(clients))
    async with client_of(store, tmp_path) as client:
        # The last client waits until a slot of the others is freed.
        statuses = await asyncio.gather(*[get_status(client) for _ in range(SQL.running_max + 1)])
        own = await client.get(PATH, params={"query": "SELECT 1"})
        detail = (await own.json())["detail"]
        store.release.set()

    assert statuses == [422] * (SQL.running_max + 1)
    assert store.started == SQL.running_max + 1
    assert (own.status, "was cancelled and does not end" in detail) == (429, True)


async def get_status(client: Client) -> int:
    return (await client.get(PATH, params={"query": "SELECT 1"})).status


async def test_statement_that_stops_in_the_middle_of_its_answer_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HangingStore()

    def pieces(_store: Store) -> Iterator[bytes]:
        yield b"row\n"
        store.release.wait(WAIT_S)

    answer = StreamedAnswer("text/plain", pieces, lambda _count: b"")
    monkeypatch.setattr(sql_routes, "sql_answer", lambda *_: answer)
    monkeypatch.setattr(source, "WALL_SECONDS_MAX", 0.2)
    async with client_of(store, tmp_path) as client:
        response = await client.get(PATH, params={"query": "SELECT 1"})
        with pytest.raises(ClientError):
            await response.read()
        is_cancelled = await asyncio.to_thread(store.cancelled.wait, WAIT_S)
        store.release.set()

    assert is_cancelled
