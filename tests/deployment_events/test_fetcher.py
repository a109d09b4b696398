"""Fetching of events: complete, once, within limits, and never the cause of a failing page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from receiver.deployment_events import fetcher as module
from receiver.deployment_events.fetcher import DEPLOYMENTS_MAX, FETCHES_MAX, FRESH_S, EventFetcher
from receiver.deployment_events.pause import FIRST_S, LONGEST_S, Pause
from receiver.deployment_events.projects import Period
from receiver.engine.store import Store
from receiver.query.questions import QUESTIONS
from receiver.rollup.tables import DEPLOYMENTS
from receiver.settings import Platform
from tests.support import engines
from tests.support.deployment_events import (
    NOW_MS,
    EventsServer,
    build_line,
    events_server,
    request_event,
    state_event,
)
from tests.support.random_filters import NOW_S

WITHIN = Period(NOW_S - 3_600, NOW_S + 3_600)
PATIENT_S = 600.0
NO_CHANGES: Mapping[str, str] = {}


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture
async def platform() -> AsyncIterator[EventsServer]:
    async with events_server() as platform:
        yield platform


@pytest.fixture
def deployment() -> str:
    return f"dpl_{uuid4().hex}"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def fetching(
    store: Store, platform: EventsServer, clock: Clock | None = None, changes: Mapping[str, str] = NO_CHANGES
) -> AsyncIterator[EventFetcher]:
    settings = Platform(base_url=platform.url, token="s3cret-token", team="team_1")
    settings = msgspec.structs.replace(settings, **changes)
    fetcher = EventFetcher(store, lambda: settings, lambda: True, clock or Clock())
    yield fetcher
    fetcher.close()


def ids_of(store: Store, deployment: str, projects: tuple[str, ...] = ()) -> list[str]:
    asked = {"deployment": deployment, "since": "2000-01-01", "until": "2101-01-01", "limit": "100000"}
    question = QUESTIONS["deployment-events"]
    lines = b"".join(question.ask(store, question.parse(asked), NOW_S).pieces()).splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [row["id"] for row in rows if not projects or row["project"] in projects]


def add_span(store: Store, deployment: str, project: str) -> None:
    row = {"Timestamp": f"{NOW_S}.000000000", "DeploymentId": deployment, "ProjectId": project}
    store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + json.dumps(row))


async def test_all_events_are_fetched_over_several_answers(
    store: Store, platform: EventsServer, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_EVENTS_MAX", 4)
    platform.add(*(build_line(number) for number in range(11)))

    async with fetching(store, platform) as fetcher:
        state = await fetcher.refresh(deployment, WITHIN, PATIENT_S)

    assert state.status == "fetched"
    assert len(ids_of(store, deployment)) == 11
    assert len(platform.queries) > 2
    assert {query["teamId"] for query in platform.queries} == {"team_1"}


@pytest.mark.parametrize("ignores_since", [False, True])
async def test_answer_of_events_with_one_time_does_not_stop_the_fetch(
    store: Store,
    platform: EventsServer,
    deployment: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ignores_since: bool,
) -> None:
    monkeypatch.setattr(module, "ANSWER_EVENTS_MAX", 3)
    platform.ignores_since = ignores_since
    platform.add(*({**build_line(number), "created": NOW_MS} for number in range(7)))

    async with fetching(store, platform) as fetcher:
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)

    assert len(ids_of(store, deployment)) == 7
    assert platform.queries[-1]["limit"] == "-1"


async def test_later_fetch_continues_from_the_newest_event(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    clock = Clock()
    platform.add(build_line(0), build_line(60_000))
    async with fetching(store, platform, clock) as fetcher:
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)
        # An event that became readable late, and a new one.
        platform.add(build_line(55_000), build_line(70_000))
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)
        assert len(platform.queries) == 1
        clock.now_s += FRESH_S
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)

    assert [query.get("since") for query in platform.queries] == [None, str(NOW_MS + 50_000)]
    assert len(ids_of(store, deployment)) == 4


async def test_project_is_that_of_the_spans_even_if_they_arrive_later(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    clock = Clock()
    platform.add(build_line(1), build_line(100_000))
    async with fetching(store, platform, clock) as fetcher:
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)
        assert len(ids_of(store, deployment, ("",))) == 2
        add_span(store, deployment, "prj_1")
        clock.now_s += FRESH_S
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)

    assert len(ids_of(store, deployment)) == 2
    assert len(ids_of(store, deployment, ("prj_1",))) == 2


async def test_deployment_with_spans_of_several_projects_has_no_project(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    add_span(store, deployment, "prj_1")
    add_span(store, deployment, "prj_2")
    platform.add(build_line(1))
    async with fetching(store, platform) as fetcher:
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)

    assert len(ids_of(store, deployment, ("",))) == 1


@pytest.mark.parametrize("table", [DEPLOYMENTS.table, DEPLOYMENTS.day_table])
async def test_spans_of_another_project_count_at_any_time(
    store: Store, platform: EventsServer, deployment: str, table: str
) -> None:
    add_span(store, deployment, "prj_1")
    row = {"Hour": NOW_S - 20 * 86_400, "DeploymentId": deployment, "ProjectId": "prj_2"}
    store.command(f"INSERT INTO {table} FORMAT JSONEachRow\n" + json.dumps(row))
    platform.add(build_line(1))
    async with fetching(store, platform) as fetcher:
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)

    assert len(ids_of(store, deployment, ("",))) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_failure_of_the_platform_is_described_and_tried_again(
    store: Store, platform: EventsServer, deployment: str, status: int
) -> None:
    clock = Clock()
    platform.add(build_line(1))
    platform.refuse(status)
    async with fetching(store, platform, clock) as fetcher:
        state = await fetcher.refresh(deployment, WITHIN, PATIENT_S)
        assert state.status == "failed"
        assert state.reason
        assert "s3cret" not in state.reason
        assert await fetcher.refresh(deployment, WITHIN, PATIENT_S) == state
        clock.now_s += FRESH_S
        platform.refusal = None
        assert (await fetcher.refresh(deployment, WITHIN, PATIENT_S)).status == "fetched"
    assert len(ids_of(store, deployment)) == 1


async def test_page_does_not_wait_for_a_slow_platform(
    store: Store, platform: EventsServer, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_released = asyncio.Event()

    async def slow(*_arguments: object) -> list[object]:
        await is_released.wait()
        return []

    monkeypatch.setattr(module, "events", slow)
    async with fetching(store, platform) as fetcher:
        assert (await fetcher.refresh(deployment, WITHIN, 0.0)).status == "running"
        others = [await fetcher.refresh(f"{deployment}{n}", WITHIN, 0.0) for n in range(FETCHES_MAX)]
        assert [state.status for state in others] == ["running"] * (FETCHES_MAX - 1) + ["failed"]
        assert others[-1].reason == "8 other deployments are being fetched"
        is_released.set()
        assert (await fetcher.refresh(deployment, WITHIN, PATIENT_S)).status == "fetched"


async def test_disabled_configuration_stops_all_calls_but_for_one_try(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    clock = Clock()
    platform.refuse(403, "integration_configuration_disabled")
    async with fetching(store, platform, clock) as fetcher:
        state = await fetcher.refresh(deployment, WITHIN, PATIENT_S)
        assert state.status == "failed"
        for number in range(3):
            assert (await fetcher.refresh(f"{deployment}{number}", WITHIN, PATIENT_S)) == state
        assert len(platform.queries) == 1

        clock.now_s += FIRST_S
        platform.refusal = None
        assert (await fetcher.refresh(deployment, WITHIN, PATIENT_S)).status == "fetched"
        assert (await fetcher.refresh(f"{deployment}9", WITHIN, PATIENT_S)).status == "fetched"


def test_pause_allows_one_try_at_growing_intervals() -> None:
    clock = Clock()
    pause, tries = Pause(clock), []
    pause.begin("disabled")
    for _ in range(5 * 3_600):
        clock.now_s += 1
        if pause.may_call():
            assert not pause.may_call()
            tries.append(clock.now_s - 1_000)
            pause.begin("disabled")
    assert [later - earlier for earlier, later in zip([0, *tries], tries, strict=False)] == [
        *(FIRST_S * 2**number for number in range(6)),
        *([LONGEST_S] * (len(tries) - 6)),
    ]
    pause.end()
    assert pause.may_call()
    assert pause.may_call()


def test_calls_that_fail_together_begin_one_pause() -> None:
    clock = Clock()
    pause = Pause(clock)
    for _ in range(4):
        pause.begin("disabled")
    clock.now_s += FIRST_S
    assert pause.may_call()


@pytest.mark.parametrize(
    ("settings", "deployment", "reason"),
    [
        ({"token": ""}, "dpl_1", "set platform.base_url"),
        ({"base_url": ""}, "dpl_1", "set platform.base_url"),
        ({}, "../../v2/oauth", "the id is not one"),
        ({}, "<script>", "the id is not one"),
        ({}, "dpl_" + "a" * 200, "the id is not one"),
    ],
)
async def test_nothing_is_sent_without_a_platform_or_for_another_id(
    store: Store, platform: EventsServer, settings: dict[str, str], deployment: str, reason: str
) -> None:
    async with fetching(store, platform, changes=settings) as fetcher:
        state = await fetcher.refresh(deployment, WITHIN, PATIENT_S)

    assert state.status == "off"
    assert reason in state.reason
    assert not platform.queries


async def test_nothing_is_sent_before_the_tables_exist(store: Store, platform: EventsServer) -> None:
    settings = Platform(base_url=platform.url, token="token")
    fetcher = EventFetcher(store, lambda: settings, lambda: False)

    state = await fetcher.refresh("dpl_1", WITHIN, PATIENT_S)

    assert state == ("failed", "the tables of the store are not ready yet")
    assert not platform.queries
    fetcher.close()


async def test_number_of_known_deployments_is_limited(store: Store, platform: EventsServer) -> None:
    async with fetching(store, platform) as fetcher:
        for number in range(DEPLOYMENTS_MAX + 5):
            fetcher.progress_of(f"dpl_{number}").state = "BUILDING"
        assert fetcher.progress_of(f"dpl_{DEPLOYMENTS_MAX + 4}").state == "BUILDING"
        assert fetcher.progress_of("dpl_0").state == ""


async def test_state_is_that_of_the_newest_event(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    platform.add(state_event(5, "READY"), state_event(1, "BUILDING"), request_event(9, "req"))
    async with fetching(store, platform) as fetcher:
        await fetcher.refresh(deployment, WITHIN, PATIENT_S)
        assert fetcher.progress_of(deployment).is_final
        assert fetcher.opened(60.0) == []
