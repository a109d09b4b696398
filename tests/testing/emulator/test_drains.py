"""Tests of the emulated trace drains: form and signature of deliveries, sampling, faults, failure budget."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.cases import each_case
from tests.support.drains import BASE_NS, HALF, Site, running_drains, source, spans_of, traffic
from trace_drain_testing.emulator.drains import (
    BUDGET_S,
    DELIVERIES_MIN,
    DRAINS_MAX,
    FAILURES_MAX,
    DrainRequest,
)
from trace_drain_testing.emulator.drains_traffic import trace_start

REQUEST = traffic(source())


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with running_drains() as running:
        yield running


def attributes(resource: Any) -> dict[str, str]:  # noqa: ANN401 - any JSON
    return {pair["key"]: pair["value"]["stringValue"] for pair in resource["resource"]["attributes"]}


async def test_p70_json_delivery_is_in_the_dialect_of_the_platform(site: Site) -> None:
    await site.add(format="json")

    await site.drains.forward(traffic(source("/cart"), source("/pay", 2, has_failed=True)))

    headers, _ = site.endpoint.deliveries[-1]
    spans = [span for group in site.endpoint.documents()[0]["resourceSpans"] for span in spans_of(group)]
    assert headers["content-type"] == "application/json"
    assert spans[0] == {
        "traceId": trace_start(HALF, (1).to_bytes(8, "big")).hex() + f"{1:016x}",
        "spanId": f"{2:016x}",
        "name": "GET /cart",
        "kind": "server",
        "startTimeUnixNano": str(BASE_NS),
        "endTimeUnixNano": str(BASE_NS + 1_000),
        "attributes": [{"key": "url.path", "value": {"stringValue": "/cart"}}],
    }
    assert spans[0]["traceId"][:16] != spans[1]["traceId"][:16], "a search by the first half finds one trace"
    assert spans[1]["status"] == {"code": 2, "message": "no cart"}
    assert spans[1]["events"][0]["timeUnixNano"] == str(BASE_NS + 500)


async def test_p70_protobuf_delivery_has_the_spans_of_the_json_delivery(site: Site) -> None:
    await site.add(format="protobuf")

    await site.drains.forward(traffic(source("/cart"), source("/pay", 2, has_failed=True)))

    headers, body = site.endpoint.deliveries[-1]
    request = ExportTraceServiceRequest.FromString(body)
    spans = [group.scope_spans[0].spans[0] for group in request.resource_spans]
    assert headers["content-type"] == "application/x-protobuf"
    assert [span.name for span in spans] == ["GET /cart", "GET /pay"]
    assert spans[0].trace_id[:8] != spans[1].trace_id[:8]
    assert [span.start_time_unix_nano for span in spans] == [BASE_NS, BASE_NS]
    assert spans[1].events[0].time_unix_nano == BASE_NS + 500
    assert spans[1].status.message == "no cart"


@pytest.mark.parametrize("form", ["json", "protobuf"])
async def test_delivery_is_signed_over_the_raw_body_if_there_is_a_secret(site: Site, form: str) -> None:
    await site.add(format=form, headers={"X-Shop": "a b"})
    await site.add(format=form, secret="key", signature_header="x-vercel-signature")
    site.endpoint.deliveries.clear()

    await site.drains.forward(REQUEST)

    (plain, _), (signed, body) = sorted(
        site.endpoint.deliveries, key=lambda each: "x-vercel-signature" in each[0]
    )
    assert (plain["x-shop"], "x-platform-signature" in plain) == ("a b", False)
    assert signed["x-vercel-signature"] == hmac.new(b"key", body, hashlib.sha1).hexdigest()


async def test_p71_every_resource_has_project_and_deployment(site: Site) -> None:
    await site.add()

    await site.drains.forward(traffic(source(), source(parent=b"\1" * 8)))

    for resource in site.endpoint.documents()[0]["resourceSpans"]:
        assert attributes(resource)["platform.projectId"] == "prj_1"
        assert attributes(resource)["platform.deploymentId"] == "dpl_1"


async def test_p72_custom_spans_of_the_edge_runtime_are_not_forwarded(site: Site) -> None:
    await site.add()

    await site.drains.forward(
        traffic(
            source(name="custom on edge", runtime="edge"),
            source(name="platform on edge", runtime="edge", scope="platform"),
            source(name="custom on node"),
        )
    )

    assert site.endpoint.names() == [["platform on edge", "custom on node"]]


async def test_p72_first_matching_rule_decides_and_other_requests_are_dropped(site: Site) -> None:
    await site.add(
        rules=[
            {"rate": 0, "path": "/health"},
            {"rate": 1, "environment": "production", "path": "/api"},
            {"rate": 0, "path": "/api"},
            {"rate": 1, "path": "/health/deep"},
        ]
    )

    await site.drains.forward(
        traffic(
            source("/api/cart", 1),
            source("/health/deep", 2),
            source("/api/cart", 3, environment="preview", name="preview"),
            source("/other", 4),
        )
    )

    assert site.endpoint.names() == [["GET /api/cart"]]


async def test_p72_rate_keeps_whole_traces(site: Site) -> None:
    await site.add(rate=0.3)

    traces = range(1, 2_001)
    await site.drains.forward(
        traffic(
            *(source("/", trace, parent=b"\1" * 8, name=f"child {trace}") for trace in traces),
            *(source("/", trace, name=f"root {trace}") for trace in traces),
        )
    )

    names = site.endpoint.names()[0]
    children = {name.removeprefix("child ") for name in names if name.startswith("child")}
    roots = {name.removeprefix("root ") for name in names if name.startswith("root")}
    assert children == roots
    # Four standard deviations around 600.
    assert 518 < len(roots) < 682


async def test_p72_child_spans_inherit_the_sampling_rule_of_the_root(site: Site) -> None:
    await site.add(rules=[{"rate": 1, "path": "/api"}])

    await site.drains.forward(
        traffic(source(parent=b"\1" * 8, name="child", environment="preview"), source("/api", name="root"))
    )

    assert site.endpoint.names() == [["child", "root"]]


async def test_no_delivery_is_sent_if_all_traces_are_dropped(site: Site) -> None:
    await site.add(rate=0)

    await site.drains.forward(REQUEST)

    assert site.endpoint.names() == []


async def test_p73_drain_of_another_kind_of_data_is_refused(site: Site) -> None:
    for kind in ("logs", "speed_insights", "analytics"):
        status, _ = await site.control("POST", "/drains", {"url": site.endpoint.url, "type": kind})
        assert status == 400


@each_case(
    "fields",
    [
        {"url": "http://traces.example/v1/traces"},
        {"url": "traces.example"},
        {"rate": 2},
        {"rules": [{"rate": -1}]},
        {"rules": [{"rate": 1, "host": "x"}]},
        {"rate": 1, "rules": [{"rate": 1}]},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X Y": "a"}},
        {"signature_header": "x\r\ny"},
        {"retries": 11},
        {"format": "xml"},
        {"unknown": 1},
    ],
)
async def test_invalid_drain_is_refused(site: Site, fields: dict[str, object]) -> None:
    status, body = await site.control("POST", "/drains", {"url": site.endpoint.url, **fields})

    assert (status, body["error"]["code"]) == (400, "bad_request")
    assert site.endpoint.deliveries == []


async def test_number_of_drains_is_limited(site: Site) -> None:
    for _ in range(DRAINS_MAX):
        await site.add()

    assert (await site.control("POST", "/drains", {"url": site.endpoint.url}))[0] == 409


async def test_test_events_are_sent_on_creation_and_on_request(site: Site) -> None:
    site.endpoint.statuses.extend([200, 401])

    created = await site.add(secret="key")
    _, tested = await site.control("POST", f"/drains/{created['id']}/test")

    assert [created["test_status"], tested["test_status"]] == [200, 401]
    body = json.loads(site.endpoint.deliveries[0][1])
    assert attributes(body["resourceSpans"][0])["platform.deploymentId"] == "dpl_test"
    # Test events do not use up the budget.
    assert (await site.summary())["failed"] == 0


async def test_secret_and_header_values_are_not_shown(site: Site) -> None:
    await site.add(secret="key-1", headers={"Authorization": "Bearer token-1"})

    _, document = await site.control("GET", "/drains")

    assert "key-1" not in json.dumps(document)
    assert "token-1" not in json.dumps(document)
    assert document["drains"][0]["headers"] == ["Authorization"]


@pytest.mark.parametrize("status", [503, pytest.param(307, id="redirect"), pytest.param(0, id="unreachable")])
async def test_failed_delivery_is_lost_without_retries(site: Site, status: int) -> None:
    await site.add()
    if status:
        site.endpoint.statuses.append(status)
    else:
        site.drains.drains["drn_1"].config = DrainRequest(url="http://127.0.0.1:1/")

    await site.drains.forward(REQUEST)

    summary = await site.summary()
    assert [summary["delivered"], summary["failed"], summary["lost"]] == [0, 1, 1]
    assert len(site.endpoint.documents()) == bool(status)


async def test_failed_delivery_is_retried_with_the_same_bytes(site: Site) -> None:
    await site.add(retries=3)
    site.endpoint.statuses.extend([503, 500])

    await site.drains.forward(REQUEST)
    while (await site.summary())["delivered"] < 1:
        pass

    documents = site.endpoint.documents()
    assert len(documents) == 3
    assert documents[0] == documents[1] == documents[2]
    assert site.endpoint.pauses_s == [1, 2]
    assert (await site.summary())["lost"] == 0


async def fail_and_succeed(site: Site, count: int) -> None:
    """Make every second delivery fail, this many times."""
    site.endpoint.statuses.extend([200, 500] * count)
    for _ in range(2 * count):
        await site.drains.forward(REQUEST)


async def test_drain_is_errored_after_more_than_fifty_failures_in_an_hour(site: Site) -> None:
    await site.add()

    await fail_and_succeed(site, FAILURES_MAX)
    assert (await site.summary())["state"] == "active"
    site.endpoint.statuses.append(500)
    await site.drains.forward(REQUEST)

    assert (await site.summary())["state"] == "errored"
    _, listed = await site.control("GET", "/drains")
    assert [notice["drain"] for notice in listed["notices"]] == ["drn_1"]
    sent = len(site.endpoint.deliveries)
    await site.drains.forward(REQUEST)
    assert len(site.endpoint.deliveries) == sent


async def test_drain_is_errored_if_more_than_four_fifths_fail(site: Site) -> None:
    await site.add()
    site.endpoint.statuses.extend([200, 200, *[500] * DELIVERIES_MIN])

    for _ in range(DELIVERIES_MIN):
        await site.drains.forward(REQUEST)
    assert (await site.summary())["state"] == "active", "8 of 10 are not more than 80 %"
    await site.drains.forward(REQUEST)

    assert (await site.summary())["state"] == "errored"


async def test_failures_of_an_earlier_hour_do_not_count(site: Site) -> None:
    await site.add()
    await fail_and_succeed(site, FAILURES_MAX)

    site.endpoint.clock_s += BUDGET_S
    site.endpoint.statuses.append(500)
    await site.drains.forward(REQUEST)

    assert (await site.summary())["state"] == "active"


async def test_errored_drain_can_be_resumed(site: Site) -> None:
    created = await site.add()
    site.endpoint.statuses.extend([500] * DELIVERIES_MIN)
    for _ in range(DELIVERIES_MIN):
        await site.drains.forward(REQUEST)
    assert (await site.summary())["state"] == "errored"

    await site.control("POST", f"/drains/{created['id']}/resume")
    await site.drains.forward(REQUEST)

    summary = await site.summary()
    assert [summary["state"], summary["delivered"]] == ["active", 1]


async def test_deleted_drain_sends_nothing(site: Site) -> None:
    created = await site.add()

    assert (await site.control("DELETE", f"/drains/{created['id']}"))[0] == 200
    await site.drains.forward(REQUEST)

    assert site.endpoint.documents() == []
    assert (await site.control("DELETE", f"/drains/{created['id']}"))[0] == 404


async def test_p41_paused_drain_sends_nothing(site: Site) -> None:
    await site.add()
    site.endpoint.is_paused = True

    await site.drains.forward(REQUEST)

    assert site.endpoint.documents() == []


async def test_faults_repeat_reorder_and_sign_deliveries_wrongly(site: Site) -> None:
    await site.add(secret="key")
    site.endpoint.faults["drain-twice"] = 1
    await site.drains.forward(traffic(source("/twice")))
    site.endpoint.faults["drain-out-of-order"] = 1
    for path in ("/first", "/second"):
        await site.drains.forward(traffic(source(path)))
    site.endpoint.faults["drain-wrong-signature"] = 1
    await site.drains.forward(traffic(source("/forged")))

    names = [name for [name] in site.endpoint.names()]
    assert names == ["GET /twice", "GET /twice", "GET /second", "GET /first", "GET /forged"]
    signatures = [
        headers["x-platform-signature"] == hmac.new(b"key", body, hashlib.sha1).hexdigest()
        for headers, body in site.endpoint.deliveries
    ]
    assert signatures == [True, True, True, True, True, False]
