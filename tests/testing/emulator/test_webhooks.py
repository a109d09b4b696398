"""Tests of webhooks: time of sending, signature, and retries."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.emulator import RunningEmulator, emulator
from tests.support.webhook_receiver import WebhookReceiver
from trace_drain_testing.emulator import webhooks
from trace_drain_testing.emulator.clock import Clock
from trace_drain_testing.emulator.webhooks import RETRIED_S_MAX


async def send(platform: RunningEmulator, receiver: WebhookReceiver, kind: str = "project.created") -> None:
    body = {"type": kind, "payload": {"project": {"id": "prj_1"}}, "url": receiver.url}
    await platform.control("POST", "/webhooks", body)


async def outcomes(platform: RunningEmulator) -> list[tuple[str, int]]:
    state = await platform.control("GET", "/state")
    return [(each["outcome"], each["attempts"]) for each in state["webhooks"]]


async def advance(platform: RunningEmulator, seconds: float) -> None:
    await platform.control("POST", "/clock", {"advance_s": seconds})


async def change(platform: RunningEmulator, installation: str, *actions: str) -> None:
    for action in actions:
        await platform.control("POST", f"/installations/{installation}/{action}")


async def test_p50_changes_of_projects_and_installations_are_sent_under_the_stated_names(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    made = await platform.install(webhook_url=receiver.url, scopes=["deployment"])
    await platform.control("POST", "/projects", {"id": "prj_1", "name": "shop"})
    await platform.control("DELETE", "/projects/prj_1")
    path = f"/installations/{made['id']}/request-scopes"
    await platform.control("POST", path, {"scopes": ["project"]})
    await change(platform, made["id"], "confirm-scopes", "remove")
    await platform.control("POST", "/projects", {"name": "after the removal"})

    assert receiver.types == [
        "project.created",
        "project.removed",
        "integration-configuration.scope-change-confirmed",
        "integration-configuration.removed",
    ]
    assert receiver.documents[0]["payload"]["project"] == {"id": "prj_1", "name": "shop"}
    assert receiver.documents[3]["payload"]["configuration"]["id"] == made["id"]


async def test_p41_disabled_configuration_gets_three_webhooks_and_the_others_wait(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    made = await platform.install(webhook_url=receiver.url)
    await platform.control("POST", f"/installations/{made['id']}/disable")
    for kind in ("project.created", "deployment.created", "project.removed"):
        await platform.control("POST", "/webhooks", {"type": kind})
    await platform.control("POST", "/webhooks", {"type": "integration-configuration.scope-change-confirmed"})
    assert receiver.types == ["project.created", "project.removed"]

    await platform.control("POST", f"/installations/{made['id']}/transfer")

    # They are sent at once, in any order.
    held = {"deployment.created", "integration-configuration.scope-change-confirmed"}
    assert set(receiver.types[2:]) == held
    assert len(receiver.types) == 4


async def test_p41_removal_of_a_disabled_configuration_is_sent(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    made = await platform.install(webhook_url=receiver.url)

    await change(platform, made["id"], "disable", "remove")

    assert receiver.types == ["integration-configuration.removed"]


async def test_p51_webhook_is_signed_json_with_id_type_time_and_payload(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    await send(platform, receiver)

    (document,) = receiver.documents
    assert set(document) == {"id", "type", "createdAt", "payload"}
    assert (document["type"], document["createdAt"]) == ("project.created", 1_790_000_000_000)
    assert receiver.requests[0][0]["content-type"] == "application/json"
    assert receiver.is_signed_with(platform.facts["webhook_secret"]) == [True]


@pytest.mark.parametrize("shape", ["extra", "flat", "iso-time"])
async def test_p51_body_has_the_switched_shape(
    platform: RunningEmulator, receiver: WebhookReceiver, shape: str
) -> None:
    await platform.control("POST", "/unstated", {"P51": shape, "P51-header": "x-signature"})
    await send(platform, receiver)

    (document,) = receiver.documents
    checks: dict[str, Any] = {
        "extra": lambda: document["apiVersion"] == 7,
        "flat": lambda: document["project"] == {"id": "prj_1"} and "payload" not in document,
        "iso-time": lambda: datetime.fromisoformat(document["createdAt"]).timestamp() == 1_790_000_000,
    }
    assert checks[shape]()
    assert receiver.is_signed_with(platform.facts["webhook_secret"], header="x-signature") == [True]


async def test_p51_failed_webhook_is_retried_with_growing_pauses(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    receiver.statuses = [503, 302]
    await send(platform, receiver)
    counts = [len(receiver.requests)]
    for seconds in (9, 1, 19, 1, 3_600):
        await advance(platform, seconds)
        counts.append(len(receiver.requests))

    assert counts == [1, 1, 2, 2, 3, 3]
    assert receiver.documents[0] == receiver.documents[1] == receiver.documents[2]
    assert await outcomes(platform) == [("delivered", 3)]


async def test_p51_webhook_is_retried_for_24_hours(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    receiver.statuses = [500] * 1_000
    await send(platform, receiver)
    await advance(platform, RETRIED_S_MAX - 1)
    tried = len(receiver.requests)
    await advance(platform, 1)
    await advance(platform, 3_600)

    assert (tried, len(receiver.requests)) == (2, 2)
    assert await outcomes(platform) == [("given up", 2)]


async def test_p51_webhook_to_a_closed_port_is_retried(platform: RunningEmulator) -> None:
    body = {"type": "project.created", "url": "http://127.0.0.1:1/"}
    await platform.control("POST", "/webhooks", body)
    await advance(platform, 10)

    assert await outcomes(platform) == [("waiting", 2)]


async def test_fault_sends_a_webhook_twice_with_one_id(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    await platform.control("POST", "/faults", {"name": "webhook-twice"})
    await send(platform, receiver)
    await send(platform, receiver)

    ids = [document["id"] for document in receiver.documents]
    assert len(ids) == 3
    assert ids[0] == ids[1] != ids[2]


async def test_fault_sends_a_webhook_after_the_next(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    await platform.control("POST", "/faults", {"name": "webhook-out-of-order"})
    await send(platform, receiver, "project.created")
    assert receiver.types == []
    await send(platform, receiver, "project.removed")

    assert receiver.types == ["project.removed", "project.created"]


async def test_fault_sends_a_webhook_an_hour_late(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    await platform.control("POST", "/faults", {"name": "webhook-late"})
    await send(platform, receiver)
    await advance(platform, 3_599)
    assert receiver.types == []
    await advance(platform, 1)

    assert receiver.documents[0]["createdAt"] == 1_790_000_000_000


async def test_fault_signs_one_attempt_wrongly(platform: RunningEmulator, receiver: WebhookReceiver) -> None:
    receiver.statuses = [403]
    await platform.control("POST", "/faults", {"name": "webhook-wrong-signature"})
    await send(platform, receiver)
    await advance(platform, 10)

    assert receiver.is_signed_with(platform.facts["webhook_secret"]) == [False, True]


async def test_fault_rotates_the_secret_for_good(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    await platform.control("POST", "/faults", {"name": "webhook-rotated-secret"})
    await send(platform, receiver)
    await send(platform, receiver)

    rotated = (await platform.control("GET", "/state"))["webhook_secret"]
    assert receiver.is_signed_with(platform.facts["webhook_secret"]) == [False, False]
    assert receiver.is_signed_with(rotated) == [True, True]


async def test_real_clock_retries_a_webhook_by_itself(
    tmp_path: Path, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "RETRY_S_FIRST", 0.01)
    receiver.statuses = [503]
    async with emulator(tmp_path, clock=Clock(time.time(), is_manual=False)) as platform:
        await send(platform, receiver)
        while len(receiver.requests) == 1:  # noqa: ASYNC110 - another task sends it
            await asyncio.sleep(0.01)

    assert receiver.documents[0] == receiver.documents[1]
