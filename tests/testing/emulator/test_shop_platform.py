"""Tests of the shop within the emulator: its spans reach drains, and its events the platform API."""

from __future__ import annotations

from typing import Any

from tests.support.drains import running_drains, spans_of
from tests.support.emulator import RunningEmulator

SHOP = {"requests_per_s": 1, "history_s": 120}


async def started_shop(platform: RunningEmulator) -> dict[str, Any]:
    """Start the shop, and return its summary when its history is complete."""
    summary: dict[str, Any] = await platform.control("POST", "/shop", SHOP)
    while not summary["is_live"]:
        summary = await platform.control("GET", "/shop")
    return summary


async def test_shop_fills_a_drain_and_the_events_of_its_deployments(platform: RunningEmulator) -> None:
    async with running_drains() as site:
        await platform.control("POST", "/drains", {"url": site.endpoint.url, "format": "json"})
        summary = await started_shop(platform)
        _, events = await platform.call(
            "GET",
            f"/v3/deployments/{summary['deployments']['worse']}/events",
            params={"teamId": platform.facts["team_id"]},
        )
        state = await platform.control("GET", "/state")

    deployments = {each["id"]: each["state"] for each in state["deployments"]}
    assert deployments[summary["deployments"]["worse"]] == "READY"
    assert deployments[summary["failed_build"]] == "ERROR"
    ids = {
        pair["value"]["stringValue"]
        for span in root_spans(site.endpoint.documents())
        for pair in span["attributes"]
        if pair["key"] == "platform.requestId"
    }
    requests = [event["payload"]["requestId"] for event in events if event["type"] == "request"]
    assert len(requests) == 40
    assert set(requests) < ids
    assert len(ids) == SHOP["history_s"]


async def test_shop_follows_the_clock_of_the_platform(platform: RunningEmulator) -> None:
    before = (await started_shop(platform))["sent_requests"]
    await platform.control("POST", "/clock", {"advance_s": 30})
    sent = before
    while sent < before + 30:
        sent = (await platform.control("GET", "/shop"))["sent_requests"]

    assert sent == before + 30


async def test_shop_can_be_restarted(platform: RunningEmulator) -> None:
    for _ in range(2):
        summary = await started_shop(platform)
        await platform.control("POST", "/clock", {"advance_s": 600})
        await platform.control("DELETE", "/shop")
    deployment = platform.state.deployment(summary["deployments"]["worse"])

    ids = [event["payload"]["id"] for event in deployment.events]
    assert len(ids) == len(set(ids))


def root_spans(documents: list[Any]) -> list[dict[str, Any]]:
    resources = (resource for document in documents for resource in document["resourceSpans"])
    return [span for resource in resources for span in spans_of(resource) if "parentSpanId" not in span]
