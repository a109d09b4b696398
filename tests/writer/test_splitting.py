"""Splitting: a segment that is too large for the store is stored in parts exactly once, also after crashes.

Delivery n has n + 1 rows, all n days old.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from receiver.durable.files import DISK
from receiver.ledger.ledger import read_sums
from receiver.ledger.line_sums import Counts
from receiver.settings import Ledger as Limits
from tests.support.redelivery import FaultInjector, Harness, Killed, inject_disk_faults, inject_faults, rotted
from tests.support.segments import day_of

SEGMENT = "0000000000000007-0000000001"


def a_mill(directory: Path, *, rows_max: int = 3, injector: FaultInjector | None = None) -> Harness:
    directory.mkdir(exist_ok=True)
    harness = Harness(directory, injector=injector or FaultInjector())
    harness.store.rows_max = rows_max
    return harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return a_mill(tmp_path)


def test_segment_that_is_too_large_is_inserted_in_parts(harness: Harness) -> None:
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert harness.is_ledger_exact
    assert harness.progress.rows == 11
    assert harness.progress.alarms == 0
    assert not harness.letters
    assert list((harness.directory / "cuts").iterdir()) == []
    ledger, _ = read_sums(harness.directory / "ledger", Limits())
    assert {segment.epoch for segment, _, _ in harness.store.parts} < set(ledger.epochs)


def test_parts_that_are_too_large_are_split_again(tmp_path: Path) -> None:
    harness = a_mill(tmp_path, rows_max=1)
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact


def test_segment_that_fits_at_a_retry_is_not_split(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["error:241", "error:159", "ok"]
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert len({token.partition("#")[0] for token in harness.store.tokens}) == 1


def test_single_row_that_is_too_large_does_not_delay_other_segments(tmp_path: Path) -> None:
    harness = a_mill(tmp_path, rows_max=0)
    harness.add([0])
    writer = harness.start()
    writer.drain()
    harness.store.rows_max = 3
    harness.add([1])

    writer.drain()

    assert harness.copies == {0: 0, 1: 1}
    harness.sleep(60.0)
    writer.drain()
    assert harness.is_exact


def test_other_segments_are_inserted_before_the_parts(harness: Harness) -> None:
    harness.add([5, 4])
    harness.add([1])

    harness.start().drain()

    assert harness.copies == {5: 0, 4: 0, 1: 1}


def test_duplicate_waits_until_the_last_part_is_stored(harness: Harness) -> None:
    harness.add([5, 4])
    harness.start().drain()
    harness.add([4, 1])

    harness.drain()

    assert harness.is_exact
    assert harness.progress.duplicates == {"drain": 1}


def test_refused_rows_of_a_part_become_a_dead_letter(harness: Harness) -> None:
    harness.store.poisonous_days = {day_of(1)}
    harness.add([5, 1, 4])

    harness.drain()

    assert harness.copies == {5: 1, 1: 0, 4: 1}
    assert sum(letter.reason.rows or 0 for letter in harness.letters) == 2
    assert harness.booked == Counts(received=13, stored=11, dead=2)


def test_refused_rows_of_a_part_are_dead_if_another_process_finishes_the_segment(harness: Harness) -> None:
    harness.store.poisonous_days = {day_of(1)}
    harness.add([5, 1, 4])

    for _ in range(10):
        harness.start()
        harness.turns(6)

    assert harness.booked == Counts(received=13, stored=11, dead=2)


def test_damage_in_a_part_is_counted_once(harness: Harness) -> None:
    harness.add([5, 4])
    harness.start()
    harness.turns(3)
    part = next((harness.directory / "cuts").glob("*/*.native.lz4"))
    lost = rotted(part, record=0)

    harness.drain()

    assert harness.booked == Counts(received=11, stored=11 - lost, dead=lost)


def test_stored_days_are_not_split(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["partly", *["error:241"] * 3]
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert "refill 1" in harness.store.events


def test_segment_with_partly_stored_days_is_not_split(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["error:241", "error:241", "half:241"]
    harness.add([5])

    harness.drain()

    assert harness.copies == {5: 0.5}
    assert [letter.reason.cause for letter in harness.letters] == ["odd"]


@pytest.mark.parametrize("processes", [1, 3], ids=["one process", "a process for each try"])
@pytest.mark.parametrize("unsynced", ["cuts", "."])
def test_parts_are_synced_before_any_is_inserted(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, unsynced: str, processes: int
) -> None:
    sync_directory = DISK.sync_directory

    def refusing(path: Path) -> None:
        if path == harness.directory / unsynced:
            raise OSError(5, "Input/output error")
        sync_directory(path)

    harness.add([5, 4])
    writer = harness.start()
    for attempt in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(DISK, "sync_directory", refusing)
            writer.drain()
        writer = harness.start() if attempt < processes else writer

    assert harness.store.parts == []
    harness.drain()
    assert harness.is_exact


def test_parts_are_kept_while_the_journal_does_not_list_their_segment(harness: Harness) -> None:
    harness.add([5, 4])
    writer = harness.start()
    harness.turns(3)
    harness.store.script = ["ok", *["error:117"] * 3]
    writer.drain()
    assert 0 < sum(harness.copies.values()) < 2

    harness.start(order=[]).drain()

    harness.start()
    harness.drain()
    assert harness.is_exact


@pytest.mark.parametrize("rows_max", [1, 4])
def test_kill_at_any_step_of_a_split_stores_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    injector = FaultInjector()
    inject_faults(injector, monkeypatch)
    for step in range(1, 1_000, 2 if rows_max > 1 else 15):
        harness = a_mill(tmp_path / str(step), rows_max=rows_max, injector=injector)
        harness.add([5, 1])
        harness.add([5])
        injector.steps_left = step
        with suppress(Killed):
            harness.start().drain()
            harness.drain()
            break
        injector.steps_left = -1

        harness.start(harness.files[::-1])
        harness.drain()

        assert harness.is_exact, f"killed at step {step}: {harness.copies}"
        assert harness.is_ledger_exact, f"killed at step {step}: {harness.booked}"
        assert list((harness.directory / "cuts").glob("*")) == [], f"killed at step {step}"
    else:
        raise AssertionError("never reached the end")


def test_any_single_failed_write_neither_duplicates_nor_loses_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector = FaultInjector(ends_with=lambda: OSError(28, "No space left on device"))
    inject_disk_faults(injector, monkeypatch)
    for step in range(1, 1_000):
        harness = a_mill(tmp_path / str(step), injector=injector)
        harness.add([5])
        writer = harness.start()
        injector.steps_left = step
        for _ in range(4):
            writer.drain()
        is_over, injector.steps_left = injector.steps_left > 0, -1

        harness.drain()

        assert harness.is_exact, f"refused at step {step}: {harness.copies}"
        assert harness.is_ledger_exact, f"refused at step {step}: {harness.booked}"
        assert not harness.letters
        assert list((harness.directory / "cuts").glob(".*")) == [], f"refused at step {step}"
        if is_over:
            return
    raise AssertionError("never reached the end")


def test_unknown_file_in_the_split_directory_is_not_touched(harness: Harness) -> None:
    cuts = harness.directory / "cuts"
    names = ["notes.native", ".keep", f"{SEGMENT}.backup", f"{SEGMENT}.0000000000000009"]
    strange = [cuts / name for name in names]
    cuts.mkdir()
    for path in strange:
        path.write_text("not a directory of parts")
    harness.add([5, 4])

    harness.start().drain()
    harness.drain()

    assert harness.is_exact
    assert sorted(cuts.iterdir()) == sorted(strange)
