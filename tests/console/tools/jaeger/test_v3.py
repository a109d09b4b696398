"""Contract tests of Jaeger's HTTP API v3: requests as Jaeger UI sends them, answers as it decodes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from receiver.console.tools.jaeger.routes import JaegerRoutes
from receiver.engine.store import Store
from tests.support.api import Client, FailingStore, client_of
from tests.support.cases import each_case
from tests.support.hostile_filters import HOSTILE
from tests.support.tool_api import CART, CHARGE, CHECKOUT, ORPHAN, QUERY, RANGE_S, ROOT, START_S, UNKNOWN, url

BEGIN, END = (datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z") for second in RANGE_S)
TIMES: dict[str, Any] = {"query.startTimeMin": BEGIN, "query.startTimeMax": END}


async def answer(client: Client, path: str, status: int = 200, **query: Any) -> Any:  # noqa: ANN401 - JSON
    response = await client.get(url(f"/jaeger/api/v3{path}", **query))
    assert response.status == status, await response.text()
    assert response.content_type == "application/json"
    assert (await response.text()).endswith("}\n")
    return await response.json()


async def found(client: Client, **query: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return the ids of the traces that a search over the whole range finds."""
    body = await answer(client, "/trace-summaries", **TIMES, **query)
    return [summary["traceId"] for summary in body["summaries"]]


async def test_services_are_listed(client: Client) -> None:
    assert await answer(client, "/services") == {"services": ["db", "pay", "web"]}


@each_case("name", ["spanKind", "span_kind"])
async def test_operations_have_their_kind_and_can_be_selected_by_it(client: Client, name: str) -> None:
    assert await answer(client, "/operations", service="pay") == {
        "operations": [{"name": "charge", "spanKind": "server"}]
    }
    of_clients: dict[str, Any] = {"service": "pay", name: "client"}
    assert await answer(client, "/operations", **of_clients) == {"operations": []}


async def test_summary_counts_spans_by_service(client: Client) -> None:
    query: dict[str, Any] = {
        "query.serviceName": "pay",
        "query.operationName": "charge",
        "query.searchDepth": 20,
        "query.durationMin": "1.5s",
        "query.durationMax": "1.5s",
        "query.attributes": '{"card":"visa"}',
    }
    body = await answer(client, "/trace-summaries", **query, **TIMES)

    (summary,) = body["summaries"]
    services = sorted(summary.pop("services"), key=lambda service: str(service["name"]))
    assert services == [
        {"name": "db", "spanCount": 2, "errorSpanCount": 0},
        {"name": "pay", "spanCount": 1, "errorSpanCount": 1},
        {"name": "web", "spanCount": 1, "errorSpanCount": 0},
    ]
    assert summary == {
        "traceId": CHECKOUT,
        "rootServiceName": "web",
        "rootOperationName": "GET /checkout",
        "minStartTimeUnixNano": str(START_S * 10**9 + 123_456),
        "maxEndTimeUnixNano": str(START_S * 10**9 + 123_456 + 4_500_000_000),
        "spanCount": 4,
        "errorSpanCount": 1,
        "orphanSpanCount": 1,
    }


@each_case(
    ("query", "expected"),
    [
        ({}, [CART, CHECKOUT]),
        ({"query.searchDepth": 1}, [CART]),
        ({"query.search_depth": 1}, [CART]),
        ({"query.service_name": "db"}, [CHECKOUT]),
        ({"query.serviceName": "db", "query.attributes": '{"error":"true"}'}, []),
        ({"query.durationMin": "2s"}, []),
    ],
)
async def test_parameters_select_traces(client: Client, query: dict[str, Any], expected: list[str]) -> None:
    assert await found(client, **query) == expected


@each_case("text", HOSTILE)
async def test_hostile_text_is_only_compared(client: Client, text: str) -> None:
    assert await found(client, **{"query.serviceName": text}) == []


async def test_trace_is_otlp_json(client: Client) -> None:
    body = await answer(client, f"/traces/{CHECKOUT}", start_time=BEGIN, end_time=END)
    spans = [
        span
        for group in body["result"]["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]

    assert {span["spanId"]: span["kind"] for span in spans} == {ROOT: 2, CHARGE: 2, QUERY: 3, ORPHAN: 0}
    assert {span["traceId"] for span in spans} == {CHECKOUT}


@each_case(
    ("path", "query", "status", "message"),
    [
        (f"/traces/{UNKNOWN}", {}, 404, "no span of this trace is stored; it has expired or has not arrived"),
        ("/traces/xyz", {}, 400, "the trace id is not valid; expected 1 to 32 hex digits"),
        ("/operations", {}, 400, "service is missing; expected the name of a service"),
        (
            "/trace-summaries",
            {"query.filter": "{}"},
            400,
            "query.filter is not supported; expected query.attributes",
        ),
        (
            "/trace-summaries",
            {"query.startTimeMin": "1s"},
            400,
            "query.start_time_min: expected an instant, like 2026-01-31T10:00:00Z",
        ),
        (
            "/trace-summaries",
            {"query.startTimeMin": END, "query.startTimeMax": BEGIN},
            400,
            "the time range ends before it begins; expected an earlier start",
        ),
    ],
)
async def test_error_is_in_the_form_of_v3(
    client: Client, path: str, query: dict[str, Any], status: int, message: str
) -> None:
    assert await answer(client, path, status=status, **query) == {
        "error": {"httpCode": status, "message": message}
    }


async def test_token_of_the_api_is_required(store: Store) -> None:
    async with client_of(store, JaegerRoutes, token=lambda: "secret") as client:
        refused = await client.get("/jaeger/api/v3/services")
        accepted = await client.get("/jaeger/api/v3/services", headers={"Authorization": "Bearer secret"})

    assert (refused.status, accepted.status) == (401, 200)


@each_case(
    ("code", "status", "message"),
    [(210, 503, "the store: ERROR (210)"), (159, 422, "the query takes over 60 s")],
)
async def test_error_of_the_store_is_in_the_form_of_v3(code: int, status: int, message: str) -> None:
    async with client_of(FailingStore(code), JaegerRoutes) as client:
        response = await client.get("/jaeger/api/v3/trace-summaries")
        error = (await response.json())["error"]

    assert (response.status, error["httpCode"]) == (status, status)
    assert error["message"].startswith(message)
    assert response.headers.get("Retry-After") == ("2" if status == 503 else None)


async def test_head_runs_no_query() -> None:
    async with client_of(FailingStore(210), JaegerRoutes) as client:
        response = await client.head("/jaeger/api/v3/trace-summaries")

    assert (response.status, response.content_type) == (200, "application/json")
