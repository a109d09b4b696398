"""Work of the store process for the platform: webhooks are applied, states become metrics."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from receiver.metrics import Metrics
from receiver.platform import work as platform_work
from receiver.platform.deployment_events.fetcher import EventFetcher
from receiver.platform.installations.lifecycle import Verdict
from receiver.platform.installations.records import StateChange
from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.webhook import parse
from receiver.platform.work import PlatformWork
from receiver.settings import DAY_S, Platform, Settings
from receiver.settings import Webhook as Limits
from receiver.store_process.repeating_thread import RepeatingThread
from tests.support.deployment_events import events_server
from tests.support.installations import TOKEN, installation
from tests.support.webhooks import document

NOW_MS = time.time_ns() // 1_000_000
TEST_S = 30.0


def until(condition: Callable[[], object]) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + TEST_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def wait_until(condition: Callable[[], object]) -> None:
    """Poll until the condition holds, while servers of the test run."""
    await asyncio.to_thread(until, condition)


class StoreWithoutEvents:
    """A store without events."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method of a store
        if name != "rows":
            raise AttributeError(name)
        return lambda *_: []


@contextmanager
def running(directory: Path, base_url: str = "") -> Iterator[PlatformWork]:
    work = PlatformWork(Settings(data_dir=str(directory), platform=Platform(base_url=base_url)))
    work.start()
    try:
        yield work
    finally:
        work.stop()


def values(work: PlatformWork) -> dict[tuple[str, ...], float]:
    metrics = Metrics()
    work.report(metrics)
    return {(series.name, *series.labels): series.value for series in metrics.snapshot().series}


def test_waiting_webhooks_are_applied_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_work, "APPLY_EVERY_S", 0.01)
    payload = {"project": {"id": "prj_1", "name": "shop"}}
    Inbox(tmp_path).keep(parse(document("a", payload=payload, created_at_ms=NOW_MS), NOW_MS), Limits())

    with running(tmp_path) as work:
        until(lambda: work.records.projects.name("prj_1") == "shop")
        Inbox(tmp_path).keep(parse(document("b", "another.type"), NOW_MS), Limits())
        until(lambda: values(work).get(("webhooks_applied", "unknown")) == 1)

        assert values(work)["webhooks_applied", "applied"] == 1
        assert values(work)["webhooks_waiting",] == 0


def test_p42_time_until_the_deletion_is_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_work, "APPLY_EVERY_S", 0.01)
    with running(tmp_path) as work:
        until(lambda: values(work)["platform_disabled_left_seconds",] == 30 * DAY_S)
        for name, age_days in (("icfg_a", 12), ("icfg_b", 2)):
            changes = (StateChange("active", 1.0), StateChange("disabled", time.time() - age_days * DAY_S))
            work.records.installations.add(installation(name, changes=changes), TOKEN)
        until(lambda: values(work)["platform_installations", "disabled"] == 2)

        assert values(work)["platform_disabled_left_seconds",] == pytest.approx(18 * DAY_S, abs=900)
        assert values(work)["platform_installations", "active"] == 0


def test_old_notes_are_deleted_when_the_process_starts(tmp_path: Path) -> None:
    old_ms = NOW_MS - 8 * 86_400_000
    with running(tmp_path):
        Inbox(tmp_path).keep(parse(document("b", created_at_ms=NOW_MS), NOW_MS), Limits())
        # Only now, because a slow start would delete the old note before it is seen.
        until(lambda: len(Inbox(tmp_path).notes()) == 1)
        Inbox(tmp_path).keep(parse(document("a", created_at_ms=old_ms), old_ms), Limits())
        until(lambda: len(Inbox(tmp_path).notes()) == 2)
    with running(tmp_path):
        until(lambda: len(Inbox(tmp_path).notes()) == 1)


def test_p40_installation_is_probed_only_with_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = threading.Event()

    def probe(*_: object) -> Verdict:
        probed.set()
        return "disabled"

    monkeypatch.setattr(platform_work, "probe", probe)
    with running(tmp_path) as work:
        changes = (StateChange("active", 1.0),)
        work.records.installations.add(installation("icfg_a", changes=changes), TOKEN)
        assert len(work._threads) == 2  # noqa: SLF001
    assert not probed.is_set()

    with running(tmp_path, "http://127.0.0.1:1") as work:
        assert probed.wait(TEST_S)
        until(lambda: work.records.installations.all()[0].state == "disabled")


async def test_p40_call_of_a_disabled_installation_shows_its_state_at_once(tmp_path: Path) -> None:
    async with events_server() as platform:
        work = PlatformWork(Settings(data_dir=str(tmp_path), platform=Platform(base_url=platform.url)))
        active = (StateChange("active", 1.0),)
        work.records.installations.add(installation("icfg_a", changes=active), TOKEN)
        settings = Platform(base_url=platform.url, token=TOKEN)
        fetcher = EventFetcher(StoreWithoutEvents(), lambda: settings, lambda: True, str)
        fetcher.on_disabled = work.request_probe
        work.start()
        await wait_until(lambda: platform.queries)
        platform.refuse(403, "integration_configuration_disabled")
        await fetcher.refresh("dpl_1", TEST_S)

        await wait_until(lambda: values(work)["platform_installations", "disabled"] == 1)
        assert len(platform.queries) == 3
        fetcher.close()
        await asyncio.to_thread(work.stop)


def test_step_that_fails_is_tried_again_and_the_thread_stops() -> None:
    steps: list[int] = []
    is_done = threading.Event()

    def step() -> None:
        steps.append(len(steps))
        if len(steps) < 3:
            raise ValueError("a fault of the program")
        is_done.set()

    thread = RepeatingThread("test", step, 0.001)
    thread.start()
    assert is_done.wait(TEST_S)
    thread.stop(TEST_S)

    count = len(steps)
    assert not thread._thread.is_alive()  # noqa: SLF001
    assert len(steps) == count
