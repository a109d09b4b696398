"""The rollup thread derives hours while the writer keeps up, survives a failing store, and can be stopped."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from receiver.console.queries.rollup.slots import invalidate, read_slots
from receiver.console.rollup_thread import RollupThread
from receiver.engine.cluster import ONE_SERVER
from receiver.engine.embedded import EmbeddedStore
from receiver.errors import StoreTrouble
from tests.support import engines
from tests.support.random_filters import insert
from tests.support.rollups import CLOSING, MIDNIGHT_S, assert_equal, random_spans

WAIT_S = 60.0
HOUR = MIDNIGHT_S // 3_600


@pytest.fixture
def store(engine_dir: Path) -> Iterator[EmbeddedStore]:
    with engines.embedded(engine_dir) as store:
        yield store


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait without using a processor; the caller's test fails after `WAIT_S`."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("the condition did not become true")


def test_thread_derives_hours_and_derives_them_again_after_a_rebuild(store: EmbeddedStore) -> None:
    spans = random_spans(random.Random(1))
    insert(store, spans)
    thread = RollupThread(store, lambda: CLOSING, lambda: True, is_on=True)
    thread.start()
    wait_until(lambda: len(read_slots(store, HOUR, HOUR + 24)) == 24)
    invalidate(store, None)
    thread.wake()
    wait_until(lambda: len(read_slots(store, HOUR, HOUR + 24)) == 24)
    thread.stop()
    thread.join(WAIT_S)

    assert_equal(store, spans)


def test_thread_waits_while_segments_wait(store: EmbeddedStore) -> None:
    insert(store, random_spans(random.Random(2)))
    has_asked, may_go_on = threading.Event(), threading.Event()

    def keeps_up() -> bool:
        has_asked.set()
        return may_go_on.is_set()

    thread = RollupThread(store, lambda: CLOSING, keeps_up, is_on=True)
    thread.start()
    assert has_asked.wait(WAIT_S)
    assert not read_slots(store, 0, HOUR + 48)
    may_go_on.set()
    wait_until(lambda: bool(read_slots(store, 0, HOUR + 48)))
    thread.stop()
    thread.join(WAIT_S)


def test_thread_that_is_off_asks_neither_the_store_nor_the_writer() -> None:
    asked = list[str]()

    class Unused:
        embedded = True

        def rows(self, statement: str, _parameters: object = None) -> list[tuple[object, ...]]:
            asked.append(statement)
            return []

        def kill(self, _prefix: str) -> None:
            """Do nothing: no statement runs."""

    def keeps_up() -> bool:
        asked.append("keeps up")
        return True

    thread = RollupThread(Unused(), lambda: CLOSING, keeps_up, is_on=False)  # type: ignore[arg-type]  # only what is used
    thread.start()
    thread.wake()
    thread.stop()
    thread.join(WAIT_S)

    assert asked == []
    assert thread.lag_s() == 0.0


def test_failing_store_does_not_end_the_thread_and_a_stop_does() -> None:
    calls = list[str]()
    has_failed = threading.Event()

    class Failing:
        embedded = True
        layout = ONE_SERVER
        receiver = "tests"

        def rows(self, statement: str, _parameters: object = None) -> list[tuple[object, ...]]:
            calls.append(statement)
            has_failed.set()
            raise StoreTrouble("unavailable")

        def kill(self, prefix: str) -> None:
            calls.append(prefix)
            raise StoreTrouble("unavailable")

    thread = RollupThread(Failing(), lambda: CLOSING, lambda: True, is_on=True)  # type: ignore[arg-type]  # only what is used
    thread.start()
    assert has_failed.wait(WAIT_S)
    was_alive = thread.is_alive
    thread.stop()
    thread.join(WAIT_S)

    assert calls[1:] == ["trace-drain-rollup"]
    assert (was_alive, thread.is_alive) == (True, False)


def test_stop_cancels_a_running_statement(store: EmbeddedStore) -> None:
    insert(store, random_spans(random.Random(3)))
    is_running, failures = threading.Event(), list[StoreTrouble]()

    class Slow:
        """Store whose derivations take minutes."""

        embedded = True
        definition_version = None
        layout = ONE_SERVER
        receiver = "tests"

        def rows(self, statement: str, parameters: dict[str, object] | None = None) -> object:
            if not statement.startswith("INSERT INTO otel_red"):
                return store.rows(statement, parameters)  # type: ignore[arg-type]  # as it is given
            is_running.set()
            try:
                return store.rows(
                    "SELECT sum(sleepEachRow(0.1)) FROM numbers(6000) "
                    "SETTINGS max_block_size = 1, function_sleep_max_microseconds_per_block = 1000000000, "
                    "log_comment = 'trace-drain-rollup'"
                )
            except StoreTrouble as trouble:
                failures.append(trouble)
                raise

        def kill(self, prefix: str) -> None:
            wait_until(lambda: bool(store.running(prefix)))
            store.kill(prefix)

    thread = RollupThread(Slow(), lambda: CLOSING, lambda: True, is_on=True)  # type: ignore[arg-type]  # only what is used
    thread.start()
    assert is_running.wait(WAIT_S)
    thread.stop()
    thread.join(WAIT_S)

    assert len(failures) == 1
    assert not thread.is_alive
    assert not read_slots(store, 0, HOUR + 48)
