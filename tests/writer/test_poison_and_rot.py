"""Damage to a segment after its poison rows became a dead letter: no row is in two dead letters."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from receiver.writer.progress import Progress
from receiver.writer.row_search import shift_after_removal, subtract
from receiver.writer.segment_state import Reading
from tests.support.fake_clickhouse import FakeFile
from tests.support.redelivery import FaultInjector, Harness, Killed, inject_faults, rotted
from tests.support.segments import day_of


@pytest.fixture(autouse=True)
def small_blocks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite each record separately, so that a segment can lose one of several records."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


def with_a_letter(harness: Harness) -> FakeFile:
    """A writer killed after the dead letter of delivery 3, before its rows were left out of the segment."""
    harness.store.poisonous_days = {day_of(3)}
    file = harness.add([1], [2], [3], [4])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFile, "replace", _kill)
        with pytest.raises(Killed):
            harness.drain()
    assert [letter.reason.cause for letter in harness.letters] == ["poison"]
    return file


def _kill(_file: FakeFile, _content: bytes) -> None:
    raise Killed


def assert_right(harness: Harness, lost: int) -> None:
    assert {number for number, copies in harness.copies.items() if copies} == {1, 2, 4} - {lost}
    assert sorted(letter.reason.cause for letter in harness.letters) == ["damaged", "poison"]
    assert (harness.booked.received, harness.booked.unaccounted) == (2 + 3 + 4 + 5, 0)


@pytest.mark.fault("damage to a segment whose dead rows are not left out yet, each of its records")
@pytest.mark.parametrize("record", [0, 1, 2, 3])
def test_dead_rows_are_left_out_after_damage_moved_them(tmp_path: Path, record: int) -> None:
    harness = Harness(tmp_path)
    file = with_a_letter(harness)
    rotted(file.path, record=record)

    harness.start()
    harness.drain()

    assert_right(harness, record + 1)


def test_kill_at_any_step_still_leaves_the_dead_rows_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 400):
        directory = tmp_path / str(step)
        directory.mkdir()
        harness = Harness(directory)
        rotted(with_a_letter(harness).path, record=0)
        with monkeypatch.context() as patch:
            inject_faults(injector := FaultInjector(steps_left=step), patch)
            with suppress(Killed):
                harness.start().drain()

        harness.start()
        harness.drain()

        assert_right(harness, 1)
        if injector.steps_left > 0:
            return
    raise AssertionError("never reached the end")


def test_retried_damaged_segment_is_one_dead_letter_and_one_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path)
    rotted(harness.add([1], [2]).path, record=0)
    replace, refusals = FakeFile.replace, iter([True, True, True])

    def refused(file: FakeFile, content: bytes) -> None:
        if next(refusals, False):
            raise OSError(28, "refused")
        replace(file, content)

    monkeypatch.setattr(FakeFile, "replace", refused)
    alarms: list[str] = []
    monkeypatch.setattr(Progress, "alarm", lambda _self, cause, _text: alarms.append(cause))

    harness.drain()

    assert (harness.progress.dead, harness.progress.dead_rows) == ({"damaged": 1}, {"damaged": 2})
    assert alarms.count("damaged") == 1


@pytest.mark.parametrize(
    ("left_out", "lost", "expected"),
    [
        ([(4, 6)], (0, 3), [(1, 3)]),
        ([(4, 6)], (6, 9), [(4, 6)]),
        ([(4, 6)], (5, 9), [(4, 5)]),
        ([(0, 2), (4, 6)], (1, 5), [(0, 1), (1, 2)]),
        ([(4, 6)], (3, 7), []),
    ],
)
def test_rows_are_located_after_earlier_rows_were_removed(
    left_out: list[tuple[int, int]], lost: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    assert shift_after_removal(subtract(left_out, [lost]), [lost]) == expected
