"""Contract tests of Jaeger's older HTTP API: requests as Jaeger UI and Grafana send them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from receiver.console.queries.filters.filter_values import JSON_CHARACTERS_MAX, TERMS_MAX
from receiver.console.queries.search import whole_traces
from receiver.console.queries.tool_search import whole_spans
from receiver.console.tools.common import TRACES_MAX
from receiver.console.tools.jaeger.legacy import PART_SPANS, encoded_traces
from receiver.engine.store import Store
from receiver.errors import LimitExceeded
from tests.support.api import Client
from tests.support.cases import each_case
from tests.support.hostile_filters import HOSTILE
from tests.support.tool_api import CART, CHARGE, CHECKOUT, ORPHAN, QUERY, RANGE_S, ROOT, START_S, UNKNOWN, url
from tests.support.traces import Row, span

BEGIN_US, END_US = (second * 1_000_000 for second in RANGE_S)


async def answer(client: Client, path: str, status: int = 200, **query: Any) -> Any:  # noqa: ANN401 - JSON
    response = await client.get(url(f"/jaeger/api{path}", **query))
    assert response.status == status, await response.text()
    assert response.content_type == "application/json"
    return await response.json()


async def found(client: Client, **query: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return the ids of the traces that a search over the whole range finds."""
    body = await answer(client, "/traces", **{"start": BEGIN_US, "end": END_US, **query})
    return [trace["traceID"] for trace in body["data"]]


async def test_services_are_sorted_names(client: Client) -> None:
    assert await answer(client, "/services") == {
        "data": ["db", "pay", "web"],
        "total": 3,
        "limit": 0,
        "offset": 0,
        "errors": None,
    }


async def test_operations_of_a_service_are_names(client: Client) -> None:
    assert (await answer(client, "/services/web/operations"))["data"] == ["GET /cart", "GET /checkout"]
    # The name of a service may have a slash.
    assert (await answer(client, "/services/a%2Fb/operations"))["data"] == []


async def test_operations_have_their_kind_and_can_be_selected_by_it(client: Client) -> None:
    both = await answer(client, "/operations", service="db")
    client_kind = await answer(client, "/operations", service="db", spanKind="client")

    assert both["data"] == [{"name": "SELECT", "spanKind": "client"}, {"name": "SELECT", "spanKind": ""}]
    assert client_kind["data"] == [{"name": "SELECT", "spanKind": "client"}]


async def test_trace_of_an_id_without_leading_zeros_has_the_form_of_jaeger(client: Client) -> None:
    times = {"start": RANGE_S[0] * 1_000, "end": RANGE_S[1] * 1_000}
    (trace,) = (await answer(client, f"/traces/{CHECKOUT.lstrip('0').upper()}", **times))["data"]
    spans = {span["spanID"]: span for span in trace["spans"]}

    assert trace["traceID"] == CHECKOUT
    assert list(spans) == [ROOT, CHARGE, QUERY, ORPHAN]
    assert trace["processes"] == {
        f"p{number}": {
            "serviceName": name,
            "tags": [{"key": "host.name", "type": "string", "value": f"{name}-1"}],
        }
        for number, name in enumerate(("web", "pay", "db"), 1)
    }
    assert [span["processID"] for span in trace["spans"]] == ["p1", "p2", "p3", "p3"]
    assert spans[CHARGE] == {
        "traceID": CHECKOUT,
        "spanID": CHARGE,
        "flags": 0,
        "operationName": "charge",
        "references": [{"refType": "CHILD_OF", "traceID": CHECKOUT, "spanID": ROOT}],
        "startTime": (START_S + 1) * 1_000_000 + 123,
        "duration": 1_500_000,
        "tags": [
            {"key": "http.status_code", "type": "string", "value": "402"},
            {"key": "card", "type": "string", "value": "visa"},
            {"key": "otel.scope.name", "type": "string", "value": "stripe"},
            {"key": "otel.status_description", "type": "string", "value": "declined"},
            {"key": "span.kind", "type": "string", "value": "server"},
            {"key": "otel.status_code", "type": "string", "value": "ERROR"},
            {"key": "error", "type": "bool", "value": True},
        ],
        "logs": [
            {
                "timestamp": (START_S + 2) * 1_000_000 + 123,
                "fields": [
                    {"key": "event", "type": "string", "value": "exception"},
                    {"key": "exception.type", "type": "string", "value": "Declined"},
                ],
            }
        ],
        "processID": "p2",
        "warnings": None,
    }
    assert spans[ROOT]["references"] == [{"refType": "FOLLOWS_FROM", "traceID": CART, "spanID": ROOT}]
    assert spans[ORPHAN]["tags"] == []


async def test_unknown_trace_is_an_error_and_no_empty_list(client: Client) -> None:
    body = await answer(client, f"/traces/{UNKNOWN}", status=404)

    assert body["data"] is None
    assert body["errors"] == [
        {"code": 404, "msg": "no span of this trace is stored; it has expired or has not arrived"}
    ]


async def test_search_as_grafana_sends_it_returns_whole_traces(client: Client) -> None:
    body = await answer(
        client,
        "/traces",
        service="pay",
        operation="charge",
        tags='{"card":"visa","host.name":"pay-1"}',
        minDuration="1.5s",
        maxDuration="2s",
        limit=20,
        start=BEGIN_US,
        end=END_US,
        lookback="custom",
    )

    (trace,) = body["data"]
    assert body["total"] == 1
    assert [span["spanID"] for span in trace["spans"]] == [ROOT, CHARGE, QUERY, ORPHAN]


@each_case(
    ("query", "expected"),
    [
        ({}, [CART, CHECKOUT]),
        ({"limit": 1}, [CART]),
        ({"service": "web", "limit": ""}, [CART, CHECKOUT]),
        ({"service": "db"}, [CHECKOUT]),
        ({"service": "web", "operation": "charge"}, []),
        ({"tags": '{"error":"true"}'}, [CHECKOUT]),
        ({"tags": '{"error":"false"}', "service": "pay"}, []),
        ({"tags": '{"span.kind":"client"}'}, [CHECKOUT]),
        ({"tags": '{"otel.status_code":"ERROR"}'}, [CHECKOUT]),
        ({"tags": '{"otel.scope.name":"stripe"}'}, [CHECKOUT]),
        ({"tags": '{"http.status_code":"200"}'}, [CART]),
        ({"tags": '{"http.status_code":"2*"}'}, []),
        ({"tag": ["http.status_code:402", "card:visa"]}, [CHECKOUT]),
        ({"tag": ["http.status_code:402", "card:amex"]}, []),
        ({"maxDuration": "1µs"}, [CHECKOUT]),
        ({"minDuration": "1500.001ms"}, []),
        ({"end": (START_S + 30) * 1_000_000}, [CHECKOUT]),
        ({"traceID": [CART, UNKNOWN, CHECKOUT]}, [CART, CHECKOUT]),
        # A time of zero is not set; a search without a start reads an hour.
        ({"start": 0}, [CART, CHECKOUT]),
        ({"end": 0}, [CART, CHECKOUT]),
        ({"start": "", "end": (START_S + 3_590) * 1_000_000}, [CART, CHECKOUT]),
        ({"start": "", "end": (START_S + 3_650) * 1_000_000}, [CART]),
        ({"start": "", "end": (START_S + 3_700) * 1_000_000}, []),
    ],
)
async def test_parameters_select_traces(client: Client, query: dict[str, Any], expected: list[str]) -> None:
    assert await found(client, **query) == expected


async def test_dependencies_are_calls_between_services(client: Client) -> None:
    lookback = {"endTs": RANGE_S[1] * 1_000, "lookback": 3_600_000}
    body = await answer(client, "/dependencies", **lookback)

    assert body["data"] == [{"parent": "web", "child": "pay", "callCount": 1}]
    before = await answer(client, "/dependencies", endTs=RANGE_S[0] * 1_000, lookback=3_600_000)
    assert before["data"] == []


@each_case("text", HOSTILE)
async def test_hostile_text_is_only_compared(client: Client, text: str) -> None:
    tags = json.dumps({text: text})

    assert await found(client, service=text) == []
    assert await found(client, operation=text) == []
    assert await found(client, tags=tags) == []
    assert (await answer(client, "/operations", service=text))["data"] == []


@each_case(
    ("path", "query", "message"),
    [
        ("/operations", {}, "service is missing; expected the name of a service"),
        ("/operations", {"service": "a\0"}, "service, column 2: the filter has a NUL character"),
        ("/traces", {"service": "a\0"}, "service, column 2: the filter has a NUL character"),
        ("/traces", {"limit": TRACES_MAX + 1}, f"limit: expected a whole number from 1 to {TRACES_MAX}"),
        ("/traces", {"limit": "-1"}, "limit: expected a whole number"),
        ("/traces", {"start": "1e9"}, "start: expected a whole number since 1970, as microseconds"),
        ("/traces", {"start": "9" * 21}, "start: expected a whole number since 1970"),
        ("/traces", {"start": END_US, "end": BEGIN_US}, "the time range ends before it begins"),
        ("/traces", {"minDuration": "soon"}, "minDuration, column 1: the value is not a duration"),
        ("/traces", {"tags": "card=visa"}, "tags: expected a JSON object whose values are texts"),
        ("/traces", {"tags": '{"card":1}'}, "tags: expected a JSON object whose values are texts"),
        ("/traces", {"tags": '["card"]'}, "tags: expected a JSON object whose values are texts"),
        ("/traces", {"tags": '{"a\\u0000":"b"}'}, "tags, column 2: the filter has a NUL character"),
        ("/traces", {"tags": '{"span.kind":"sideways"}'}, "tags, column 1: unknown value;"),
        ("/traces", {"tags": " " * (JSON_CHARACTERS_MAX + 1)}, "tags: expected at most"),
        ("/traces", {"tag": ["k:v"] * (TERMS_MAX + 1)}, f"expected at most {TERMS_MAX} tags"),
        ("/traces", {"tag": "card"}, "tag: expected a key and a value, like http.route:/cart"),
        ("/traces", {"traceID": "xyz"}, "the trace id is not valid; expected 1 to 32 hex digits"),
        ("/traces", {"traceID": ["1"] * (TRACES_MAX + 1)}, f"expected at most {TRACES_MAX} ids"),
        (f"/traces/{'a' * 33}", {}, "the trace id is not valid"),
        ("/dependencies", {"endTs": "now"}, "endTs: expected a whole number since 1970, as milliseconds"),
    ],
)
async def test_invalid_parameter_is_an_error_in_jaegers_form(
    client: Client, path: str, query: dict[str, Any], message: str
) -> None:
    body = await answer(client, path, status=400, **query)

    (error,) = body["errors"]
    assert error["code"] == 400
    assert error["msg"].startswith(message) or message in error["msg"]
    assert body["data"] is None


def test_search_refuses_more_spans_than_it_can_answer_at_once(store: Store) -> None:
    traces = whole_traces(store, [CHECKOUT, CART])  # six rows, of which two are copies

    assert len(list(whole_spans(store, traces, 6))) == 5
    with pytest.raises(LimitExceeded, match="over 5 spans"):
        list(whole_spans(store, traces, 5))


def row_of(number: int, service: str, host: str) -> Row:
    """Return a row of a service on a host."""
    empty: Row = {
        "SpanAttributes": {},
        "TraceFlags": 0,
        "ScopeName": "",
        "ScopeVersion": "",
        "TraceState": "",
    }
    return span(f"{number:016x}", ServiceName=service, ResourceAttributes={"host.name": host}, **empty)


def test_spans_share_a_process_if_service_and_resource_are_equal() -> None:
    rows = [row_of(1, "web", "a"), row_of(2, "web", "b"), row_of(3, "pay", "a"), row_of(4, "web", "a")]

    (trace,) = json.loads(b"".join(encoded_traces(rows)))["data"]

    assert [span["processID"] for span in trace["spans"]] == ["p1", "p2", "p3", "p1"]
    assert [process["serviceName"] for process in trace["processes"].values()] == ["web", "web", "pay"]


def test_trace_of_several_parts_is_one_document() -> None:
    rows = [row_of(number, "web", "a") for number in range(PART_SPANS + 1)]

    (trace,) = json.loads(b"".join(encoded_traces(rows)))["data"]

    assert [span["spanID"] for span in trace["spans"]] == [row["SpanId"] for row in rows]


def test_search_without_traces_is_an_empty_list() -> None:
    assert json.loads(b"".join(encoded_traces([])))["data"] == []
