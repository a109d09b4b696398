"""The writer's thread deletes spans for the limit of disk space and by rules, and finishes what was begun."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from receiver.dead_letters.directory import DeadLetterList
from receiver.deletion.rows import Chosen, Deletion
from receiver.engine.embedded import EmbeddedStore
from receiver.journal.segments import Journal
from receiver.ledger.ledger import deletion_path
from receiver.settings import RetentionRule, Settings
from receiver.settings import Store as StoreSettings
from receiver.store_process.writer_thread import WriterThread
from tests.support import engines
from tests.support.deletions import day_of, deletions_of, stored_projects
from tests.support.ledger_workspace import Workspace

WAIT_S = 60.0
DAY_S = 86_400
NO_RULE = StoreSettings()
EXPIRED = StoreSettings(retention_rule=(RetentionRule(days=1, project="expired"),))


@pytest.fixture
def workspace(engine_dir: Path, tmp_path: Path) -> Iterator[Workspace]:
    """Store a span of today and three of yesterday."""
    with engines.embedded(engine_dir) as store:
        workspace = Workspace(tmp_path, store)
        workspace.send("today", 1)
        workspace.now_s -= DAY_S
        workspace.send("yesterday", 3)
        workspace.now_s += DAY_S
        workspace.writer.drain()
        yield workspace


def run_until(
    workspace: Workspace, is_done: Callable[[WriterThread], bool], store: StoreSettings = NO_RULE
) -> None:
    """Run the writer's thread on what is stored. Fails if it does not come so far."""
    workspace.ledger.close()
    root = workspace.root
    settings = Settings(data_dir=str(root), store=store)
    thread = WriterThread(settings, workspace.store, Journal(root / "journal"), DeadLetterList(root).dead)
    thread.start()
    until_s = time.monotonic() + WAIT_S
    while not is_done(thread):
        assert time.monotonic() < until_s, thread.trouble
        thread.check()
        time.sleep(0.05)
    thread.stop(0)
    thread.join(WAIT_S)
    workspace.start()


def store_expired(workspace: Workspace) -> None:
    """Store five spans of a project whose retention is over."""
    workspace.now_s -= 2 * DAY_S
    workspace.send("expired", 5)
    workspace.now_s += 2 * DAY_S
    workspace.writer.drain()


def projects(store: EmbeddedStore) -> dict[str, int]:
    return dict(stored_projects(store))


def test_oldest_day_is_deleted_while_the_store_is_larger_than_the_limit(workspace: Workspace) -> None:
    run_until(workspace, lambda _: projects(workspace.store) == {"today": 1}, StoreSettings(disk_bytes_max=1))

    [line] = workspace.query(since="3d", project="yesterday").lines
    assert (line.stored, line.deleted, line.verdict) == (0, 3, "same")


def test_spans_are_deleted_after_the_retention_of_their_project(workspace: Workspace) -> None:
    store_expired(workspace)

    run_until(workspace, lambda _: projects(workspace.store) == {"today": 1, "yesterday": 3}, EXPIRED)

    [line] = workspace.query(since="3d", project="expired").lines
    assert (line.stored, line.deleted, line.verdict) == (0, 5, "same")


@pytest.mark.parametrize(
    "store",
    [pytest.param(StoreSettings(disk_bytes_max=1), id="limit"), pytest.param(EXPIRED, id="retention rule")],
)
def test_nothing_is_deleted_by_a_rule_while_the_clock_is_not_trusted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, store: StoreSettings
) -> None:
    store_expired(workspace)
    monkeypatch.setattr("receiver.engine.expiry.Clock.check", lambda _: "the clock was set")
    steps: list[int] = []

    def took_steps(thread: WriterThread) -> bool:
        if thread.has_tables:
            steps.append(thread.call_between_steps(lambda: 1))
        return len(steps) > 3

    run_until(workspace, took_steps, store)

    assert projects(workspace.store) == {"today": 1, "yesterday": 3, "expired": 5}


def test_deletion_of_an_earlier_process_is_finished(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Deletion, "delete", lambda *_: None)
        deletions_of(workspace).begin(day_of(workspace), Chosen(project="today"))

    run_until(workspace, lambda _: not deletion_path(workspace.root).exists())

    assert projects(workspace.store) == {"yesterday": 3}
    [line] = workspace.query(project="today").lines
    assert (line.stored, line.deleted, line.verdict) == (0, 1, "same")
