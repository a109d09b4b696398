"""Requests and answers of the ClickHouse endpoint: routes, formats, parameters, settings, errors, token."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientResponse
from structlog.testing import capture_logs

from receiver.console.queries.raw_sql.client_statement import LIMITS
from receiver.console.queries.raw_sql.statement import QUERY_CHARS_MAX
from receiver.console.tools.clickhouse_http.endpoint import BODY_BYTES_MAX
from receiver.console.tools.clickhouse_http.formats import CONTENT_TYPES
from receiver.engine.store import Store
from tests.support.api import Client
from tests.support.cases import each_case
from tests.support.clickhouse_endpoint import TOKEN, asked, code_of, lines, raw, served

ROWS = "SELECT number AS n, 'a' AS s FROM numbers(3)"


async def test_ping_is_answered_without_a_statement(client: Client) -> None:
    for path in ("/ping", "/"):
        answer = await client.get(path)
        assert (answer.status, await answer.text()) == (200, "Ok.\n")


async def test_statement_comes_in_the_url_in_the_body_or_in_both(client: Client) -> None:
    in_url = await client.get("/", params={"query": ROWS})

    assert (await in_url.text()).splitlines() == await lines(client, ROWS) == ["0\ta", "1\ta", "2\ta"]
    assert await lines(client, "FROM numbers(3)", query="SELECT number") == ["0", "1", "2"]


async def check_format(answer: ClientResponse, store: Store, form: str) -> None:
    """Fail unless an answer to `ROWS` is in a format as the engine writes it."""
    with store.read_only({}) as connection:
        expected = connection.whole(f"SELECT * FROM ({ROWS})", form, {})  # noqa: S608 - a constant
    assert (answer.status, answer.headers["X-ClickHouse-Format"]) == (200, form)
    assert answer.headers["Content-Type"] == CONTENT_TYPES[form]
    assert without_times(await answer.read()) == without_times(expected)


@each_case("form", CONTENT_TYPES)
async def test_format_is_answered_as_the_engine_writes_it(client: Client, store: Store, form: str) -> None:
    await check_format(await asked(client, f"{ROWS} FORMAT {form};"), store, form)


async def test_format_comes_in_a_parameter_or_in_a_header(client: Client, store: Store) -> None:
    by_parameter = await asked(client, ROWS, default_format="JSONCompact")
    by_header = await client.post("/", data=ROWS.encode(), headers={"X-ClickHouse-Format": "jsoncompact"})

    for answer in (by_parameter, by_header):
        await check_format(answer, store, "JSONCompact")


def without_times(body: bytes) -> bytes:
    """Return an answer without the duration that JSON formats have at their end."""
    return body.partition(b'"statistics"')[0]


@each_case("form", ["Null", "Values", "Avro", "SQLInsert", "Template", "nosuch"])
async def test_other_format_is_refused_before_the_statement_runs(client: Client, form: str) -> None:
    assert await code_of(client, f"{ROWS} FORMAT {form}") == (404, 73)
    assert await code_of(client, ROWS, default_format=form) == (404, 73)


async def test_answer_names_its_query_and_its_server(client: Client) -> None:
    answer = await asked(client, "SELECT 1", query_id="q-1")
    unusable = await client.get(raw("/?query=SELECT+1&query_id=a%0d%0ab"))

    assert answer.headers["X-ClickHouse-Query-Id"] == "q-1"
    assert answer.headers["X-ClickHouse-Timezone"] == "UTC"
    assert answer.headers["X-ClickHouse-Server-Display-Name"] == "trace-drain"
    assert int(json.loads(answer.headers["X-ClickHouse-Summary"])["elapsed_ns"]) > 0
    assert len(unusable.headers["X-ClickHouse-Query-Id"]) == 32


@each_case(
    ("kind", "text", "expected"),
    [
        ("String", r"x\'y\\z\t%(a)s", "x'y\\z\t%(a)s"),
        ("Array(String)", r"['q\'r','{a:b}']", ["q'r", "{a:b}"]),
        ("Map(String, UInt8)", "{'k':1}", {"k": 1}),
        ("Nullable(Int8)", r"\N", None),
        ("DateTime", "0000000000", "1970-01-01 00:00:00"),
        ("DateTime64(3)", "2026-01-01 00:00:00.123", "2026-01-01 00:00:00.123"),
        ("Decimal(9, 2)", "1.25", 1.25),
        ("Bool", "true", True),
    ],
)
async def test_value_of_a_parameter_is_bound_by_its_type(
    client: Client, kind: str, text: str, expected: object
) -> None:
    statement = f"SELECT {{value:{kind}}} AS x WHERE '%(unused)s' != ''"
    (line,) = await lines(client, statement, default_format="JSONEachRow", param_value=text, param_unused="'")

    assert json.loads(line) == {"x": expected}


@each_case(
    ("statement", "parameters", "expected"),
    [
        ("SELECT {a:String}", {}, (403, 497)),
        ("SELECT {a:Identifier} FROM otel_traces", {"param_a": "TraceId"}, (403, 497)),
        ("SELECT * FROM {a:Identifier}", {"param_a": "otel_traces"}, (403, 497)),
        ("SELECT {a:Array(Identifier)}", {"param_a": "[]"}, (403, 497)),
        ("SELECT {a:JSON}", {"param_a": "{}"}, (403, 497)),
        ("SELECT {a:AggregateFunction(sum, UInt8)}", {"param_a": ""}, (403, 497)),
        ("SELECT {a:UInt8}", {"param_a": "x"}, (400, 457)),
        ("", {}, (400, 62)),
        ("SELECT FROM WHERE", {}, (400, 62)),
        ("SELECT 1; SELECT 2", {}, (400, 62)),
        ("SELECT 'a\0b'", {}, (400, 62)),
        ("SELECT nosuch", {}, (404, 47)),
        ("SELECT nosuch(1)", {}, (403, 497)),
        ("SELECT length(1)", {}, (400, 43)),
        ("SELECT * FROM nosuch", {}, (403, 497)),
        ("SELECT 1 SETTINGS max_threads = 1", {}, (403, 497)),
        ("SELECT toUInt8(StatusMessage) FROM otel_traces", {}, (400, 32)),
        ("INSERT INTO otel_traces (TraceId) VALUES ('a')", {}, (500, 164)),
        ("/* a */ (insert INTO otel_traces SELECT 1)", {}, (500, 164)),
        ("-- a\nDROP TABLE otel_traces", {}, (500, 164)),
        ("SET max_threads = 1", {}, (500, 164)),
        ("KILL QUERY WHERE 1", {}, (500, 164)),
        pytest.param("SELECT 1".ljust(QUERY_CHARS_MAX + 1), {}, (413, 229), id="too long a statement"),
        pytest.param("SELECT 1".ljust(BODY_BYTES_MAX + 1), {}, (413, 229), id="too long a body"),
        ("SELECT 1", {"max_threads": "1"}, (404, 115)),
        ("SELECT 1", {"select": "1"}, (404, 115)),
        ("SELECT 1", {"output_format_schema": "written"}, (404, 115)),
        ("SELECT 1", {"additional_table_filters": "{}"}, (404, 115)),
        ("SELECT 1", {"role": "x"}, (404, 115)),
        ("SELECT 1", {"<b>": "1"}, (404, 115)),
        ("SELECT 1", {"readonly": "0"}, (500, 164)),
        ("SELECT 1", {"compress": "1"}, (501, 48)),
        ("SELECT 1", {"decompress": "1"}, (501, 48)),
        ("SELECT 1", {"max_result_rows": "-1"}, (400, 36)),
        ("SELECT 1", {"max_execution_time": "1e9"}, (400, 36)),
        ("SELECT 1", {"join_use_nulls": "2"}, (400, 36)),
        ("SELECT 1", {"date_time_output_format": "x"}, (400, 36)),
        ("SELECT 1", {"client_protocol_version": "x"}, (400, 36)),
        ("SELECT 1", {"database": "system"}, (404, 81)),
    ],
)
async def test_refusal_has_the_code_and_the_status_of_clickhouse(
    client: Client, statement: str, parameters: dict[str, str], expected: tuple[int, int]
) -> None:
    answer = await asked(client, statement, **parameters)

    code, text = answer.headers["X-ClickHouse-Exception-Code"], await answer.text()
    assert (answer.status, int(code)) == expected
    assert text.startswith(f"Code: {code}. DB::Exception: ")
    assert "<b>" not in text


async def test_error_quotes_no_value_of_a_row(client: Client) -> None:
    answer = await asked(client, "SELECT toUInt8(StatusMessage) FROM otel_traces WHERE StatusMessage != ''")

    assert "declined" not in await answer.text()


@each_case(
    "parameters",
    [
        dict.fromkeys(LIMITS, "0"),
        dict.fromkeys(LIMITS, "99999999999999999999"),
        {"database": "otel", "readonly": "2", "compress": "0", "user": "anyone"},
        {"database": "default", "session_id": "s", "wait_end_of_query": "1"},
        {"client_protocol_version": "54460"},
    ],
)
async def test_parameters_without_an_effect_are_accepted(client: Client, parameters: dict[str, str]) -> None:
    assert await lines(client, "SELECT 1", **parameters) == ["1"]


async def test_setting_of_the_form_changes_the_answer(client: Client) -> None:
    statement = "SELECT toUInt64(1) AS x, toDateTime('2026-01-01 00:00:00') AS t FORMAT JSONEachRow"
    quoted = {"output_format_json_quote_64bit_integers": "1", "date_time_output_format": "iso"}

    assert json.loads((await lines(client, statement))[0]) == {"x": 1, "t": "2026-01-01 00:00:00"}
    assert json.loads((await lines(client, statement, **quoted))[0]) == {
        "x": "1",
        "t": "2026-01-01T00:00:00Z",
    }


async def test_repeated_parameter_is_refused(client: Client) -> None:
    answer = await client.get(raw("/?query=SELECT+1&max_result_rows=1&max_result_rows=0"))

    assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (400, "36")


@each_case(
    ("method", "path", "status"),
    [("GET", "/nosuch", 404), ("PUT", "/", 405), ("HEAD", "/?query=SELECT+1", 405)],
)
async def test_other_route_does_not_exist(client: Client, method: str, path: str, status: int) -> None:
    assert (await client.request(method, path)).status == status


async def test_body_may_be_compressed_and_has_to_be_text(client: Client) -> None:
    packed = gzip.compress(b"SELECT 1")
    unpacked = await client.post("/", data=packed, headers={"Content-Encoding": "gzip"})
    form = await client.post("/", data=b"", headers={"Content-Type": "multipart/form-data; boundary=x"})
    binary = await client.post("/", data=b"SELECT '\xff'")

    assert await unpacked.text() == "1\n"
    assert (form.status, form.headers["X-ClickHouse-Exception-Code"]) == (501, "48")
    assert (binary.status, binary.headers["X-ClickHouse-Exception-Code"]) == (400, "36")


@each_case("coding", ["gzip", "zstd"])
async def test_long_answer_is_compressed_if_the_client_accepts_it(client: Client, coding: str) -> None:
    statement = "SELECT number FROM numbers(300000)"
    headers = {"Accept-Encoding": coding}
    answer = await client.post("/", data=statement.encode(), headers=headers)

    assert answer.headers["Content-Encoding"] == coding
    assert (await answer.read()).splitlines() == [b"%d" % number for number in range(300_000)]


def basic(password: str, user: str = "anyone") -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.fixture
async def guarded(store: Store) -> AsyncIterator[Client]:
    """Yield a client of an endpoint with a token."""
    async with served(store, TOKEN) as client:
        yield client


@each_case(
    ("headers", "query", "status"),
    [
        ({}, {}, 401),
        (basic(""), {}, 401),
        ({"X-ClickHouse-Key": TOKEN, "X-ClickHouse-User": "anyone"}, {}, 200),
        (basic(TOKEN), {}, 200),
        (basic(TOKEN, user="a"), {}, 200),
        ({"Authorization": f"Bearer {TOKEN}"}, {}, 200),
        ({"Authorization": f"bearer {TOKEN}"}, {}, 200),
        ({"Authorization": basic(TOKEN)["Authorization"].replace("Basic", "BASIC")}, {}, 200),
        ({}, {"user": "anyone", "password": TOKEN}, 200),
        ({"X-ClickHouse-Key": f"{TOKEN}x"}, {}, 403),
        (basic("wrong"), {}, 403),
        ({"Authorization": "Basic %%%"}, {}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, {}, 403),
        ({}, {"password": "wrong"}, 403),
    ],
)
async def test_statement_needs_the_token(
    guarded: Client, headers: dict[str, str], query: dict[str, str], status: int
) -> None:
    answer = await guarded.get("/", params={"query": "SELECT 1", **query}, headers=headers)
    ping = await guarded.get("/ping")

    assert (answer.status, ping.status) == (status, 200)
    if status != 200:
        assert answer.headers["X-ClickHouse-Exception-Code"] == "516"
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)


@each_case(
    "headers",
    [
        [*basic(TOKEN).items(), *basic(TOKEN).items()],
        [*basic(TOKEN).items(), *basic("wrong").items()],
        [("X-ClickHouse-Key", TOKEN), ("X-ClickHouse-Key", TOKEN)],
    ],
)
async def test_repeated_password_is_refused(guarded: Client, headers: list[tuple[str, str]]) -> None:
    answer = await guarded.get("/?query=SELECT+1", headers=headers)
    parameters = await guarded.get(f"/?query=SELECT+1&password={TOKEN}&password={TOKEN}")

    assert (answer.status, parameters.status) == (403, 403)


async def test_host_of_another_site_and_a_page_of_it_are_refused(client: Client) -> None:
    rebound = await client.get("/?query=SELECT+1", headers={"Host": "attacker.example"})
    page = await client.post("/", data=b"SELECT 1", headers={"Origin": "https://attacker.example"})

    assert (rebound.status, page.status) == (403, 403)


async def test_log_has_neither_the_token_nor_the_statement(guarded: Client) -> None:
    with capture_logs() as logs:
        for statement in ("SELECT 'canary'", "SELECT nosuch('canary')"):
            await guarded.get("/", params={"query": statement, "password": TOKEN, "param_a": "canary"})

    ended = [line for line in logs if line["event"] == "SQL statement ended"]
    assert [line["error"] for line in ended] == ["", "InvalidStatement"]
    assert TOKEN not in str(logs)
    assert "canary" not in str(logs)
