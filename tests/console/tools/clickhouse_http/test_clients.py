"""Stock clients: clickhouse-connect itself, and recorded requests of @clickhouse/client and clickhouse-go.

The recordings hold what the clients sent to this endpoint through a proxy (method, URL, headers, body), and
the status, the error code and the format of its answers, which the clients had understood.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import clickhouse_connect
import polars as pl
import pytest
import pytest_asyncio
from aiohttp import ClientSession
from clickhouse_connect.driver.client import Client as ConnectClient
from clickhouse_connect.driver.exceptions import DatabaseError, StreamFailureError

from receiver.engine.store import Store
from tests.support.api import Client
from tests.support.cases import each_case
from tests.support.clickhouse_endpoint import TOKEN, port_of, raw, served

RECORDED: dict[str, dict[str, Any]] = {
    f"{path.stem}-{index}": request
    for path in sorted((Path(__file__).parent / "recorded").glob("*.json"))
    for index, request in enumerate(json.loads(path.read_text()))
}
SPANS = 6
"""Rows of the shop."""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(store: Store) -> AsyncIterator[Client]:
    """Yield one endpoint for all tests of this file."""
    async with served(store, TOKEN) as client:
        yield client


def connect(client: Client, **options: Any) -> ConnectClient:  # noqa: ANN401 - those of clickhouse-connect
    """Return clickhouse-connect, connected to the endpoint. Its calls block: tests make them in threads."""
    return clickhouse_connect.get_client(
        host="127.0.0.1", port=port_of(client), password=TOKEN, database="otel", **options
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(client: Client) -> AsyncIterator[ConnectClient]:
    """Yield one connection for all tests of this file."""
    opened = await asyncio.to_thread(connect, client)
    yield opened
    opened.close()


def recorded_with(part: str, text: str) -> dict[str, Any]:
    return next(request for request in RECORDED.values() if text in request[part])


def replay_of(request: dict[str, Any]) -> dict[str, Any]:
    return {"method": request["method"], "data": request["body"].encode(), "headers": request["headers"]}


@each_case("recorded", RECORDED.values(), ids=RECORDED)
async def test_recorded_request_is_answered_as_it_was(client: Client, recorded: dict[str, Any]) -> None:
    # A session that adds no header of its own.
    async with ClientSession(skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent")) as session:
        url = client.make_url("/").join(raw(recorded["target"]))
        answer = await session.request(url=url, **replay_of(recorded))
        body = await answer.read()

    assert answer.status == recorded["status"], body
    assert answer.headers.get("X-ClickHouse-Exception-Code") == recorded["code"]
    assert answer.headers.get("X-ClickHouse-Format") == recorded["format"]
    assert body


async def test_recorded_parameters_arrive_with_their_values(client: Client) -> None:
    recorded = recorded_with("target", "param_m")
    answer = await client.request(path=raw(recorded["target"]), **replay_of(recorded))

    (row,) = (await answer.json())["data"]
    assert row == {"a": "x'y\\z\t", "b": ["q'r"], "m": {"k": "v'"}, "d": "1970-01-01 00:00:00", "n": None}


async def test_greeting_of_clickhouse_go_is_a_block_of_its_revision(client: Client) -> None:
    recorded = recorded_with("body", "revision()")
    body = await (await client.request(path=raw(recorded["target"]), **replay_of(recorded))).read()

    # One row of four columns; each type is followed by the flag of a usual encoding.
    assert body.startswith(bytes.fromhex("010002ffffffff000401") + b"\x0ddisplayName()\x06String\0")
    assert b"\x0arevision()\x06UInt32\0" in body
    assert body.endswith(b"\x0atimezone()\x06String\0\x03UTC")


async def test_rows_are_read_and_an_answer_without_rows_has_its_columns(connected: ConnectClient) -> None:
    found = await asyncio.to_thread(
        connected.query,
        "SELECT SpanName, Timestamp, Duration, SpanAttributes FROM otel_traces ORDER BY Timestamp",
    )

    assert found.column_names == ("SpanName", "Timestamp", "Duration", "SpanAttributes")
    assert found.row_count == SPANS
    name, instant, duration, attributes = found.result_rows[0]
    assert (name, duration, attributes) == ("GET /checkout", 1_500_000_000, {"http.status_code": "500"})
    assert abs((datetime.now(UTC).replace(tzinfo=None) - instant).days) < 7
    empty = await asyncio.to_thread(connected.query, "SELECT ServiceName, 1 AS x FROM otel_traces WHERE 0")
    assert (empty.column_names, empty.row_count) == (("ServiceName", "x"), 0)


async def test_parameters_are_bound_by_the_engine(connected: ConnectClient) -> None:
    values = {"text": "x'y\\z\n%(a)s", "many": ["q'", "r"], "number": 7}
    statement = "SELECT {text:String}, {many:Array(String)}, {number:UInt64}"
    found = await asyncio.to_thread(connected.query, statement, values)

    assert found.result_rows == [(values["text"], values["many"], 7)]


async def test_frames_tables_and_streams_are_read(connected: ConnectClient) -> None:
    statement = "SELECT ServiceName AS service, count() AS spans FROM otel_traces GROUP BY 1 ORDER BY 1"
    frame = await asyncio.to_thread(connected.query_df, statement)
    table = await asyncio.to_thread(connected.query_arrow, statement)

    def streamed() -> int:
        with connected.query_row_block_stream("SELECT number FROM numbers(200000)") as stream:
            return sum(len(block) for block in stream)

    expected = [("db", 3), ("pay", 1), ("web", 2)]
    assert list(frame.itertuples(index=False, name=None)) == expected
    assert [tuple(row.values()) for row in table.to_pylist()] == expected
    assert await asyncio.to_thread(streamed) == 200_000


@each_case(
    ("statement", "code", "name"),
    [
        ("SELECT nosuch", 47, "UNKNOWN_IDENTIFIER"),
        ("SELECT file('/etc/passwd')", 497, "ACCESS_DENIED"),
        ("INSERT INTO otel_traces (TraceId) VALUES ('a')", 164, "READONLY"),
    ],
)
async def test_error_reaches_the_caller_with_its_code(
    connected: ConnectClient, statement: str, code: int, name: str
) -> None:
    with pytest.raises(DatabaseError) as refusal:
        await asyncio.to_thread(connected.query, statement)

    assert (refusal.value.code, refusal.value.name) == (code, name)


@each_case("compression", ["lz4", "zstd", None])
async def test_insert_of_rows_is_refused_as_read_only(
    connected: ConnectClient, compression: str | None
) -> None:
    def insert(rows: int) -> None:
        context = connected.create_insert_context(
            "otel_traces", ["TraceId"], column_type_names=["String"], data=[["\xff" * 200]] * rows
        )
        context.compression = compression
        connected.insert(context=context)

    # The larger body is over the size of a statement, unless it is compressed.
    for rows in (1, 2_000):
        with pytest.raises(DatabaseError) as refusal:
            await asyncio.to_thread(insert, rows)
        assert (refusal.value.code, refusal.value.name) == (164, "READONLY")


@each_case("compress", [True, False])
async def test_stream_that_fails_ends_with_the_error_that_the_client_raises(
    client: Client, *, compress: bool
) -> None:
    def read() -> object:
        with connect(client, compress=compress) as opened:
            return opened.query("SELECT number FROM numbers(1000001)").result_rows

    with pytest.raises(StreamFailureError, match=r"Code: 396\. DB::Exception: .*max_result_rows"):
        await asyncio.to_thread(read)


async def test_files_are_read_by_polars(client: Client) -> None:
    async def body(form: str) -> io.BytesIO:
        statement = f"SELECT ServiceName, Duration FROM otel_traces FORMAT {form}"  # noqa: S608 - of constants
        answer = await client.get("/", params={"query": statement}, headers={"X-ClickHouse-Key": TOKEN})
        return io.BytesIO(await answer.read())

    frames = [
        pl.read_parquet(await body("Parquet")),
        pl.read_ipc(await body("Arrow")),
        pl.read_ipc_stream(await body("ArrowStream")),
        pl.read_csv(await body("CSVWithNames")),
    ]

    assert {frame["Duration"].sum() for frame in frames} == {5 * 1_500_000_000 + 999}
    assert {frame.columns[0] for frame in frames} == {"ServiceName"}
