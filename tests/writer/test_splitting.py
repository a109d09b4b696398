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


def test_what_is_too_large_goes_in_in_parts(harness: Harness) -> None:
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


def test_parts_that_are_too_large_are_cut_up_in_turn(tmp_path: Path) -> None:
    harness = a_mill(tmp_path, rows_max=1)
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact


def test_what_goes_in_when_the_store_has_memory_again_is_not_cut_up(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["error:241", "error:159", "ok"]
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert len({token.partition("#")[0] for token in harness.store.tokens}) == 1


def test_one_row_that_is_too_large_rests_and_the_others_go_first(tmp_path: Path) -> None:
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


def test_others_go_first_while_it_is_cut_up(harness: Harness) -> None:
    harness.add([5, 4])
    harness.add([1])

    harness.start().drain()

    assert harness.copies == {5: 0, 4: 0, 1: 1}


def test_a_copy_waits_until_the_last_part_is_stored(harness: Harness) -> None:
    harness.add([5, 4])
    harness.start().drain()
    harness.add([4, 1])

    harness.drain()

    assert harness.is_exact
    assert harness.progress.duplicates == {"drain": 1}


def test_poison_in_a_part_costs_its_rows(harness: Harness) -> None:
    harness.store.poisonous_days = {day_of(1)}
    harness.add([5, 1, 4])

    harness.drain()

    assert harness.copies == {5: 1, 1: 0, 4: 1}
    assert sum(letter.reason.rows or 0 for letter in harness.letters) == 2
    assert harness.booked == Counts(received=13, stored=11, dead=2)


def test_poison_in_a_part_is_dead_though_its_segment_ends_in_another_life(harness: Harness) -> None:
    harness.store.poisonous_days = {day_of(1)}
    harness.add([5, 1, 4])

    for _ in range(10):
        harness.start()
        harness.turns(6)

    assert harness.booked == Counts(received=13, stored=11, dead=2)


def test_rot_in_a_part_is_counted_once(harness: Harness) -> None:
    harness.add([5, 4])
    harness.start()
    harness.turns(3)
    part = next((harness.directory / "cuts").glob("*/*.native.lz4"))
    lost = rotted(part, record=0)

    harness.drain()

    assert harness.booked == Counts(received=11, stored=11 - lost, dead=lost)


def test_days_that_are_stored_already_are_not_cut_up(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["partly", *["error:241"] * 3]
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert "refill 1" in harness.store.events


def test_what_is_there_neither_wholly_nor_not_at_all_is_not_cut_up(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["error:241", "error:241", "half:241"]
    harness.add([5])

    harness.drain()

    assert harness.copies == {5: 0.5}
    assert [letter.reason.cause for letter in harness.letters] == ["odd"]


@pytest.mark.parametrize("lives", [1, 3], ids=["one life", "a life for each try"])
@pytest.mark.parametrize("unsynced", ["cuts", "."])
def test_parts_are_on_the_disk_before_any_is_inserted(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, unsynced: str, lives: int
) -> None:
    sync_directory = DISK.sync_directory

    def refusing(path: Path) -> None:
        if path == harness.directory / unsynced:
            raise OSError(5, "Input/output error")
        sync_directory(path)

    harness.add([5, 4])
    writer = harness.start()
    for life in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(DISK, "sync_directory", refusing)
            writer.drain()
        writer = harness.start() if life < lives else writer

    assert harness.store.parts == []
    harness.drain()
    assert harness.is_exact


def test_parts_stay_though_the_journal_does_not_show_what_they_were_cut_from(harness: Harness) -> None:
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
def test_killed_at_every_step_of_it_every_row_is_stored_once(
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


def test_a_disk_that_refuses_any_one_write_doubles_nothing_and_loses_nothing(
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


def test_what_is_not_ours_among_the_cuts_is_left_alone_and_stops_nothing(harness: Harness) -> None:
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
