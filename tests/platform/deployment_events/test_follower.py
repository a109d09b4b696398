"""Following of live deployments: which, how many, and what a failure changes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from receiver.engine.store import Store
from receiver.platform.client.event import parse_event
from receiver.platform.deployment_events import follower as module
from receiver.platform.deployment_events.fetcher import EventFetcher
from receiver.platform.deployment_events.follower import ROUNDS_MAX, Follower, Items
from receiver.settings import MIB, Platform, PlatformEvents
from tests.platform.deployment_events.test_fetcher import Clock, ids_of, no_project
from tests.support.deployment_events import EventsServer, build_line, state_event
from tests.support.intake import until


@pytest.fixture(autouse=True)
def no_wait_for_more_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLLECT_S", 0.01)


@asynccontextmanager
async def following(
    store: Store,
    platform: EventsServer,
    followed_max: int = 4,
    clock: Clock | None = None,
    project_of: Callable[[str], str] = lambda _: "prj_1",
) -> AsyncIterator[EventFetcher]:
    settings = Platform(
        base_url=platform.url, token="s3cret-token", events=PlatformEvents(followed_max=followed_max)
    )
    fetcher = EventFetcher(store, lambda: settings, lambda: True, project_of, clock or Clock())
    follower = Follower(store, fetcher, lambda: settings, round_s=0.05)
    follower.start()
    yield fetcher
    await follower.close()


def send_span(store: Store, deployment: str, age_s: float = 1) -> None:
    row = {"Timestamp": f"{time.time() - age_s:.9f}", "DeploymentId": deployment, "ProjectId": "prj_1"}
    store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + json.dumps(row))


async def test_events_of_a_build_are_stored_while_it_runs(
    empty_store: Store, platform: EventsServer, deployment: str
) -> None:
    platform.add(state_event(-9, "BUILDING"), build_line(-8))
    async with following(empty_store, platform) as fetcher:
        await fetcher.refresh(deployment, 600.0)
        await until(lambda: platform.followers)
        platform.add(build_line(-7))
        await until(lambda: len(ids_of(empty_store, deployment)) == 3)
        platform.add(build_line(-6), state_event(-5, "READY"))
        await until(lambda: fetcher.progress_of(deployment).is_final)
        await until(lambda: not platform.followers)

    assert len(ids_of(empty_store, deployment)) == 5


async def test_events_that_are_followed_get_a_project_that_is_reported_later(
    empty_store: Store, platform: EventsServer, deployment: str
) -> None:
    clock, projects = Clock(), dict[str, str]()
    platform.add(state_event(-9, "BUILDING"), build_line(-8))
    async with following(
        empty_store, platform, clock=clock, project_of=lambda each: projects.get(each, "")
    ) as fetcher:
        await fetcher.refresh(deployment, 600.0)
        await until(lambda: platform.followers)
        projects[deployment] = "prj_1"
        platform.add(build_line(-7))
        clock.now_s += 60
        await fetcher.refresh(deployment, 600.0)
        platform.add(build_line(-6), state_event(-5, "READY"))
        await until(lambda: len(ids_of(empty_store, deployment, ("prj_1",))) == 5)

    assert len(ids_of(empty_store, deployment)) == 5


async def test_deployments_that_send_spans_are_followed_up_to_a_number(
    empty_store: Store, platform: EventsServer
) -> None:
    platform.add(build_line(1))
    for number in range(3):
        send_span(empty_store, f"dpl_{number}", age_s=3 - number)
    send_span(empty_store, "another id")
    send_span(empty_store, "dpl_old", age_s=7_200)

    async with following(empty_store, platform, followed_max=2):
        await until(lambda: platform.followers == 2)
        await until(
            lambda: ids_of(empty_store, "dpl_2", ("prj_1",)) and ids_of(empty_store, "dpl_1", ("prj_1",))
        )
        assert platform.followers == 2

    for deployment in ("dpl_0", "another id", "dpl_old"):
        assert not ids_of(empty_store, deployment)


async def test_no_deployment_is_followed_if_the_limit_is_zero(
    empty_store: Store, platform: EventsServer
) -> None:
    send_span(empty_store, "dpl_1")
    async with following(empty_store, platform, followed_max=0):
        await asyncio.sleep(0.3)
    assert not platform.queries


def test_failing_deployment_is_skipped_for_twice_as_many_rounds_each_time(empty_store: Store) -> None:
    fetcher = EventFetcher(empty_store, Platform, lambda: True, no_project)
    follower = Follower(empty_store, fetcher, Platform)
    fetcher.progress_of("dpl_1").failure = "no"
    waited = []
    for _ in range(6):
        follower.end_of("dpl_1", is_failed=True)
        waited.append(0)
        while follower.waits("dpl_1"):
            waited[-1] += 1
    assert waited == [1, 2, 4, 8, ROUNDS_MAX, ROUNDS_MAX]
    follower.end_of("dpl_1", is_failed=False)
    assert not follower.waits("dpl_1")
    fetcher.close()


async def test_disabled_configuration_ends_following(empty_store: Store, platform: EventsServer) -> None:
    platform.refuse(403, "integration_configuration_disabled")
    for number in range(3):
        send_span(empty_store, f"dpl_{number}")
    clock = Clock()
    async with following(empty_store, platform, clock=clock) as fetcher:
        await until(lambda: all(fetcher.progress_of(f"dpl_{number}").failure for number in range(3)))
        tries = len(platform.queries)
        # Several rounds.
        await asyncio.sleep(0.3)
        assert len(platform.queries) == tries
        platform.refusal = None
        platform.add(state_event(-1, "READY"))
        clock.now_s += 60
        await until(lambda: all(ids_of(empty_store, f"dpl_{number}") for number in range(3)))


async def test_large_events_that_wait_for_the_store_have_a_limit() -> None:
    event = parse_event(json.dumps(build_line(1, text="x" * 6 * MIB)).encode())
    items = Items()
    for _ in range(3):
        await asyncio.wait_for(items.put(event), 60)

    waiting = asyncio.create_task(items.put(event))
    await asyncio.sleep(0)
    assert not waiting.done()

    # The end of a stream has no size, and waits like an event.
    assert items.full()
    assert items.get_nowait() is event
    await waiting
    assert items.qsize() == 3
