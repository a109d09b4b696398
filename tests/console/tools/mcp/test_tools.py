"""Results of tools: their content and length, and delimiters that senders cannot imitate."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path

import orjson
import pytest

from receiver.console.api.source import Answer
from receiver.console.queries.questions import QUESTIONS
from receiver.console.tools.mcp import tools
from receiver.console.tools.mcp.endpoint import McpRoutes
from receiver.console.tools.mcp.result import (
    CHARACTERS_MAX,
    CHARACTERS_PER_TOKEN,
    TEXT_CHARACTERS_MAX,
    fenced,
    visible,
)
from receiver.console.tools.mcp.tool import Tool
from receiver.engine.store import Store
from tests.console.tools.mcp.conftest import Client, Json, Spans, Start, called, request_of
from tests.support import engines
from tests.support.api import client_of
from tests.support.cases import each_case
from tests.support.fake_clickhouse import NOW_S
from tests.support.traces import span

TRACE = "a" * 32
HIDDEN = "\x1b[2J\u202egnp\u200b\x00\U000e0041\u2028\x9b"


def content_of(result: Json) -> list[Json]:
    """Return the documents between the delimiters of a result, and check the delimiters."""
    text = result["content"][0]["text"]
    match = re.fullmatch(r"[^\n]+\n<data (\w+)>\n(.*)\n</data \1>", text, re.DOTALL)
    assert match, text
    assert match[1] not in match[2]
    return [json.loads(line) for line in match[2].splitlines()]


def test_delimiter_is_chosen_again_if_the_content_has_its_nonce() -> None:
    nonces = chain(["ab", "cd"], repeat("ef"))

    assert "<data ef>" in fenced("ab </data cd>", lambda: next(nonces))


@each_case("character", [each for each in HIDDEN if not each.isprintable()])
def test_hidden_character_is_shown_as_an_escape_sequence(character: str) -> None:
    shown = visible(f"a{character}b")

    assert shown.isprintable()
    assert shown.startswith("a\\")


def test_ordinary_text_of_any_language_is_kept() -> None:
    assert visible("Größe 値 é 🙂") == "Größe 値 é 🙂"


def test_long_text_says_how_much_is_left_out() -> None:
    assert visible("x" * (TEXT_CHARACTERS_MAX + 7)).endswith("x … (7 more characters)")


async def test_text_of_a_span_reaches_neither_form_of_a_result_with_hidden_characters(start: Start) -> None:
    row = {"service": HIDDEN, "example_trace_id": TRACE, "operations": [HIDDEN], HIDDEN: 1}

    result = await called(await start(Spans(Answer([row]))), "errors")

    text = result["content"][0]["text"] + json.dumps(result["structuredContent"], ensure_ascii=False)
    assert [character for character in HIDDEN if character in text and not character.isprintable()] == []


async def test_text_and_structured_content_are_equal(start: Start) -> None:
    rows = [{"service": "web", "spans": 3}, {"service": "db", "spans": 2}]

    result = await called(await start(Spans(Answer(rows, is_cut=True))), "services")

    head, *shown = content_of(result)
    assert shown == rows
    assert result["structuredContent"] == {**head, "services": rows}
    assert head["more_match"] is True


async def test_rows_that_do_not_fit_are_counted(start: Start) -> None:
    rows = [{"value": "v" * 300, "spans": place} for place in range(1_000)]

    result = await called(await start(Spans(Answer(rows))), "attribute_values", key="k")

    head, *shown = content_of(result)
    assert len(result["content"][0]["text"]) <= CHARACTERS_MAX
    assert shown == rows[: len(shown)]
    assert head["left_out"] == {"rows": 1_000 - len(shown)}


async def test_links_are_pages_of_the_host_that_the_client_uses(start: Start) -> None:
    client = await start(Spans(Answer([{"trace_id": TRACE}])))
    call = {"name": "search_traces", "arguments": {"filter": 'name="a b&c"', "since": "2h"}}

    answer = await client.post(
        "/mcp", json=request_of("tools/call", call), headers={"Host": "traces.example:8318"}
    )

    found = (await answer.json())["result"]["structuredContent"]
    assert found["page"] == "http://traces.example:8318/search?filter=name%3D%22a%20b%26c%22&since=2h"
    assert found["traces"][0]["url"] == f"http://traces.example:8318/trace/{TRACE}"


async def test_search_takes_its_own_limit_and_suggests_keys(start: Start) -> None:
    source = Spans(Answer([], close_keys=["http.route"]))

    result = await called(await start(source), "search_traces", filter="http.rout=/cart")

    assert source.asked == {"filter": "http.rout=/cart", "since": "1h", "limit": "20"}
    assert result["structuredContent"]["similar_keys"] == ["http.route"]


async def test_search_takes_a_query_in_traceql(start: Start) -> None:
    source = Spans(Answer([]))

    result = await called(await start(source), "search_traces", q="{ status = error }")

    assert source.asked == {"q": "{ status = error }", "since": "1h", "limit": "20"}
    assert "page" not in result["structuredContent"]


def failing_trace(count: int = 0) -> list[Json]:
    """Return a request whose database call fails, beside a slow call and `count` short calls."""
    failed: Json = {"StatusCode": "Error", "SpanAttributes": {"db.statement": "UPDATE"}}
    event: Json = {"Events.Name": ["exception"], "Events.Attributes": [{"exception.type": "Deadlock"}]}
    return [
        span("root", end=10**9, **failed, StatusMessage="500"),
        span("query", "root", 10, 20, **failed, **event, StatusMessage="deadlock"),
        span("slow", "root", 30, 9 * 10**8),
        *(span(f"s{place}", "root", 40 + place, 41 + place) for place in range(count)),
    ]


async def test_trace_begins_with_the_origin_of_the_failure_then_the_critical_path(start: Start) -> None:
    client = await start(Spans(Answer([]), failing_trace(2)))

    head, first, second, third, *others = content_of(await called(client, "get_trace", trace_id=TRACE))

    assert (head["errors"], head["spans_stored"], head["trace_id"]) == (2, 5, TRACE)
    assert (first["span_id"], first["part"], first["message"]) == ("query", "error", "deadlock")
    assert first["events"] == [{"name": "exception", "attributes": {"exception.type": "Deadlock"}}]
    assert (second["span_id"], second["part"]) == ("root", "error")
    assert (third["span_id"], third["part"]) == ("slow", "critical path")
    assert [row["part"] for row in others] == ["other", "other"]


@each_case("tokens", [tools.TOKENS_MIN, tools.TOKENS_DEFAULT, tools.TOKENS_MAX])
async def test_trace_keeps_its_budget_and_counts_what_is_left_out(start: Start, tokens: int) -> None:
    hostile = {"SpanName": '"' * 5_000, "ProjectId": '"' * 5_000, "DeploymentId": "\x00" * 5_000}
    stored = [
        row | hostile | {"ServiceName": f"{place % 9}" + "\x00" * 5_000}
        for place, row in enumerate(failing_trace(3_000))
    ]

    result = await called(await start(Spans(Answer([]), stored)), "get_trace", trace_id=TRACE, tokens=tokens)

    head, *shown = content_of(result)
    assert len(result["content"][0]["text"]) <= tokens * CHARACTERS_PER_TOKEN
    assert sum(head["left_out"].values()) == len(stored) - len(shown)


async def test_many_attributes_do_not_displace_the_origin_of_the_failure(start: Start) -> None:
    attributes = {f"key {place}": "v" * 300 for place in range(500)}
    stored = [row | {"SpanAttributes": attributes} for row in failing_trace()]

    result = await called(await start(Spans(Answer([]), stored)), "get_trace", trace_id=TRACE)

    _, first, *others = content_of(result)
    assert (first["span_id"], first["message"]) == ("query", "deadlock")
    assert len(first["attributes"]) + first["details_left_out"] == 500
    assert len(others) == 2


async def test_unknown_trace_is_an_error(start: Start) -> None:
    result = await called(await start(Spans(Answer([]))), "get_trace", trace_id=TRACE)

    assert result["isError"]
    assert "no span of this trace" in result["content"][0]["text"]


@each_case("tool", tools.TOOLS.values(), ids=tools.TOOLS)
def test_every_argument_without_a_value_from_the_caller_is_valid(tool: Tool) -> None:
    needed = [each.name for each in tool.parameters if each.is_required]

    checked = tool.arguments({name: TRACE if name == "trace_id" else name for name in needed})

    question = {"search_traces": "search", "compare_deployments": "compare", "attribute_values": "attributes"}
    name = question.get(tool.name, tool.name)
    assert name == "get_trace" or QUESTIONS[name].parse(checked)


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    """Yield the embedded store with requests of two deployments, the second of which fails."""
    with engines.embedded(engine_dir) as store:
        rows = [
            span(
                f"{place:016x}",
                TraceId=f"{place + 1:032x}",
                Timestamp=f"{datetime.fromtimestamp(NOW_S + place, UTC):%Y-%m-%d %H:%M:%S}.000000000",
                SpanKind="Server",
                ServiceName="web",
                DeploymentId=f"dpl_{1 + place // 100}",
                StatusCode="Error" if place >= 100 else "Unset",
                StatusMessage="deadlock" if place >= 100 else "",
                SpanAttributes={"http.route": "/cart"},
            )
            for place in range(200)
        ]
        store.command(
            "INSERT INTO otel_traces FORMAT JSONEachRow\n" + b"\n".join(map(orjson.dumps, rows)).decode()
        )
        yield store


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    """Return a client of the API with the endpoint."""
    headers = {"Authorization": "Bearer secret"}
    async with client_of(store, McpRoutes, token=lambda: "secret", options={"headers": headers}) as client:
        yield client


RANGE = {
    "since": datetime.fromtimestamp(NOW_S, UTC).isoformat(),
    "until": datetime.fromtimestamp(NOW_S + 300, UTC).isoformat(),
}


@each_case(
    ("tool", "arguments", "expected"),
    [
        ("search_traces", {"filter": "status=error", "limit": 1}, {"service": "web", "errors": 1}),
        ("services", {}, {"service": "web", "spans": 200, "errors": 100}),
        ("errors", {}, {"service": "web", "message": "deadlock", "spans": 100}),
        ("attribute_values", {"key": "http.route"}, {"value": "/cart", "spans": 200}),
        ("compare_deployments", {"a": "dpl_1", "b": "dpl_2"}, {"part": "new error", "message": "deadlock"}),
    ],
)
async def test_tool_answers_from_the_stored_spans(
    client: Client, tool: str, arguments: Json, expected: Json
) -> None:
    result = await called(client, tool, **arguments, **RANGE)

    assert not result["isError"], result
    _, row, *_ = content_of(result)
    assert {key: row[key] for key in expected} == expected


async def test_stored_trace_is_summarized(client: Client) -> None:
    head, row = content_of(await called(client, "get_trace", trace_id=f"{150:032x}"))

    assert (head["errors"], head["deployment"]) == (1, "dpl_2")
    assert row["attributes"] == [{"http.route": "/cart"}]


@each_case(
    ("headers", "status"),
    [({"Authorization": ""}, 401), ({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 403)],
    ids=["no token", "another origin", "another host"],
)
async def test_token_and_origin_are_required_as_for_the_api(
    client: Client, headers: dict[str, str], status: int
) -> None:
    answer = await client.post("/mcp", json=request_of("ping"), headers=headers)

    assert answer.status == status
