"""Limits of the ClickHouse endpoint: rows, time, concurrency, and failures after the first bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import sleep
from typing import cast

import pytest
from aiohttp import ClientError, ClientResponse

from receiver.console.api import query_queue, source
from receiver.console.api.query_queue import CLICKHOUSE, QueueLimits
from receiver.console.api.responses import WHOLE_BYTES_MAX
from receiver.console.queries.raw_sql import client_statement
from receiver.console.queries.raw_sql.client_statement import LIMITS, ROWS_MAX, ClientStatement
from receiver.console.tools.clickhouse_http.parameters import statement_of
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.support.api import WAIT_S, Client, HangingStore
from tests.support.cases import each_case
from tests.support.clickhouse_endpoint import DATABASE, asked, code_of, lines, served
from tests.support.fake_clickhouse import MemoryStore


@each_case(
    ("limit", "value", "expected"),
    [
        ("max_result_rows", "9", (500, 396)),
        ("max_result_bytes", "9", (500, 396)),
        ("max_rows_to_read", "9", (500, 158)),
        ("max_bytes_to_read", "9", (500, 307)),
    ],
)
async def test_client_can_lower_a_limit(
    client: Client, limit: str, value: str, expected: tuple[int, int]
) -> None:
    statement = "SELECT number FROM numbers(10)"

    assert len(await lines(client, statement)) == 10
    assert await code_of(client, statement, **{limit: value}) == expected


async def test_client_can_lower_the_memory_of_a_statement(client: Client) -> None:
    statement = "SELECT length(groupArray(toString(number))) FROM numbers(1000000)"

    assert await lines(client, statement) == ["1000000"]
    assert await code_of(client, statement, max_memory_usage="10000000") == (500, 241)


@each_case("name", LIMITS)
@each_case(("factor", "kept"), [(0.0, 1.0), (0.5, 0.5), (2.0, 1.0)])
def test_client_cannot_raise_a_limit(name: str, factor: float, kept: float) -> None:
    value = f"{LIMITS[name] * factor:.0f}"
    statement = statement_of({"query": "SELECT 1", name: value}, "", "", DATABASE)

    assert float(statement.settings[name]) == LIMITS[name] * kept


@each_case("text", ["/**/" * 3_900 + "1", "--\n" * 5_000 + "1", "FORMAT CSV" + " " * 15_000 + "x"])
def test_repetitive_statement_is_read_in_time_in_proportion_to_its_length(text: str) -> None:
    # With backtracking, the first text takes longer than any test may.
    assert statement_of({}, text, "", DATABASE).text == text


async def test_rows_over_the_limit_are_an_error_and_no_shorter_answer(client: Client) -> None:
    answer = await asked(client, f"SELECT number FROM numbers({ROWS_MAX}) FORMAT Parquet")  # noqa: S608 - a constant

    assert answer.status == 200
    assert await code_of(client, f"SELECT number FROM numbers({ROWS_MAX + 1}) FORMAT Parquet") == (500, 396)  # noqa: S608 - as above


async def test_statement_ends_at_the_time_limit_of_its_client(client: Client) -> None:
    statement = "SELECT max(sipHash64(number)) FROM numbers(1000000000)"

    assert await code_of(client, statement, max_execution_time="0.2") == (408, 159)


def test_rows_that_end_after_the_time_limit_of_the_client_are_not_taken_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The embedded engine may end a stream at its time limit without an error."""

    def pieces(*_: object) -> Iterator[bytes]:
        yield b"1\n"
        sleep(0.02)

    monkeypatch.setattr(client_statement, "_pieces", pieces)
    statement = ClientStatement("SELECT 1", "TSV", settings={"max_execution_time": "0.01"})

    with pytest.raises(StoreTrouble, match="rows may be missing"):
        list(client_statement.answer(cast("Store", None), statement))


async def read_until_it_breaks(client: Client, statement: str) -> tuple[ClientResponse, bytes]:
    """Return an answer that lacks its last chunk, by which clients notice a failure without the block."""
    answer, body = await client.post("/", data=statement.encode()), b""
    try:
        while piece := await answer.content.readany():
            body += piece
    except ClientError:
        return answer, body
    raise AssertionError("the answer has a last chunk")


@each_case(
    ("before_bytes", "is_reported"), [(0, True), (WHOLE_BYTES_MAX, True), (WHOLE_BYTES_MAX + 1, False)]
)
async def test_failure_is_reported_or_breaks_the_answer(
    monkeypatch: pytest.MonkeyPatch, before_bytes: int, *, is_reported: bool
) -> None:
    def answer(_store: object, _statement: object) -> Iterator[bytes]:
        yield b"x" * before_bytes
        raise StoreTrouble("value 'secret'", code=241, name="MEMORY")

    monkeypatch.setattr("receiver.console.tools.clickhouse_http.endpoint.answer", answer)
    async with served(MemoryStore()) as client:
        if is_reported:
            refused = await asked(client, "SELECT 1")
            assert (refused.status, refused.headers["X-ClickHouse-Exception-Code"]) == (500, "241")
            assert "secret" not in await refused.text()
        else:
            broken, body = await read_until_it_breaks(client, "SELECT 1")
            tag = broken.headers["X-ClickHouse-Exception-Tag"]
            text = "Code: 241. DB::Exception: the statement exceeds max_memory_usage, or the memory that "
            assert body.startswith(b"x" * before_bytes + f"\r\n__exception__\r\n{tag}\r\n{text}".encode())
            assert body.endswith(f" {tag}\r\n__exception__\r\n".encode())
            assert b"secret" not in body


async def test_statement_that_the_engine_does_not_stop_is_cancelled_and_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HangingStore()
    monkeypatch.setattr(source, "WALL_SECONDS_MAX", 0.2)
    async with served(store) as client:
        answered = await code_of(client, "SELECT 1")
        await asyncio.to_thread(store.cancelled.wait, WAIT_S)
        store.release.set()

    assert answered == (408, 159)


async def test_statements_wait_for_each_other_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HangingStore()
    few = QueueLimits(**{**CLICKHOUSE._asdict(), "waiting_per_caller_max": 3})
    monkeypatch.setattr(query_queue, "CLICKHOUSE", few)
    async with served(store) as client:
        statements = [
            asyncio.create_task(code_of(client, "SELECT 1"))
            for _ in range(few.running_max + few.waiting_per_caller_max + 1)
        ]
        # The last statement is one more than may run and wait.
        done, _ = await asyncio.wait(statements, return_when=asyncio.FIRST_COMPLETED)
        started_meanwhile = store.started
        store.release.set()
        answers = sorted([await statement for statement in statements])

    assert len(done) == 1
    assert started_meanwhile == few.running_max
    assert answers == [(429, 202), *[(500, 394)] * (few.running_max + few.waiting_per_caller_max)]
