"""SQL over HTTP: off by default, logged without its text, limited in time and to one per caller."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientError
from structlog.testing import capture_logs

from receiver.console.api import reader, source, streaming
from receiver.console.api import sql as sql_routes
from receiver.console.api.lines import StreamedAnswer
from receiver.console.api.query_queue import SQL
from receiver.engine.store import Store
from tests.support.api import WAIT_S, Client, HangingStore, client_of
from tests.support.cases import each_case
from tests.support.fake_clickhouse import MemoryStore

PATH = "/api/v1/sql"
sql_client = partial(client_of, allows_sql=True)


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with sql_client(store) as client:
        yield client


async def test_sql_is_refused_unless_the_setting_allows_it() -> None:
    async with client_of(MemoryStore()) as client:
        read = await client.get(PATH, params={"query": "SELECT 1"})
        posted = await client.post(PATH, json={"query": "SELECT 1"})
        message = await read.text()

    assert (read.status, posted.status) == (403, 403)
    assert "api.sql = true" in message


async def test_lines_of_an_answer_are_counted_and_cut(client: Client) -> None:
    query = {"query": "SELECT number FROM numbers(9)", "limit": "2"}
    read = await client.get(PATH, params=query)
    posted = await client.post(PATH, json={**query, "limit": 2})
    lines = [json.loads(line) for line in (await read.text()).splitlines()]

    assert lines == [{"number": 0}, {"number": 1}, {"end": {"count": 2, "cut": True}}]
    assert await posted.text() == await read.text()


NUMBERS = "SELECT number a, if(a = 0, NULL, '=1') b, toInt128(18446744073709551616) c FROM numbers({})"


@each_case("method", ["GET", "POST"])
async def test_answer_as_csv_has_names_and_no_formulas(client: Client, method: str) -> None:
    query = {"query": NUMBERS.format(3), "limit": "2", "format": "csv"}
    answer = await (client.get(PATH, params=query) if method == "GET" else client.post(PATH, json=query))
    empty = await client.get(PATH, params={**query, "query": NUMBERS.format(0)})

    assert await answer.text() == ("a,b,c\n0,,18446744073709551616\n1,'=1,18446744073709551616\n")
    assert answer.content_type == "text/csv"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="rows.csv"'
    assert await empty.text() == "a,b,c\n"


async def test_answer_as_parquet_has_the_rows_and_types(client: Client, store: Store, tmp_path: Path) -> None:
    query = {"query": "SELECT number AS a, 'x' AS b FROM numbers(9)", "limit": "2", "format": "parquet"}
    answer = await client.get(PATH, params=query)
    file = tmp_path / "rows.parquet"
    file.write_bytes(await answer.read())

    rows = store.rows("SELECT a, b, toTypeName(a) FROM file({path:String}, Parquet)", {"path": str(file)})
    assert rows == [(0, "x", "UInt64"), (1, "x", "UInt64")]
    assert answer.content_type == "application/vnd.apache.parquet"


@each_case("form", ["csv", "parquet"])
async def test_statement_that_is_refused_is_no_file(client: Client, form: str) -> None:
    refused = await client.get(PATH, params={"query": "SELECT file('a')", "format": form})
    unknown = await client.get(PATH, params={"query": "SELECT 1", "format": "xml"})

    assert (refused.status, unknown.status) == (400, 400)


@each_case(
    ("body", "status"),
    [
        (b'{"query": "SELECT 1"}', 415),
        (b"{", 400),
        (b"[]", 400),
        (b'{"query": ["SELECT 1"]}', 400),
        (b'{"query": "SELECT 1", "query_id": "x"}', 400),
        (b'{"query": "SELECT \xff"}', 400),
        pytest.param(b'{"query": "' + b"x" * (2 << 20) + b'"}', 413, id="2 MiB"),
    ],
)
async def test_post_that_is_not_a_statement_is_refused(client: Client, body: bytes, status: int) -> None:
    content_type = "text/plain" if status == 415 else "application/json"
    answer = await client.post(PATH, data=io.BytesIO(body), headers={"Content-Type": content_type})

    assert answer.status == status


async def test_refused_statement_is_named_as_the_wrong_parameter(client: Client) -> None:
    refused = await client.get(PATH, params={"query": "SELECT file('/etc/passwd')"})
    problem = await refused.json()

    assert (refused.status, problem["parameter"]) == (400, "query")
    assert problem["detail"] == "the function file is not allowed"


async def test_log_has_the_digest_and_the_outcome_of_each_statement_without_its_text(client: Client) -> None:
    with capture_logs() as logs:
        for text in ("SELECT 'canary'", "SELECT 'canary'", "SELECT nosuch('canary')"):
            await client.get(PATH, params={"query": text})

    ended = [line for line in logs if line["event"] == "SQL statement ended"]
    assert [line["error"] for line in ended] == ["", "", "InvalidStatement"]
    assert ended[0]["digest"] == ended[1]["digest"] != ended[2]["digest"]
    assert {line["peer"] for line in ended} == {"127.0.0.1"}
    assert all(line["seconds"] >= 0 for line in ended)
    assert "canary" not in str(logs)


async def test_head_checks_the_statement_without_the_store() -> None:
    async with sql_client(MemoryStore()) as client:
        with capture_logs() as logs:
            head = await client.head(PATH, params={"query": "SELECT 1"})
            refused = await client.head(PATH, params={"query": ""})

    assert (head.status, head.content_type) == (200, "application/x-ndjson")
    assert refused.status == 400
    assert not [line for line in logs if line["event"] == "SQL statement ended"]


async def test_statement_that_the_engine_does_not_stop_is_cancelled_and_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HangingStore()
    monkeypatch.setattr(source, "WALL_SECONDS_MAX", 0.2)
    async with sql_client(store) as client:
        answer = await client.get(PATH, params={"query": "SELECT 1"})
        problem = await answer.json()
        await asyncio.to_thread(store.cancelled.wait, WAIT_S)
        store.release.set()

    assert (answer.status, problem["limit"]) == (422, "seconds")
    assert store.cancelled.is_set()


async def test_caller_has_one_statement_at_a_time() -> None:
    store = HangingStore()
    async with sql_client(store) as client:
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clients = HangingStore(), iter("abca")
    monkeypatch.setattr(source, "WALL_SECONDS_MAX", 0.1)
    monkeypatch.setattr(streaming, "LOST_AFTER_S", 0.1)
    monkeypatch.setattr(reader, "network_of", lambda _: next(clients))
    async with sql_client(store) as client:
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HangingStore()

    def pieces(_store: Store) -> Iterator[bytes]:
        yield b"row\n"
        store.release.wait(WAIT_S)

    answer = StreamedAnswer("text/plain", pieces, lambda _count: b"")
    monkeypatch.setattr(sql_routes, "sql_answer", lambda *_: answer)
    monkeypatch.setattr(source, "WALL_SECONDS_MAX", 0.2)
    async with sql_client(store) as client:
        response = await client.get(PATH, params={"query": "SELECT 1"})
        with pytest.raises(ClientError):
            await response.read()
        is_cancelled = await asyncio.to_thread(store.cancelled.wait, WAIT_S)
        store.release.set()

    assert is_cancelled
