"""`trace-drain rollup` and its routes: state and rebuild, of a stopped store and of a running receiver."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from receiver.cli.console.rollup import WITHOUT_PROGRESS_S, wait_until_derived
from receiver.console.api.rollup import RollupRoutes
from receiver.console.queries.aggregates.red_source import Wanted, red_source
from receiver.console.queries.names import services
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.derivation import derive_due
from receiver.console.queries.rollup.slots import read_slots
from receiver.engine.store import Store
from receiver.errors import CommandFailed
from receiver.time_range import TimeRange
from tests.support import engines
from tests.support.api import api_over
from tests.support.cases import each_case
from tests.support.commands import run, stored_spans
from tests.support.random_filters import NOW_S, as_row, insert
from tests.support.rollups import CLOSING, FROM_NS, MIDNIGHT_S, TO_NS, random_spans

HOUR = MIDNIGHT_S // 3_600
REBUILD = "/api/v1/rollup/rebuild"
Client = TestClient[Any, Any]


@pytest.fixture
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory whose embedded store has spans of three days."""
    with stored_spans(engine_dir, map(json.loads, map(as_row, random_spans(random.Random(1))))) as directory:
        yield directory


def days_of(data_dir: str) -> list[dict[str, Any]]:
    """Return the days that `rollup status` prints."""
    result = run("rollup", "status", "--data", data_dir, "--format", "json")
    assert result.exit_code == 0, result.output
    return [row for line in result.stdout.splitlines() if "day" in (row := json.loads(line))]


def test_rebuild_of_a_stopped_store_derives_every_closed_hour_or_only_the_newer(data_dir: str) -> None:
    before = days_of(data_dir)
    result = run("rollup", "rebuild", "--data", data_dir)
    after = days_of(data_dir)
    table = run("rollup", "status", "--data", data_dir).stdout
    newer = run("rollup", "rebuild", "--data", data_dir, "--since", f"{NOW_S - MIDNIGHT_S - 600}s")
    changed = [row["day"] for row, old in zip(days_of(data_dir), after, strict=True) if row != old]

    due = sum(row["due"] for row in before)
    # Two days; shortly after midnight their last hour is not closed yet.
    assert due >= 47
    assert result.stdout == f"{due} hours derived\n"
    assert f"{due} of {due} hours" in result.stderr
    assert sum(row["due"] for row in after) == 0
    assert sum(row["slots"] for row in after) == due
    assert all(row["proven"] for row in after)
    assert "every closed hour is derived" in table
    assert "otel_red_deployment" in table
    assert newer.exit_code == 0, newer.output
    assert changed
    assert min(row["day"] for row in after) not in changed


@each_case(
    ("arguments", "error"),
    [
        (("--since", "yesterday"), "since is neither an age nor an instant"),
        (("--config", "CONFIG"), "rollups are off; expected store.rollup = true"),
    ],
)
def test_rebuild_that_is_impossible_fails(tmp_path: Path, arguments: tuple[str, str], error: str) -> None:
    config = tmp_path / "off.toml"
    config.write_text("[store]\nrollup = false\n")
    result = run("rollup", "rebuild", arguments[0], arguments[1].replace("CONFIG", str(config)))

    assert result.exit_code == 2
    assert error in result.stderr


def test_waiting_prints_progress_and_ends_when_no_hour_is_due(capsys: pytest.CaptureFixture[str]) -> None:
    counts = iter([3, 3, 2, 0])

    assert wait_until_derived(lambda: next(counts), lambda _s: None, lambda: 0.0) == 3
    assert capsys.readouterr().err.splitlines() == ["1 of 3 hours", "3 of 3 hours"]


def test_waiting_without_progress_ends_with_an_error() -> None:
    times = iter([0.0, 1.0, WITHOUT_PROGRESS_S + 1])

    with pytest.raises(CommandFailed, match=r"^3 hours of 3 are not derived yet"):
        wait_until_derived(lambda: 3, lambda _s: None, lambda: next(times))


@pytest.fixture
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        insert(store, random_spans(random.Random(2)))
        list(derive_due(store, CLOSING))
        yield store


@asynccontextmanager
async def client_of(store: Store, wakes: list[bool], *, is_on: bool) -> AsyncIterator[Client]:
    with ThreadPoolExecutor(1) as pool, api_over(store) as api:
        routes = RollupRoutes(store, lambda: CLOSING, is_on, lambda: wakes.append(True), pool)
        async with TestClient(TestServer(api.application(routes))) as client:
            yield client


async def test_routes_report_the_state_and_begin_a_rebuild(store: Store) -> None:
    wakes = list[bool]()
    async with client_of(store, wakes, is_on=True) as client:
        state = await client.get("/api/v1/rollup")
        *rows, end = (json.loads(line) for line in (await state.text()).splitlines())
        since = {"since": f"{NOW_S - MIDNIGHT_S - 600}s"}
        some = await client.post(REBUILD, params=since, json={})
        left = read_slots(store, 0, HOUR + 100)
        everything = await client.post(REBUILD, json={})

    assert end["end"]["count"] == len(rows)
    assert {row.get("table") for row in rows} >= {"otel_red", "otel_red_deployment", "otel_rollup_slots"}
    assert (some.status, everything.status) == (200, 200)
    assert max(left) == HOUR - 1
    assert read_slots(store, 0, HOUR + 100) == {}
    assert wakes == [True, True]


async def test_request_for_an_impossible_rebuild_is_rejected(store: Store) -> None:
    slots, wakes = read_slots(store, 0, HOUR + 100), list[bool]()
    async with client_of(store, wakes, is_on=False) as client:
        off = await client.post(REBUILD, json={})
        message = await off.text()
        across_sites = await client.post(REBUILD, data="x")
        unknown = await client.get("/api/v1/rollup", params={"x": "1"})

    assert (off.status, across_sites.status, unknown.status) == (400, 415, 400)
    assert "store.rollup = true" in message
    assert read_slots(store, 0, HOUR + 100) == slots
    assert wakes == []


def test_services_of_the_rollup_equal_those_of_the_spans(store: Store) -> None:
    asked = Asked[None](TimeRange(since_s=NOW_S - FROM_NS // 10**9))

    def lines() -> bytes:
        return b"".join(services(store, asked, NOW_S).pieces())

    from_rollup = lines()
    assert len(red_source(store, Wanted(FROM_NS, TO_NS)).slots) >= 40
    store.command("TRUNCATE TABLE otel_rollup_slots")
    assert lines() == from_rollup
    assert len(from_rollup.splitlines()) == 11
    store.command("DROP TABLE otel_rollup_slots SYNC")
    assert lines() == from_rollup
