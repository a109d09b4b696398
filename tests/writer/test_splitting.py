"""A segment that is more than the store can take is cut up until it goes in, exactly once, whatever dies.

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


def test_what_is_too_large_goes_in_in_parts(mill: Mill) -> None:
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


def test_parts_that_are_too_large_are_cut_up_in_turn(tmp_path: Path) -> None:
    mill = a_mill(tmp_path, rows_max=1)
    mill.add([5, 4])

    mill.drain()

    assert mill.is_exact


def test_what_goes_in_when_the_store_has_memory_again_is_not_cut_up(mill: Mill) -> None:
    mill.store.rows_max = None
    mill.store.script = ["error:241", "error:159", "ok"]
    mill.add([5, 4])

    mill.drain()

    assert mill.is_exact
    assert len({token.partition("#")[0] for token in mill.store.tokens}) == 1


def test_one_row_that_is_too_large_rests_and_the_others_go_first(tmp_path: Path) -> None:
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


def test_others_go_first_while_it_is_cut_up(mill: Mill) -> None:
    mill.add([5, 4])
    mill.add([1])

    mill.start().drain()

    assert mill.copies == {5: 0, 4: 0, 1: 1}


def test_a_copy_waits_until_the_last_part_is_stored(mill: Mill) -> None:
    mill.add([5, 4])
    mill.start().drain()
    mill.add([4, 1])

    mill.drain()

    assert mill.is_exact
    assert mill.progress.duplicates == {"drain": 1}


def test_poison_in_a_part_costs_its_rows(mill: Mill) -> None:
    mill.store.poisonous_days = {day_of(1)}
    mill.add([5, 1, 4])

    mill.drain()

    assert mill.copies == {5: 1, 1: 0, 4: 1}
    assert sum(letter.reason.rows or 0 for letter in mill.letters) == 2
    assert mill.booked == Counts(received=13, stored=11, dead=2)


def test_poison_in_a_part_is_dead_though_its_segment_ends_in_another_life(mill: Mill) -> None:
    mill.store.poisonous_days = {day_of(1)}
    mill.add([5, 1, 4])

    for _ in range(10):
        mill.start()
        mill.turns(6)

    assert mill.booked == Counts(received=13, stored=11, dead=2)


def test_rot_in_a_part_is_counted_once(mill: Mill) -> None:
    mill.add([5, 4])
    mill.start()
    mill.turns(3)
    part = next((mill.directory / "cuts").glob("*/*.native.lz4"))
    lost = rotted(part, record=0)

    mill.drain()

    assert mill.booked == Counts(received=11, stored=11 - lost, dead=lost)


def test_days_that_are_stored_already_are_not_cut_up(mill: Mill) -> None:
    mill.store.rows_max = None
    mill.store.script = ["partly", *["error:241"] * 3]
    mill.add([5, 4])

    mill.drain()

    assert mill.is_exact
    assert "refill 1" in mill.store.events


def test_what_is_there_neither_wholly_nor_not_at_all_is_not_cut_up(mill: Mill) -> None:
    mill.store.rows_max = None
    mill.store.script = ["error:241", "error:241", "half:241"]
    mill.add([5])

    mill.drain()

    assert mill.copies == {5: 0.5}
    assert [letter.reason.cause for letter in mill.letters] == ["odd"]


@pytest.mark.parametrize("lives", [1, 3], ids=["one life", "a life for each try"])
@pytest.mark.parametrize("unsynced", ["cuts", "."])
def test_parts_are_on_the_disk_before_any_is_inserted(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, unsynced: str, lives: int
) -> None:
    sync_directory = DISK.sync_directory

    def refusing(path: Path) -> None:
        if path == mill.directory / unsynced:
            raise OSError(5, "Input/output error")
        sync_directory(path)

    mill.add([5, 4])
    writer = mill.start()
    for life in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(DISK, "sync_directory", refusing)
            writer.drain()
        writer = mill.start() if life < lives else writer

    assert mill.store.parts == []
    mill.drain()
    assert mill.is_exact


def test_parts_stay_though_the_journal_does_not_show_what_they_were_cut_from(mill: Mill) -> None:
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
def test_killed_at_every_step_of_it_every_row_is_stored_once(
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


def test_a_disk_that_refuses_any_one_write_doubles_nothing_and_loses_nothing(
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


def test_what_is_not_ours_among_the_cuts_is_left_alone_and_stops_nothing(mill: Mill) -> None:
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
