"""Redelivery while the first segment is delayed or becomes a dead letter: the delivery is stored once."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from receiver.writer import dedupe
from tests.support.redelivery import FaultInjector, Harness, Killed, inject_faults, rotted

REFUSED = ["error:117"]
POISON = "error:70"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_copy_waits_for_a_delayed_segment_while_others_proceed(harness: Harness) -> None:
    harness.store.script = [*REFUSED, "ok", "error:117"]
    for records in ([1, 2], [2, 3], [4]):
        harness.add(records)
    writer = harness.start()

    turns = [writer.drain(), writer.drain()]

    assert turns == [2, 0]
    assert harness.copies == {1: 0, 2: 0, 3: 0, 4: 1}
    assert harness.progress.backlog_segments == 2
    harness.sleep(60.0)
    assert writer.drain() == 1
    harness.sleep(60.0)
    assert [writer.drain(), writer.drain()] == [1, 1]
    assert harness.is_exact
    assert harness.progress.backlog_segments == 0


def test_copy_waits_for_a_segment_that_was_delayed_before_a_crash(harness: Harness) -> None:
    harness.store.script = [*REFUSED, "ok"]
    for records in ([1, 2], [2, 3], [4]):
        harness.add(records)
    harness.start().drain()

    harness.start(harness.files[::-1])
    harness.drain()

    assert harness.is_exact


def test_restart_leaves_no_segment_waiting_for_a_deleted_segment(harness: Harness) -> None:
    harness.add([1, 2])
    harness.store.script = ["eaten"] * 8
    harness.drain()

    harness.start()
    harness.add([2, 1])
    harness.drain()

    assert harness.is_exact


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("is_recorded", [True, False], ids=["decision recorded", "decision lost"])
def test_delivery_damaged_between_two_runs_is_stored_when_it_is_redelivered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, runs: int, *, is_recorded: bool
) -> None:
    monkeypatch.setattr(dedupe, "BLOCK_ROWS_MAX", 4)
    file = harness.add([2], [3])
    harness.store.script = ["error:117"] * runs
    harness.start().drain()
    rotted(file.path, record=1)
    if not is_recorded:
        shutil.rmtree(harness.directory / "redelivery")
    for _ in range(1, runs):
        harness.start().drain()
    harness.start()
    harness.drain()
    assert 0 < harness.copies[3] < 1

    harness.add([3])
    harness.drain()

    assert harness.copies[3] > 1


@pytest.mark.parametrize("is_reversed", [False, True], ids=["same order", "another order after it"])
@pytest.mark.parametrize("after", ["ok", "error:117"], ids=["taken after it", "refused after it"])
def test_kill_while_a_segment_becomes_a_dead_letter_stores_no_copy_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, *, is_reversed: bool
) -> None:
    injector = FaultInjector()
    inject_faults(injector, monkeypatch)
    for step in range(1, 60):
        directory = tmp_path / str(step)
        directory.mkdir()
        harness = Harness(directory, [POISON], injector=injector)
        for records in ([1, 2], [2, 3], [4]):
            harness.add(records)
        injector.steps_left = step
        with suppress(Killed):
            harness.start().drain()
        injector.steps_left = -1
        harness.store.script += [after]

        writer = harness.start(harness.files[::-1] if is_reversed else None)
        for _ in range(4):
            writer.drain()
            harness.sleep(60.0)

        assert max(harness.copies.values()) <= 1.0, f"killed at step {step}: {harness.copies}"
        assert harness.is_exact or harness.letters, f"killed at step {step}: {harness.copies}"
        assert harness.is_accounted_for, f"killed at step {step}: {harness.booked}"
