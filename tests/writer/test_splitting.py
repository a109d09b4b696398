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
from tests.support.redelivery import Fate, Killed, Mill, haunt, haunt_disk, rotted
from tests.support.segments import day_of

SEGMENT = "0000000000000007-0000000001"


def a_mill(directory: Path, *, rows_max: int = 3, fate: Fate | None = None) -> Mill:
    directory.mkdir(exist_ok=True)
    mill = Mill(directory, fate=fate or Fate())
    mill.store.rows_max = rows_max
    return mill


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return a_mill(tmp_path)


def test_segment_that_is_too_large_is_inserted_in_parts(mill: Mill) -> None:
    mill.add([5, 4])

    mill.drain()

    assert mill.is_exact
    assert mill.is_ledger_exact
    assert mill.progress.rows == 11
    assert mill.progress.alarms == 0
    assert not mill.letters
    assert list((mill.directory / "cuts").iterdir()) == []
    ledger, _ = read_sums(mill.directory / "ledger", Limits())
    assert {segment.epoch for segment, _, _ in mill.store.parts} < set(ledger.epochs)


def test_parts_that_are_too_large_are_split_again(tmp_path: Path) -> None:
    mill = a_mill(tmp_path, rows_max=1)
    mill.add([5, 4])

    mill.drain()

    assert mill.is_exact


def test_segment_that_fits_at_a_retry_is_not_split(mill: Mill) -> None:
    mill.store.rows_max = None
    mill.store.script = ["error:241", "error:159", "ok"]
    mill.add([5, 4])

    mill.drain()

    assert mill.is_exact
    assert len({token.partition("#")[0] for token in mill.store.tokens}) == 1


def test_single_row_that_is_too_large_does_not_delay_other_segments(tmp_path: Path) -> None:
    mill = a_mill(tmp_path, rows_max=0)
    mill.add([0])
    writer = mill.start()
    writer.drain()
    mill.store.rows_max = 3
    mill.add([1])

    writer.drain()

    assert mill.copies == {0: 0, 1: 1}
    mill.sleep(60.0)
    writer.drain()
    assert mill.is_exact


def test_other_segments_are_inserted_before_the_parts(mill: Mill) -> None:
    mill.add([5, 4])
    mill.add([1])

    mill.start().drain()

    assert mill.copies == {5: 0, 4: 0, 1: 1}


def test_duplicate_waits_until_the_last_part_is_stored(mill: Mill) -> None:
    mill.add([5, 4])
    mill.start().drain()
    mill.add([4, 1])

    mill.drain()

    assert mill.is_exact
    assert mill.progress.duplicates == {"drain": 1}


def test_refused_rows_of_a_part_become_a_dead_letter(mill: Mill) -> None:
    mill.store.poisonous_days = {day_of(1)}
    mill.add([5, 1, 4])

    mill.drain()

    assert mill.copies == {5: 1, 1: 0, 4: 1}
    assert sum(letter.reason.rows or 0 for letter in mill.letters) == 2
    assert mill.booked == Counts(received=13, stored=11, dead=2)


def test_refused_rows_of_a_part_are_dead_if_another_process_finishes_the_segment(mill: Mill) -> None:
    mill.store.poisonous_days = {day_of(1)}
    mill.add([5, 1, 4])

    for _ in range(10):
        mill.start()
        mill.turns(6)

    assert mill.booked == Counts(received=13, stored=11, dead=2)


def test_damage_in_a_part_is_counted_once(mill: Mill) -> None:
    mill.add([5, 4])
    mill.start()
    mill.turns(3)
    part = next((mill.directory / "cuts").glob("*/*.native.lz4"))
    lost = rotted(part, record=0)

    mill.drain()

    assert mill.booked == Counts(received=11, stored=11 - lost, dead=lost)


def test_stored_days_are_not_split(mill: Mill) -> None:
    mill.store.rows_max = None
    mill.store.script = ["partly", *["error:241"] * 3]
    mill.add([5, 4])

    mill.drain()

    assert mill.is_exact
    assert "refill 1" in mill.store.events


def test_segment_with_partly_stored_days_is_not_split(mill: Mill) -> None:
    mill.store.rows_max = None
    mill.store.script = ["error:241", "error:241", "half:241"]
    mill.add([5])

    mill.drain()

    assert mill.copies == {5: 0.5}
    assert [letter.reason.cause for letter in mill.letters] == ["odd"]


@pytest.mark.parametrize("processes", [1, 3], ids=["one process", "a process for each try"])
@pytest.mark.parametrize("unsynced", ["cuts", "."])
def test_parts_are_synced_before_any_is_inserted(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, unsynced: str, processes: int
) -> None:
    sync_directory = DISK.sync_directory

    def refusing(path: Path) -> None:
        if path == mill.directory / unsynced:
            raise OSError(5, "Input/output error")
        sync_directory(path)

    mill.add([5, 4])
    writer = mill.start()
    for attempt in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(DISK, "sync_directory", refusing)
            writer.drain()
        writer = mill.start() if attempt < processes else writer

    assert mill.store.parts == []
    mill.drain()
    assert mill.is_exact


def test_parts_are_kept_while_the_journal_does_not_list_their_segment(mill: Mill) -> None:
    mill.add([5, 4])
    writer = mill.start()
    mill.turns(3)
    mill.store.script = ["ok", *["error:117"] * 3]
    writer.drain()
    assert 0 < sum(mill.copies.values()) < 2

    mill.start(order=[]).drain()

    mill.start()
    mill.drain()
    assert mill.is_exact


@pytest.mark.parametrize("rows_max", [1, 4])
def test_kill_at_any_step_of_a_split_stores_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    fate = Fate()
    haunt(fate, monkeypatch)
    for step in range(1, 1_000, 2 if rows_max > 1 else 15):
        mill = a_mill(tmp_path / str(step), rows_max=rows_max, fate=fate)
        mill.add([5, 1])
        mill.add([5])
        fate.steps_left = step
        with suppress(Killed):
            mill.start().drain()
            mill.drain()
            break
        fate.steps_left = -1

        mill.start(mill.files[::-1])
        mill.drain()

        assert mill.is_exact, f"killed at step {step}: {mill.copies}"
        assert mill.is_ledger_exact, f"killed at step {step}: {mill.booked}"
        assert list((mill.directory / "cuts").glob("*")) == [], f"killed at step {step}"
    else:
        raise AssertionError("never reached the end")


def test_any_single_failed_write_neither_duplicates_nor_loses_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fate = Fate(ends_with=lambda: OSError(28, "No space left on device"))
    haunt_disk(fate, monkeypatch)
    for step in range(1, 1_000):
        mill = a_mill(tmp_path / str(step), fate=fate)
        mill.add([5])
        writer = mill.start()
        fate.steps_left = step
        for _ in range(4):
            writer.drain()
        is_over, fate.steps_left = fate.steps_left > 0, -1

        mill.drain()

        assert mill.is_exact, f"refused at step {step}: {mill.copies}"
        assert mill.is_ledger_exact, f"refused at step {step}: {mill.booked}"
        assert not mill.letters
        assert list((mill.directory / "cuts").glob(".*")) == [], f"refused at step {step}"
        if is_over:
            return
    raise AssertionError("never reached the end")


def test_unknown_file_in_the_split_directory_is_not_touched(mill: Mill) -> None:
    cuts = mill.directory / "cuts"
    names = ["notes.native", ".keep", f"{SEGMENT}.backup", f"{SEGMENT}.0000000000000009"]
    strange = [cuts / name for name in names]
    cuts.mkdir()
    for path in strange:
        path.write_text("not a directory of parts")
    mill.add([5, 4])

    mill.start().drain()
    mill.drain()

    assert mill.is_exact
    assert sorted(cuts.iterdir()) == sorted(strange)
