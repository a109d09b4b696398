"""Events of the emulated platform, with each of its switches and faults, are stored once and whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from receiver.engine.store import Store
from receiver.platform.deployment_events import fetcher as module
from receiver.platform.deployment_events import follower as follower_module
from receiver.platform.deployment_events.fetcher import FRESH_S, EventFetcher
from receiver.platform.deployment_events.follower import Follower
from receiver.settings import Platform
from tests.platform.deployment_events.test_fetcher import PATIENT_S, Clock, ids_of, no_project
from tests.platform.deployment_events.test_follower import until
from tests.support import engines
from tests.support.deployment_events import build_line, request_event
from tests.support.emulator import RunningEmulator, emulator
from trace_drain_testing.emulator.clock import STARTED_AT_S

EVENTS = [
    # The platform's clock gives the changes of state their time.
    {**event, "created": STARTED_AT_S * 1_000 - 100 + place}
    for place, event in enumerate([*map(build_line, range(8)), request_event(9, "req_1", 503)])
]


# For each test, because the emulator gives deployments the same ids each time.
@pytest.fixture
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


def settings_of(platform: RunningEmulator) -> Platform:
    facts = platform.facts
    return Platform(base_url=facts["base_url"], token=facts["token"], team=facts["team_id"])


@pytest.mark.parametrize("fault", ["", "events-twice", "events-out-of-order"])
async def test_p21_each_event_is_stored_once_over_several_answers(
    store: Store, platform: RunningEmulator, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_EVENTS_MAX", 3)
    deployment, clock = await platform.deployment(), Clock()
    await platform.control("POST", f"/deployments/{deployment}/events", EVENTS)
    fetcher = EventFetcher(store, lambda: settings_of(platform), lambda: True, no_project, clock)
    if fault:
        await platform.control("POST", "/faults", {"name": fault})

    for _ in range(2):
        state = await fetcher.refresh(deployment, PATIENT_S)
        assert state.status == "fetched", state
        clock.now_s += FRESH_S
    fetcher.close()

    found = ids_of(store, deployment)
    assert len(found) == len(set(found)) == len(EVENTS)


@pytest.mark.parametrize("shape", ["json-lines", "without-keep-alive", "array", "event-stream"])
async def test_p25_followed_build_is_stored_in_every_form_of_the_stream(
    store: Store, platform: RunningEmulator, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "COLLECT_S", 0.01)
    await platform.control("POST", "/unstated", {"P25": shape})
    deployment = await platform.deployment()
    await platform.control("POST", f"/deployments/{deployment}/events", EVENTS[:2])
    fetcher = EventFetcher(store, lambda: settings_of(platform), lambda: True, no_project, Clock())
    follower = Follower(store, fetcher, lambda: settings_of(platform), round_s=0.05)
    follower.start()

    await fetcher.refresh(deployment, PATIENT_S)
    await platform.control("POST", f"/deployments/{deployment}/events", EVENTS[2:])
    # Of a slow array, the end of the last event may not be known yet.
    await until(lambda: len(ids_of(store, deployment)) >= len(EVENTS) - 1)
    await platform.control("POST", f"/deployments/{deployment}/state", {"state": "READY"})
    await until(lambda: fetcher.progress_of(deployment).is_final)
    await follower.close()

    assert len(ids_of(store, deployment)) == len(EVENTS) + 1


async def test_p40_disabled_configuration_is_described(store: Store, platform: RunningEmulator) -> None:
    deployment, clock = await platform.deployment(), Clock()
    await platform.control("POST", f"/deployments/{deployment}/events", EVENTS)
    await platform.control("POST", "/faults", {"name": "configuration-disabled"})
    fetcher = EventFetcher(store, lambda: settings_of(platform), lambda: True, no_project, clock)

    state = await fetcher.refresh(deployment, PATIENT_S)
    fetcher.close()

    assert state.status == "failed"
    assert "disabled" in state.reason
    assert not ids_of(store, deployment)
