"""Contract tests of Jaeger's metrics: requests as the tab Monitor of Jaeger UI sends them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from receiver.console.tools.jaeger import metrics
from receiver.engine.store import Store
from tests.console.tools.jaeger.test_legacy import answer
from tests.support.api import Client
from tests.support.cases import each_case
from tests.support.hostile_filters import HOSTILE
from tests.support.tool_api import CHECKOUT, RANGE_S, START_S, url

RANGE = {"endTs": RANGE_S[1] * 1_000, "lookback": (RANGE_S[1] - RANGE_S[0]) * 1_000}
MINUTE = {**RANGE, "step": 60_000, "ratePer": 600_000}


def points(family: dict[str, Any], **labels: str) -> list[float]:
    """Return the values of the series with these labels, by time."""
    [found] = [
        series
        for series in family["metrics"]
        if {label["name"]: label["value"] for label in series["labels"]} == labels
    ]
    times = [point["timestamp"] for point in found["metricPoints"]]
    assert times == sorted(times)
    assert all(time.endswith("Z") for time in times)
    return [point["gaugeValue"]["doubleValue"] for point in found["metricPoints"]]


async def test_latencies_are_milliseconds_of_the_quantile(client: Client) -> None:
    found = await answer(client, "/metrics/latencies", service="web", quantile=0.95, **MINUTE)

    assert (found["name"], found["type"]) == ("service_latencies", "GAUGE")
    assert points(found, service_name="web") == [1_500.0, 1_500.0]


async def test_calls_are_per_second(client: Client) -> None:
    found = await answer(client, "/metrics/calls", service=["web", "pay"], **MINUTE)

    assert found["name"] == "service_call_rate"
    assert len(found["metrics"]) == 2
    # A bucket may begin before the range, and its rate is that of its part in the range.
    assert sum(points(found, service_name="pay")) >= 1 / 60
    assert len(points(found, service_name="web")) == 2


async def test_errors_are_a_share_of_the_calls(client: Client) -> None:
    found = await answer(client, "/metrics/errors", service=["web", "pay"], **MINUTE)

    assert found["name"] == "service_error_rate"
    assert points(found, service_name="web") == [0.0, 0.0]
    assert points(found, service_name="pay") == [1.0]


async def test_operations_are_series_of_their_own(client: Client) -> None:
    found = await answer(client, "/metrics/errors", service="web", groupByOperation="true", **MINUTE)

    assert found["name"] == "service_operation_error_rate"
    for operation in ("GET /cart", "GET /checkout"):
        assert points(found, service_name="web", operation=operation) == [0.0]


@each_case(
    ("kinds", "spans"), [({}, 0), ({"spanKind": "client"}, 1), ({"spanKind": ["client", "server"]}, 1)]
)
async def test_kinds_are_selected_and_server_is_the_default(
    client: Client, kinds: dict[str, Any], spans: int
) -> None:
    found = await answer(client, "/metrics/calls", service="db", **kinds, **MINUTE)

    assert len(found["metrics"]) == spans


async def test_each_quantile_of_the_page_is_answered(store: Store, client: Client) -> None:
    spans = [
        {
            "Timestamp": f"{START_S + 30}.000000000",
            "TraceId": CHECKOUT,
            "SpanId": f"{number:016x}",
            "ServiceName": "many",
            "SpanKind": "Server",
            "Duration": number * 1_000_000,
        }
        for number in range(1, 101)
    ]
    store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, spans)))

    for quantile in (0.5, 0.75, 0.95, 0.99):
        found = await answer(client, "/metrics/latencies", service="many", quantile=quantile, **MINUTE)
        assert points(found, service_name="many") == [math.floor(quantile * 100) + 1]


async def test_step_is_longer_if_the_range_has_too_many(client: Client) -> None:
    days = {**MINUTE, "lookback": 30 * 86_400_000, "step": 1_000}

    assert points(await answer(client, "/metrics/errors", service="pay", **days), service_name="pay") == [1.0]


async def test_service_without_spans_has_no_series(client: Client) -> None:
    assert (await answer(client, "/metrics/calls", service="none", **MINUTE))["metrics"] == []


async def test_shortest_step_is_a_second(client: Client) -> None:
    assert (await answer(client, "/metrics/minstep"))["data"] == 1_000


@each_case(
    ("query", "text"),
    [
        ({"quantile": 0.5}, "service: expected"),
        ({"service": "", "quantile": 0.5}, "service: expected"),
        ({"service": ["a"] * (metrics.SERVICES_MAX + 1), "quantile": 0.5}, "1 to 20 services"),
        ({"service": "web"}, "quantile: expected one of 0.5, 0.75, 0.95, 0.99"),
        ({"service": "web", "quantile": "nan"}, "quantile: expected"),
        ({"service": "web", "quantile": 0.6}, "quantile: expected"),
        ({"service": "web", "quantile": 0.5, "groupByOperation": "yes"}, "expected true or false"),
        ({"service": "web", "quantile": 0.5, "step": "1m"}, "step: expected"),
        ({"service": "web", "quantile": 0.5, "spanKind": "mail"}, "spanKind"),
    ],
)
async def test_wrong_parameter_is_explained(client: Client, query: dict[str, Any], text: str) -> None:
    body = await answer(client, "/metrics/latencies", 400, **query)

    assert text in body["errors"][0]["msg"]


async def test_too_many_points_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "POINTS_MAX", 1)

    body = await answer(client, "/metrics/calls", 422, service="web", **MINUTE)

    assert "over 1 points" in body["errors"][0]["msg"]


@each_case("text", HOSTILE)
async def test_hostile_names_are_values(client: Client, text: str) -> None:
    for query in ({"service": text}, {"service": "web", "spanKind": text}):
        response = await client.get(url("/jaeger/api/metrics/calls", **query, **MINUTE))
        assert response.status in {200, 400}
