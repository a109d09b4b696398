"""Calls that run on the writer's thread between two of its steps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.dead_letters.directory import DeadLetterList
from receiver.errors import DiskTrouble, NotConfigured
from receiver.journal.segments import Journal
from receiver.settings import Settings
from receiver.store_process import writer_thread
from receiver.store_process.operations import Operations
from receiver.store_process.writer_thread import WriterThread
from tests.support import engines
from tests.support.fake_clickhouse import MemoryStore

WAIT_S = 30.0


@pytest.fixture
def thread(engine_dir: Path, tmp_path: Path) -> Iterator[WriterThread]:
    """The writer of an empty journal, which is not started."""
    settings = Settings(data_dir=str(tmp_path))
    with engines.embedded(engine_dir) as store:
        thread = WriterThread(settings, store, Journal(tmp_path / "journal"), DeadLetterList(tmp_path).dead)
        yield thread
        thread.stop(0)
        if thread.has_tables:
            thread.join(WAIT_S)


def test_call_runs_on_the_writers_thread_and_returns_its_result(thread: WriterThread) -> None:
    thread.start()

    assert thread.call_between_steps(threading.current_thread).name == "writer"
    thread.check()


def test_error_of_a_call_is_raised_to_its_caller_only(thread: WriterThread) -> None:
    thread.start()

    with pytest.raises(ZeroDivisionError):
        thread.call_between_steps(lambda: 1 // 0)

    assert thread.call_between_steps(lambda: 1) == 1
    thread.check()


def test_call_that_the_writer_does_not_reach_in_time_is_never_run(
    thread: WriterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_thread, "STEP_S_MAX", 0.01)
    calls: list[int] = []
    with pytest.raises(DiskTrouble, match="the writer waits for the store"):
        thread.call_between_steps(lambda: calls.append(1))
    monkeypatch.undo()
    thread.start()

    thread.call_between_steps(lambda: calls.append(2))

    assert calls == [2]


def test_snapshot_of_a_server_is_refused_and_of_unknown_tables_postponed(
    thread: WriterThread, tmp_path: Path
) -> None:
    store = MemoryStore()
    operations = Operations(Settings(data_dir=str(tmp_path)), store, thread)

    store.embedded = True
    with pytest.raises(DiskTrouble, match="not known to be up to date yet"):
        operations.snapshot(DeadLetterList(tmp_path))
    store.embedded = False
    with pytest.raises(NotConfigured, match="the store is a server"):
        operations.snapshot(DeadLetterList(tmp_path))
