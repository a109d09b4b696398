"""Events of the emulated platform, with each of its switches and faults, are stored once and whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from receiver.engine.store import Store
from receiver.platform.deployment_events import fetcher as module
from receiver.platform.deployment_events import follower as follower_module
from receiver.platform.deployment_events.fetcher import FRESH_S, EventFetcher
from receiver.platform.deployment_events.follower import Follower
from receiver.settings import Platform
from tests.platform.deployment_events.test_fetcher import PATIENT_S, Clock, ids_of, no_project
from tests.support.cases import each_case
from tests.support.deployment_events import build_line, request_event
from tests.support.emulator import RunningEmulator
from tests.support.intake import until
from trace_drain_testing.emulator.clock import STARTED_AT_S
from trace_drain_testing.emulator.switches import UNSTATED

EVENTS = [
    # The platform's clock gives the changes of state their time.
    {**event, "created": STARTED_AT_S * 1_000 - 100 + place}
    for place, event in enumerate([*map(build_line, range(8)), request_event(9, "req_1", 503)])
]


@asynccontextmanager
async def fetching(
    store: Store, emulated: RunningEmulator, clock: Clock
) -> AsyncIterator[tuple[EventFetcher, Follower]]:
    """Yield a fetcher and a follower of the emulated platform."""
    facts = emulated.facts
    settings = Platform(base_url=facts["base_url"], token=facts["token"], team=facts["team_id"])
    fetcher = EventFetcher(store, lambda: settings, lambda: True, no_project, clock)
    follower = Follower(store, fetcher, lambda: settings, round_s=0.05)
    yield fetcher, follower
    await follower.close()


@each_case("fault", ["", "events-twice", "events-out-of-order"])
async def test_p21_each_event_is_stored_once_over_several_answers(
    empty_store: Store, emulated: RunningEmulator, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_EVENTS_MAX", 3)
    deployment, clock = await emulated.deployment(), Clock()
    await emulated.control("POST", f"/deployments/{deployment}/events", EVENTS)
    if fault:
        await emulated.control("POST", "/faults", {"name": fault})

    async with fetching(empty_store, emulated, clock) as (fetcher, _):
        for _ in range(2):
            state = await fetcher.refresh(deployment, PATIENT_S)
            assert state.status == "fetched", state
            clock.now_s += FRESH_S

    found = ids_of(empty_store, deployment)
    assert len(found) == len(set(found)) == len(EVENTS)


@each_case("form", UNSTATED["P25"])
async def test_p25_followed_build_is_stored_in_every_form_of_the_stream(
    empty_store: Store, emulated: RunningEmulator, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "COLLECT_S", 0.01)
    await emulated.control("POST", "/unstated", {"P25": form})
    deployment = await emulated.deployment()
    await emulated.control("POST", f"/deployments/{deployment}/events", EVENTS[:2])

    async with fetching(empty_store, emulated, Clock()) as (fetcher, follower):
        follower.start()
        await fetcher.refresh(deployment, PATIENT_S)
        await emulated.control("POST", f"/deployments/{deployment}/events", EVENTS[2:])
        # Of a slow array, the end of the last event may not be known yet.
        await until(lambda: len(ids_of(empty_store, deployment)) >= len(EVENTS) - 1)
        await emulated.control("POST", f"/deployments/{deployment}/state", {"state": "READY"})
        await until(lambda: fetcher.progress_of(deployment).is_final)

    assert len(ids_of(empty_store, deployment)) == len(EVENTS) + 1
