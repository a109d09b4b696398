"""Tests of the shop within the emulator: its spans reach drains, and its events the platform API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.drains import running_drains
from tests.support.emulator import emulator

SHOP = {"requests_per_s": 1, "history_s": 120}


async def test_shop_fills_a_drain_and_the_events_of_its_deployments(tmp_path: Path) -> None:
    async with emulator(tmp_path) as platform, running_drains() as site:
        await platform.control("POST", "/drains", {"url": site.endpoint.url, "format": "json"})
        summary = await platform.control("POST", "/shop", SHOP)
        while not summary["is_live"]:
            summary = await platform.control("GET", "/shop")
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


async def test_shop_follows_the_clock_of_the_platform(tmp_path: Path) -> None:
    async with emulator(tmp_path) as platform:
        summary = await platform.control("POST", "/shop", SHOP)
        while not summary["is_live"]:
            summary = await platform.control("GET", "/shop")
        before = summary["sent_requests"]
        await platform.control("POST", "/clock", {"advance_s": 30})
        while summary["sent_requests"] < before + 30:
            summary = await platform.control("GET", "/shop")

    assert summary["sent_requests"] == before + 30


async def test_shop_can_be_restarted(tmp_path: Path) -> None:
    async with emulator(tmp_path) as platform:
        for _ in range(2):
            summary = await platform.control("POST", "/shop", SHOP)
            while not summary["is_live"]:
                summary = await platform.control("GET", "/shop")
            await platform.control("POST", "/clock", {"advance_s": 600})
            await platform.control("DELETE", "/shop")
        deployment = platform.state.deployment(summary["deployments"]["worse"])

    ids = [event["payload"]["id"] for event in deployment.events]
    assert len(ids) == len(set(ids))


def root_spans(documents: list[Any]) -> list[dict[str, Any]]:
    return [
        span
        for document in documents
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
        if "parentSpanId" not in span
    ]
