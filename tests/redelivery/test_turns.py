"""A delivery that comes again while its segment rests or is set aside: stored once all the same."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from receiver.writer import dedupe
from tests.support.redelivery import Fate, Killed, Mill, haunt, rotted

REFUSED = ["error:117"]
POISON = "error:70"


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return Mill(tmp_path)


def test_copy_waits_for_a_delayed_segment_while_others_proceed(mill: Mill) -> None:
    mill.store.script = [*REFUSED, "ok", "error:117"]
    for records in ([1, 2], [2, 3], [4]):
        mill.add(records)
    writer = mill.start()

    turns = [writer.drain(), writer.drain()]

    assert turns == [2, 0]
    assert mill.copies == {1: 0, 2: 0, 3: 0, 4: 1}
    assert mill.progress.backlog_segments == 2
    mill.sleep(60.0)
    assert writer.drain() == 1
    mill.sleep(60.0)
    assert [writer.drain(), writer.drain()] == [1, 1]
    assert mill.is_exact
    assert mill.progress.backlog_segments == 0


def test_copy_waits_for_a_segment_that_was_delayed_before_a_crash(mill: Mill) -> None:
    mill.store.script = [*REFUSED, "ok"]
    for records in ([1, 2], [2, 3], [4]):
        mill.add(records)
    mill.start().drain()

    mill.start(mill.files[::-1])
    mill.drain()

    assert mill.is_exact


def test_restart_leaves_no_segment_waiting_for_a_deleted_segment(mill: Mill) -> None:
    mill.add([1, 2])
    mill.store.script = ["eaten"] * 8
    mill.drain()

    mill.start()
    mill.add([2, 1])
    mill.drain()

    assert mill.is_exact


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "the note was lost"])
def test_delivery_damaged_between_two_runs_is_stored_when_it_is_redelivered(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, lives: int, *, is_noted: bool
) -> None:
    monkeypatch.setattr(dedupe, "BLOCK_ROWS_MAX", 4)
    file = mill.add([2], [3])
    mill.store.script = ["error:117"] * lives
    mill.start().drain()
    rotted(file.path, record=1)
    if not is_noted:
        shutil.rmtree(mill.directory / "redelivery")
    for _ in range(1, lives):
        mill.start().drain()
    mill.start()
    mill.drain()
    assert 0 < mill.copies[3] < 1

    mill.add([3])
    mill.drain()

    assert mill.copies[3] > 1


@pytest.mark.parametrize("is_reversed", [False, True], ids=["same order", "another order after it"])
@pytest.mark.parametrize("after", ["ok", "error:117"], ids=["taken after it", "refused after it"])
def test_kill_while_a_segment_becomes_a_dead_letter_stores_no_copy_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, *, is_reversed: bool
) -> None:
    fate = Fate()
    haunt(fate, monkeypatch)
    for step in range(1, 60):
        directory = tmp_path / str(step)
        directory.mkdir()
        mill = Mill(directory, [POISON], fate=fate)
        for records in ([1, 2], [2, 3], [4]):
            mill.add(records)
        fate.steps_left = step
        with suppress(Killed):
            mill.start().drain()
        fate.steps_left = -1
        mill.store.script += [after]

        writer = mill.start(mill.files[::-1] if is_reversed else None)
        for _ in range(4):
            writer.drain()
            mill.sleep(60.0)

        assert max(mill.copies.values()) <= 1.0, f"killed at step {step}: {mill.copies}"
        assert mill.is_exact or mill.letters, f"killed at step {step}: {mill.copies}"
        assert mill.is_accounted_for, f"killed at step {step}: {mill.booked}"
