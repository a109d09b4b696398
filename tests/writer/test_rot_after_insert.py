"""Damage to a segment after its INSERT, between two attempts, or while it is stored in pieces.

Its rows are counted, each is stored once or dead, and duplicates of stored rows are not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from receiver import transcode
from receiver.errors import StoreTrouble
from receiver.ledger.line_sums import Counts
from receiver.writer import dedupe
from receiver.writer.reading import Reading
from tests.support.fake_clickhouse import FakeFile, MemoryStore
from tests.support.redelivery import Harness, Killed, rotted
from tests.support.segments import day_of

pytestmark = pytest.mark.usefixtures("keep_records_separate")


def inserted_and_killed(harness: Harness, *records: list[int]) -> FakeFile:
    """Add a segment whose INSERT is applied, and kill the writer before the response."""
    file = harness.add(*records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "insert", _kill_after(MemoryStore.insert))
        with pytest.raises(Killed):
            harness.start().drain()
    return file


def _kill_after(insert: Callable[..., int]) -> Callable[..., int]:
    def killed(self: MemoryStore, path: Path, *, token: str, query_id: str) -> int:
        insert(self, path, token=token, query_id=query_id)
        raise Killed

    return killed


def cut_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.fault("damage to a segment after an INSERT whose response was lost, each of its records")
@pytest.mark.parametrize(
    ("records", "damage"),
    [
        *(
            pytest.param([[1, 2], [3], [4]], partial(rotted, record=record), id=f"record {record}")
            for record in (0, 1, 2)
        ),
        pytest.param([[1, 2]], partial(rotted, record=0), id="its only record"),
        pytest.param([[1, 2], [3]], cut_footer, id="footer"),
    ],
)
def test_segment_damaged_after_its_insert_counts_as_stored(
    tmp_path: Path, records: list[list[int]], damage: Callable[[Path], object]
) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, *records)
    damage(file.path)

    harness.start()
    harness.drain()
    harness.add(*records[::-1])
    harness.drain()

    assert harness.is_exact
    assert harness.dead_letters == []
    rows = sum(number + 1 for record in records for number in record)
    assert harness.recorded == Counts(received=2 * rows, stored=rows, duplicate=rows)


@pytest.mark.fault("damage to a segment of which some days were stored")
def test_duplicate_of_a_partly_stored_damaged_segment_is_not_stored(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2], [3])
    harness.store.parts.pop()
    rotted(file.path, record=0)

    harness.start()
    harness.drain()
    harness.add([1], [2, 3])
    harness.drain()

    assert set(harness.copies.values()) == {0.0, 1.0}
    assert [letter.reason.cause for letter in harness.dead_letters] == ["odd"]
    assert harness.recorded.unaccounted == 0
    assert (harness.recorded.stored, harness.recorded.dead) == (5, 4)


def test_segment_damaged_before_its_insert_loses_only_that_record(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = harness.add([1, 2], [3])
    rotted(file.path, record=1)

    harness.drain()
    harness.add([3])
    harness.drain()

    assert harness.is_exact
    assert [letter.reason.cause for letter in harness.dead_letters] == ["damaged"]


def test_failed_count_of_a_damaged_segment_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2])
    rotted(file.path, record=0)
    counts, answers = MemoryStore.counts, iter([True, True, False])

    def fail_twice(self: MemoryStore, location: list[object]) -> object:
        if next(answers, False):
            raise StoreTrouble("connection reset")
        return counts(self, location)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStore, "counts", fail_twice)
    harness.start()
    harness.drain()

    assert harness.is_exact
    assert harness.dead_letters == []


def test_segment_that_was_truncated_after_it_was_partly_stored_is_not_complete(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2], [3])
    harness.store.parts.pop()
    content = file.path.read_bytes()
    file.path.write_bytes(content[: transcode.scan(content).records[1].offset])

    harness.start()
    harness.drain()

    assert harness.copies == {1: 1, 2: 1, 3: 0}
    assert [letter.reason.cause for letter in harness.dead_letters] == ["odd"]
    assert harness.recorded == Counts(received=6, stored=5, dead=1)


def test_merged_segment_that_was_truncated_after_its_insert_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reading, "has_small_blocks", True)
    monkeypatch.setattr(dedupe, "BLOCK_ROWS_MAX", 4)
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2], [3])
    content = file.path.read_bytes()
    file.path.write_bytes(content[: transcode.scan(content).records[1].offset])

    harness.start()
    harness.drain()

    assert harness.is_exact
    assert harness.dead_letters == []
    assert harness.is_ledger_exact


@pytest.mark.fault("damage to a segment between two attempts of one process, each of its records")
@pytest.mark.parametrize("record", [0, 1, 2])
@pytest.mark.parametrize("rows_max", [4, None])
@pytest.mark.parametrize(
    "script", [["error:241"], ["error:241"] * 2, ["first_day"], ["answer_lost"]], ids=" ".join
)
def test_damage_between_two_attempts_loses_no_row_silently(
    tmp_path: Path, script: list[str], rows_max: int | None, record: int
) -> None:
    harness = Harness(tmp_path)
    harness.store.script = [*script, *["error:241"] * 2]
    harness.store.rows_max = rows_max
    file = harness.add([1], [2], [3])
    harness.start().drain()
    if file.path.exists():
        rotted(file.path, record=record)

    harness.run_turns(60)

    stored = sum(count for _, _, count in harness.store.parts)
    assert not file.path.exists()
    assert harness.recorded == Counts(received=9, stored=stored, dead=9 - stored)
    assert sum(letter.reason.rows or 0 for letter in harness.dead_letters) == 9 - stored


@pytest.mark.fault("damage to every record of a segment between two attempts of one process")
def test_segment_that_lost_all_rows_between_two_attempts_is_not_stored(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.store.script = ["error:241"]
    file = harness.add([1])
    harness.start().drain()
    rotted(file.path, record=0)

    harness.run_turns(10)

    assert harness.recorded == Counts(received=2, dead=2)
    assert [(letter.reason.cause, letter.reason.rows) for letter in harness.dead_letters] == [("damaged", 2)]


@pytest.mark.fault("damage to a segment that is stored in pieces, each of its records")
@pytest.mark.parametrize("record", [0, 1, 2, 3])
@pytest.mark.parametrize("turns", [2, 4, 6])
def test_damage_to_a_split_segment_loses_no_row_silently(tmp_path: Path, record: int, turns: int) -> None:
    harness = Harness(tmp_path)
    harness.store.poisonous_days = {day_of(3)}
    file = harness.add([1], [2], [3], [4])
    harness.start()
    harness.run_turns(turns)
    assert list((tmp_path / "splits").iterdir())
    rotted(file.path, record=record)

    harness.start()
    harness.drain()

    rows = 2 + 3 + 4 + 5
    stored = sum(count for _, _, count in harness.store.parts)
    assert all(copies <= 1 for copies in harness.copies.values())
    assert {letter.reason.cause for letter in harness.dead_letters} <= {"poison", "unreadable"}
    assert sum(letter.reason.rows or 0 for letter in harness.dead_letters) == rows - stored
    assert (harness.recorded.received, harness.recorded.stored) == (rows, stored)
    assert harness.recorded.unaccounted == 0
