"""Redelivery while the first segment is delayed or becomes a dead letter: the delivery is stored once."""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from receiver.redelivery.window import Window
from receiver.writer import dedupe
from tests.support.fake_clickhouse import FakeFile
from tests.support.redelivery import Harness, Killed, killed_at_each_step, rotted
from tests.support.segments import day_of

REFUSED = ("error:117",)
KILLS = 99
"""Steps at which the writer is killed: it splits the first segment and inserts others meanwhile."""


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
    harness.store.script = ["ok_without_rows"] * 8
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


@pytest.mark.parametrize("is_reversed", [False, True], ids=["same order", "reverse order afterwards"])
@pytest.mark.parametrize("is_refused_after", [False, True], ids=["next stored", "next refused"])
def test_kill_while_a_segment_becomes_a_dead_letter_stores_no_copy_twice(
    tmp_path: Path, *, is_refused_after: bool, is_reversed: bool
) -> None:
    def prepare(harness: Harness) -> None:
        harness.store.poisonous_days = {day_of(1), day_of(2)}
        for records in ([1, 2], [2, 3], [4]):
            harness.add(records)

    for kill, harness in islice(killed_at_each_step(tmp_path, prepare), KILLS):
        if is_refused_after:
            harness.store.script += ["error:117"]
        else:
            harness.store.poisonous_days = set()

        writer = harness.start(harness.files[::-1] if is_reversed else None)
        for _ in range(30):
            writer.drain()
            harness.sleep(60.0)

        assert max(harness.copies.values()) <= 1.0, f"{kill}: {harness.copies}"
        assert harness.is_exact or harness.dead_letters, f"{kill}: {harness.copies}"
        assert harness.is_accounted_for, f"{kill}: {harness.recorded}"


def test_waiting_segment_is_not_read_again_before_the_other_is_stored(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add([1, 2])
    waiting = harness.add([2, 3])
    harness.store.script = ["error:117"] * 20
    harness.start()
    harness.run_turns(1)
    reads: list[Path] = []
    read = FakeFile.read

    def recorded(file: FakeFile) -> bytes:
        reads.append(file.path)
        content: bytes = read(file)
        return content

    monkeypatch.setattr(FakeFile, "read", recorded)
    harness.run_turns(5)

    assert waiting.path not in reads
    harness.store.script = []
    harness.drain()
    assert harness.is_exact


def test_segment_that_waits_for_one_of_a_newer_version_is_reported_as_a_stall(harness: Harness) -> None:
    newer = harness.add([1])
    harness.store.script = [*REFUSED]
    harness.start().drain()
    waiting = harness.add([1])

    harness.start([waiting], newer=[newer])
    harness.run_turns(3)

    assert waiting.path.exists()
    assert harness.progress.stalled == {
        waiting.id: f"it waits for segment {newer.id}, which only a newer version reads"
    }


def test_delivery_is_known_if_its_segment_vanishes_after_it_was_recorded_in_the_ledger(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_arguments: object) -> None:
        raise Killed

    file = harness.add([1, 2])
    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(Window, "end", kill)
        harness.start().drain()
    file.path.unlink()
    harness.add([2])

    harness.start()
    harness.drain()

    assert harness.is_exact
    assert harness.is_ledger_exact
