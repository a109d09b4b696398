"""Contract tests of Tempo's HTTP API: requests as Grafana sends them, answers as its decoders accept them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from receiver.console.queries.filters.filter_values import CHARACTERS_MAX
from receiver.console.queries.tool_search import Matching
from receiver.console.tools.common import TRACES_MAX
from receiver.console.tools.tempo import routes
from receiver.console.tools.tempo.routes import SPANS_MAX, TempoRoutes
from receiver.console.tools.tempo.search import trace_item
from receiver.engine.store import Store
from tests.support.api import Client, client_of
from tests.support.cases import each_case
from tests.support.hostile_filters import HOSTILE
from tests.support.tool_api import CART, CHARGE, CHECKOUT, ORPHAN, QUERY, RANGE_S, ROOT, START_S, UNKNOWN, url

TIMES = {"start": RANGE_S[0], "end": RANGE_S[1]}
CHARGED = '{resource.service.name="pay" && name="charge" && span.card=~"vi.*" && kind=server && duration>1s}'


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with client_of(store, TempoRoutes) as client:
        yield client


async def answer(client: Client, path: str, **query: object) -> Any:  # noqa: ANN401 - any JSON
    response = await client.get(url(f"/tempo/api{path}", **query))
    assert response.status == 200, await response.text()
    assert response.content_type == "application/json"
    assert (await response.text()).endswith("}\n")
    return await response.json()


async def search(client: Client, q: str, **query: object) -> list[dict[str, Any]]:
    body = await answer(client, "/search", q=q, **{**TIMES, **query})
    assert body.keys() == {"traces", "metrics"}
    traces: list[dict[str, Any]] = body["traces"]
    return traces


async def values(client: Client, tag: str, **query: object) -> list[str]:
    body = await answer(client, f"/v2/search/tag/{tag}/values", **TIMES, **query)
    return sorted(value["value"] for value in body["tagValues"])


async def test_health_check_is_echo_and_the_version_is_that_of_the_api(client: Client) -> None:
    assert await (await client.get("/tempo/api/echo")).text() == "echo"
    assert (await answer(client, "/status/buildinfo"))["version"] == routes.VERSION


def span_ids(trace: TracesData) -> set[str]:
    return {
        span.span_id.hex()
        for group in trace.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    }


async def test_trace_is_protobuf(client: Client) -> None:
    response = await client.get(url(f"/tempo/api/traces/{CHECKOUT.lstrip('0')}", **TIMES))

    assert response.content_type == "application/protobuf"
    assert span_ids(TracesData.FromString(await response.read())) == {ROOT, CHARGE, QUERY, ORPHAN}


async def test_trace_response_of_version_2_contains_the_trace(client: Client) -> None:
    response = await client.get(
        url(f"/tempo/api/v2/traces/{CHECKOUT}", **TIMES), headers={"Accept": "application/protobuf"}
    )
    body = await response.read()

    assert response.content_type == "application/protobuf"
    assert span_ids(trace_of(body)) == {ROOT, CHARGE, QUERY, ORPHAN}


def trace_of(body: bytes) -> TracesData:
    """Decode a `TraceByIDResponse`: field 1, repeated, whose occurrences are merged as protobuf demands."""
    trace, at = TracesData(), 0
    while at < len(body):
        assert body[at] == 1 << 3 | 2
        length, shift = 0, 0
        while True:
            at += 1
            length |= (body[at] & 0x7F) << shift
            shift += 7
            if body[at] < 0x80:
                break
        at += 1
        trace.MergeFromString(body[at : at + length])
        at += length
    return trace


async def test_search_as_the_query_builder_writes_it(client: Client) -> None:
    (trace,) = await search(client, CHARGED, limit=20, spss=3)

    assert trace == {
        "traceID": CHECKOUT,
        "rootServiceName": "web",
        "rootTraceName": "GET /checkout",
        "startTimeUnixNano": str(START_S * 10**9 + 123_456),
        "durationMs": 4_500,
        "spanSets": [
            {
                "matched": 1,
                "spans": [
                    {
                        "spanID": CHARGE,
                        "name": "charge",
                        "startTimeUnixNano": str((START_S + 1) * 10**9 + 123_456),
                        "durationNanos": "1500000000",
                        "attributes": [
                            {"key": "service.name", "value": {"stringValue": "pay"}},
                            {"key": "card", "value": {"stringValue": "visa"}},
                        ],
                    }
                ],
            }
        ],
        "serviceStats": {
            "db": {"spanCount": 2, "errorCount": 0},
            "pay": {"spanCount": 1, "errorCount": 1},
            "web": {"spanCount": 1, "errorCount": 0},
        },
    }


def test_duration_fits_the_32_bits_of_its_field() -> None:
    row = {
        "trace_id": CART,
        "service": "web",
        "name": "GET /cart",
        "start_ns": 0,
        "duration_ns": str(2**63),
        "service_spans": {},
        "service_errors": {},
    }

    assert trace_item(row, Matching(0, []), [])["durationMs"] == 2**32 - 1


async def test_matching_spans_are_counted_once_and_the_first_are_shown(client: Client) -> None:
    _, trace = await search(client, "{}", spss=2)

    (spanset,) = trace["spanSets"]
    assert spanset["matched"] == 4
    assert [span["spanID"] for span in spanset["spans"]] == [ROOT, CHARGE]


@each_case(
    ("q", "expected"),
    [
        ("", [CART, CHECKOUT]),
        ("{}", [CART, CHECKOUT]),
        ("{status=error}", [CHECKOUT]),
        ('{.http.status_code="200"}', [CART]),
        ('{resource.host.name="db-1"}', [CHECKOUT]),
        ('{status=error} && {name="SELECT"}', [CHECKOUT]),
        ("{traceDuration>4s}", [CHECKOUT]),
        ('{rootName="GET /cart"}', [CART]),
        ("{false}", []),
    ],
)
async def test_traceql_query_returns_the_matching_traces(client: Client, q: str, expected: list[str]) -> None:
    assert [trace["traceID"] for trace in await search(client, q)] == expected


@each_case(("query", "expected"), [({"limit": 1}, [CART]), ({"end": START_S + 30}, [CHECKOUT])])
async def test_search_is_limited_by_number_and_by_seconds(
    client: Client, query: dict[str, int], expected: list[str]
) -> None:
    assert [trace["traceID"] for trace in await search(client, "{}", **query)] == expected


async def test_search_shows_the_matching_spans_of_joined_spansets(client: Client) -> None:
    (trace,) = await search(client, '{status=error} && {traceDuration>4s && name="SELECT"}', spss=10)

    (spanset,) = trace["spanSets"]
    assert [span["spanID"] for span in spanset["spans"]] == [CHARGE, QUERY, ORPHAN]


async def test_words_are_searched_in_the_texts_of_spans(client: Client) -> None:
    assert [trace["traceID"] for trace in await search(client, "Checkout get")] == [CHECKOUT]


async def test_tags_are_listed_by_scope(client: Client) -> None:
    scopes = {
        scope["name"]: scope["tags"] for scope in (await answer(client, "/v2/search/tags", **TIMES))["scopes"]
    }

    assert scopes["span"] == ["http.status_code", "card"]
    assert sorted(scopes["resource"]) == ["host.name", "service.name"]
    assert {"name", "status", "kind", "duration", "rootServiceName"} <= set(scopes["intrinsic"])


@each_case("scope", ["span", "resource", "intrinsic"])
async def test_tags_of_a_single_scope_are_listed(client: Client, scope: str) -> None:
    body = await answer(client, "/v2/search/tags", scope=scope, **TIMES)

    assert [listed["name"] for listed in body["scopes"]] == [scope]


async def test_older_lists_have_all_names_and_the_values_as_texts(client: Client) -> None:
    names = (await answer(client, "/search/tags", **TIMES))["tagNames"]

    assert {"http.status_code", "card", "host.name", "service.name", "name"} <= set(names)
    assert len(names) == len(set(names))
    assert await answer(client, "/search/tag/card/values", **TIMES) == {"tagValues": ["visa"]}


@each_case(
    ("tag", "expected"),
    [
        ("resource.service.name", ["db", "pay", "web"]),
        ("span.http.status_code", ["200", "402", "500"]),
        (".card", ["visa"]),
        (".host.name", ["db-1", "pay-1", "web-1"]),
        ("name", ["GET /cart", "GET /checkout", "SELECT", "charge"]),
        ("rootName", ["GET /cart", "GET /checkout"]),
        ("rootServiceName", ["web"]),
        ("trace:rootService", ["web"]),
        ("statusMessage", ["", "declined"]),
        ("status", ["error", "ok", "unset"]),
        ("kind", ["client", "consumer", "internal", "producer", "server", "unspecified"]),
        ("duration", []),
        ("event.exception.type", []),
        ("instrumentation:name", ["", "stripe"]),
        ("instrumentation.x", []),
    ],
)
async def test_values_of_a_tag_are_listed(client: Client, tag: str, expected: list[str]) -> None:
    assert await values(client, tag) == expected


async def test_value_has_the_type_by_which_grafana_quotes_it(client: Client) -> None:
    async def types(tag: str) -> set[str]:
        body = await answer(client, f"/v2/search/tag/{tag}/values", **TIMES)
        return {value["type"] for value in body["tagValues"]}

    assert await types("span.http.status_code") == {"int"}
    assert await types("resource.service.name") == {"string"}
    assert await types("status") == {"keyword"}


@each_case(
    ("q", "expected"),
    [
        ('{resource.service.name="web"}', ["200", "500"]),
        ("{status=error}", ["402"]),
        ("{status=", ["200", "402", "500"]),
        ("{traceDuration>4s}", ["200", "402", "500"]),
        ("{status=error} && {}", ["200", "402", "500"]),
    ],
)
async def test_values_are_those_of_a_query_that_is_complete(
    client: Client, q: str, expected: list[str]
) -> None:
    assert await values(client, "span.http.status_code", q=q) == expected


async def test_number_of_values_is_limited(client: Client) -> None:
    assert len(await values(client, "name", limit=2)) == 2


@each_case("text", HOSTILE)
async def test_hostile_text_is_only_compared(client: Client, text: str) -> None:
    quoted = json.dumps(text)

    assert await search(client, f"{{name={quoted}}}") == []
    assert await values(client, "name", q=f"{{name={quoted}}}") == []


@each_case(
    ("path", "query", "status", "message"),
    [
        ("/search", {"q": "{status=}"}, 400, "q, column 9: the value is missing"),
        ("/search", {"q": "{} | rate()"}, 400, "q, column 4: pipelines and metrics"),
        ("/search", {"q": '{name=~"("}'}, 400, "q, column 8: the regular expression is not valid"),
        ("/search", {"tags": "card=visa"}, 400, "a search by tags is not supported; expected q"),
        ("/search", {"q": "{}", "limit": TRACES_MAX + 1}, 400, "limit: expected a whole number from 1 to"),
        (
            "/search",
            {"q": "{}", "spss": SPANS_MAX + 1},
            400,
            f"spss: expected a whole number from 1 to {SPANS_MAX}",
        ),
        ("/search", {"start": "now"}, 400, "start: expected a whole number since 1970, as seconds"),
        ("/search", {"start": 2, "end": 1}, 400, "the time range ends before it begins"),
        ("/search/tags", {"start": "x"}, 400, "start: expected a whole number"),
        (f"/v2/search/tag/{'a' * (CHARACTERS_MAX + 1)}/values", {}, 400, "the name of the tag is too long"),
        ("/v2/search/tag/a%00b/values", {}, 400, "the name of the tag is too long or has a NUL character"),
        (f"/traces/{UNKNOWN}", {}, 404, "no span of this trace is stored"),
        (f"/v2/traces/{UNKNOWN}", {}, 404, "no span of this trace is stored"),
        ("/v2/traces/xyz", {}, 400, "the trace id is not valid; expected 1 to 32 hex digits"),
    ],
)
async def test_error_is_answered_as_plain_text(
    client: Client, path: str, query: dict[str, object], status: int, message: str
) -> None:
    response = await client.get(url(f"/tempo/api{path}", **query))

    assert response.status == status
    assert response.content_type == "text/plain"
    assert (await response.text()).startswith(message)
