"""Fetching of events: complete, once, within limits, and never the cause of a failing page."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.platform.client.event import parse_event
from receiver.platform.deployment_events import fetcher as module
from receiver.platform.deployment_events.event_table import ROWS_MAX
from receiver.platform.deployment_events.fetcher import (
    DEPLOYMENTS_MAX,
    FETCHES_MAX,
    FRESH_S,
    NOT_OF_PROJECTS,
    PAUSE_FIRST_S,
    PAUSE_S_MAX,
    EventFetcher,
    Pause,
)
from receiver.settings import Platform
from tests.support.cases import each_case
from tests.support.deployment_events import NOW_MS, EventsServer, build_line, request_event, state_event
from tests.support.random_filters import NOW_S

PATIENT_S = 600.0
NO_CHANGES: Mapping[str, str] = {}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def no_project(_deployment: str) -> str:
    """Know the project of no deployment."""
    return ""


@asynccontextmanager
async def fetching(
    store: Store,
    platform: EventsServer,
    clock: Clock | None = None,
    changes: Mapping[str, str] = NO_CHANGES,
    project_of: Callable[[str], str] = no_project,
) -> AsyncIterator[EventFetcher]:
    settings = Platform(base_url=platform.url, token="s3cret-token", team="team_1")
    settings = msgspec.structs.replace(settings, **changes)
    fetcher = EventFetcher(store, lambda: settings, lambda: True, project_of, clock or Clock())
    yield fetcher
    fetcher.close()


def ids_of(store: Store, deployment: str, projects: tuple[str, ...] = ()) -> list[str]:
    asked = {"deployment": deployment, "since": "2000-01-01", "until": "2101-01-01", "limit": "100000"}
    question = QUESTIONS["deployment-events"]
    lines = b"".join(question.ask(store, question.parse(asked), NOW_S).pieces()).splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [row["id"] for row in rows if not projects or row["project"] in projects]


def add_span(store: Store, deployment: str, project: str, age_s: int = 0) -> None:
    row = {"Timestamp": f"{NOW_S - age_s}.000000000", "DeploymentId": deployment, "ProjectId": project}
    store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + json.dumps(row))


async def test_all_events_are_fetched_over_several_answers(
    store: Store, platform: EventsServer, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_EVENTS_MAX", 4)
    platform.add(*(build_line(number) for number in range(11)))

    async with fetching(store, platform) as fetcher:
        state = await fetcher.refresh(deployment, PATIENT_S)

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
        await fetcher.refresh(deployment, PATIENT_S)

    assert len(ids_of(store, deployment)) == 7
    assert platform.queries[-1]["limit"] == "-1"


async def test_later_fetch_continues_from_the_newest_event(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    clock = Clock()
    platform.add(build_line(-900_000), build_line(-600_000))
    async with fetching(store, platform, clock) as fetcher:
        await fetcher.refresh(deployment, PATIENT_S)
        # An event that became readable late, and a new event.
        platform.add(build_line(-890_000), build_line(-590_000))
        await fetcher.refresh(deployment, PATIENT_S)
        assert len(platform.queries) == 1
        clock.now_s += FRESH_S
        await fetcher.refresh(deployment, PATIENT_S)

    assert [query.get("since") for query in platform.queries] == [None, str(NOW_MS - 900_000)]
    assert len(ids_of(store, deployment)) == 4


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_event_with_a_time_in_the_future_does_not_hide_later_events(
    store: Store, platform: EventsServer, deployment: str, *, is_restarted: bool
) -> None:
    clock, day_ms = Clock(), 86_400_000
    ahead = {**state_event(0, "BUILDING"), "created": NOW_MS + day_ms}
    platform.add(build_line(-500_000), state_event(-400_000, "READY"), ahead)
    async with fetching(store, platform, clock) as fetcher:
        await fetcher.refresh(deployment, PATIENT_S)
        assert fetcher.progress_of(deployment).is_final
        later_ms = int(time.time() * 1_000)
        platform.add(*({**build_line(number), "created": later_ms} for number in range(5)))
        if not is_restarted:
            clock.now_s += FRESH_S
            await fetcher.refresh(deployment, PATIENT_S)
    if is_restarted:
        async with fetching(store, platform, clock) as fetcher:
            await fetcher.refresh(deployment, PATIENT_S)
            assert fetcher.progress_of(deployment).is_final

    assert len(ids_of(store, deployment)) == 8


async def test_fetch_continues_from_the_stored_events_after_a_restart(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    platform.add(state_event(-900_000, "READY"), build_line(-600_000))
    for _ in range(2):
        async with fetching(store, platform) as fetcher:
            await fetcher.refresh(deployment, PATIENT_S)
            assert fetcher.progress_of(deployment).is_final

    assert [query.get("since") for query in platform.queries] == [None, str(NOW_MS - 900_000)]


async def test_small_deployment_is_stored_after_one_insert_of_a_large_one(
    store: Store, platform: EventsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[str] = []

    def record(_store: Store, _project: str, name: str, events: Sequence[object], _fetched_ms: int) -> int:
        stored.append(name)
        assert len(events) <= ROWS_MAX
        return 0

    monkeypatch.setattr(module, "store_events", record)
    async with fetching(store, platform) as fetcher:
        large, small = (parse_event(json.dumps(build_line(-n)).encode()) for n in (1, 2))
        await asyncio.gather(
            fetcher.keep("dpl_large", [large] * ROWS_MAX * 4, NOW_MS),
            fetcher.keep("dpl_small", [small], NOW_MS),
        )

    assert stored == ["dpl_large", "dpl_small", *["dpl_large"] * 3]


async def test_events_get_the_project_that_the_platform_reports_even_if_late(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    clock, projects = Clock(), dict[str, str]()
    platform.add(build_line(1), build_line(100_000))
    async with fetching(store, platform, clock, project_of=lambda each: projects.get(each, "")) as fetcher:
        await fetcher.refresh(deployment, PATIENT_S)
        assert len(ids_of(store, deployment, ("",))) == 2
        projects[deployment] = "prj_1"
        clock.now_s += FRESH_S
        await fetcher.refresh(deployment, PATIENT_S, ("prj_1",))

    assert len(ids_of(store, deployment)) == 2
    assert len(ids_of(store, deployment, ("prj_1",))) == 2


@pytest.mark.parametrize("age_s", [0, 20 * 86_400])
async def test_spans_with_the_id_of_a_deployment_do_not_show_its_events(
    store: Store, platform: EventsServer, deployment: str, age_s: int
) -> None:
    """The sender of a span chooses its ids, and the reader of a page its time range."""
    platform.add(build_line(1))
    add_span(store, deployment, "prj_forged", age_s)
    # The second fetcher is that of a restarted process.
    for _ in range(2):
        async with fetching(store, platform) as fetcher:
            assert (await fetcher.refresh(deployment, PATIENT_S)).status == "fetched"

    assert ids_of(store, deployment, ("prj_forged",)) == []
    assert len(ids_of(store, deployment, ("",))) == 1


async def test_page_fetches_nothing_for_a_user_of_other_projects(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    platform.add(build_line(1))
    add_span(store, deployment, "prj_forged")
    async with fetching(store, platform, project_of=lambda _: "prj_1") as fetcher:
        assert await fetcher.refresh(deployment, PATIENT_S, ("prj_forged",)) == NOT_OF_PROJECTS
        assert await fetcher.refresh("dpl_missing", PATIENT_S, ("prj_forged",)) == NOT_OF_PROJECTS
        assert platform.queries == []
        assert (await fetcher.refresh(deployment, PATIENT_S, ("prj_1",))).status == "fetched"


@each_case("status", [401, 403, 404, 500])
async def test_failure_of_the_platform_is_reported_and_the_fetch_tried_again(
    store: Store, platform: EventsServer, deployment: str, status: int
) -> None:
    clock, deployment = Clock(), f"{deployment}_{status}"
    platform.add(build_line(1))
    platform.refuse(status)
    async with fetching(store, platform, clock) as fetcher:
        state = await fetcher.refresh(deployment, PATIENT_S)
        assert state.status == "failed"
        assert state.reason
        assert "s3cret" not in state.reason
        assert await fetcher.refresh(deployment, PATIENT_S) == state
        clock.now_s += FRESH_S
        platform.refusal = None
        assert (await fetcher.refresh(deployment, PATIENT_S)).status == "fetched"
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
        assert (await fetcher.refresh(deployment, 0.0)).status == "running"
        others = [await fetcher.refresh(f"{deployment}{n}", 0.0) for n in range(FETCHES_MAX)]
        assert [state.status for state in others] == ["running"] * (FETCHES_MAX - 1) + ["failed"]
        assert others[-1].reason == "8 other deployments are being fetched"
        is_released.set()
        assert (await fetcher.refresh(deployment, PATIENT_S)).status == "fetched"


async def test_disabled_configuration_stops_all_calls_except_for_one_try(
    store: Store, platform: EventsServer, deployment: str
) -> None:
    clock = Clock()
    platform.refuse(403, "integration_configuration_disabled")
    async with fetching(store, platform, clock) as fetcher:
        state = await fetcher.refresh(deployment, PATIENT_S)
        assert state.status == "failed"
        for number in range(3):
            assert (await fetcher.refresh(f"{deployment}{number}", PATIENT_S)) == state
        assert len(platform.queries) == 1

        clock.now_s += PAUSE_FIRST_S
        platform.refusal = None
        assert (await fetcher.refresh(deployment, PATIENT_S)).status == "fetched"
        assert (await fetcher.refresh(f"{deployment}9", PATIENT_S)).status == "fetched"


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
        *(PAUSE_FIRST_S * 2**number for number in range(6)),
        *([PAUSE_S_MAX] * (len(tries) - 6)),
    ]
    pause.end()
    assert pause.may_call()
    assert pause.may_call()


def test_calls_that_fail_together_begin_one_pause() -> None:
    clock = Clock()
    pause = Pause(clock)
    for _ in range(4):
        pause.begin("disabled")
    clock.now_s += PAUSE_FIRST_S

    assert pause.may_call()


@each_case(
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
        state = await fetcher.refresh(deployment, PATIENT_S)

    assert state.status == "off"
    assert reason in state.reason
    assert not platform.queries


async def test_nothing_is_sent_before_the_tables_exist(store: Store, platform: EventsServer) -> None:
    settings = Platform(base_url=platform.url, token="token")
    fetcher = EventFetcher(store, lambda: settings, lambda: False, no_project)

    state = await fetcher.refresh("dpl_1", PATIENT_S)

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
    platform.add(state_event(-5, "READY"), state_event(-9, "BUILDING"), request_event(-1, "req"))
    async with fetching(store, platform) as fetcher:
        await fetcher.refresh(deployment, PATIENT_S)
        assert fetcher.progress_of(deployment).is_final
        assert fetcher.opened(60.0) == []
