"""Damage to a segment after its INSERT: its rows are counted, and duplicates of it are not stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from receiver import transcode
from receiver.errors import StoreTrouble
from receiver.ledger.line_sums import Counts
from receiver.writer import dedupe
from receiver.writer.reading import Reading
from tests.support.fake_clickhouse import FakeFile, MemoryStore
from tests.support.redelivery import Harness, Killed, rotted


@pytest.fixture(autouse=True)
def keep_records_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not merge records, so that a segment can lose one of several records."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


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


@pytest.mark.fault("damage to a segment after an INSERT whose response was lost, each of its records")
@pytest.mark.parametrize("record", [0, 1, 2])
def test_segment_damaged_after_its_insert_counts_as_stored(tmp_path: Path, record: int) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2], [3], [4])
    rotted(file.path, record=record)

    harness.start()
    harness.drain()
    harness.add([1], [2, 3], [4])
    harness.drain()

    assert harness.is_exact
    assert harness.dead_letters == []
    assert harness.recorded.unaccounted == 0
    assert (harness.recorded.stored, harness.recorded.dead) == (2 + 3 + 4 + 5, 0)


def test_segment_that_lost_its_only_record_is_still_counted(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2])
    rotted(file.path, record=0)

    harness.start()
    harness.drain()
    harness.add([2, 1])
    harness.drain()

    assert harness.is_exact
    assert (harness.recorded.stored, harness.recorded.dead, harness.recorded.duplicate) == (5, 0, 5)


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


def test_footer_damaged_after_the_insert_loses_no_row(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2], [3])
    file.path.write_bytes(file.path.read_bytes()[:-1])

    harness.start()
    harness.drain()
    harness.add([1, 2, 3])
    harness.drain()

    assert harness.is_exact
    assert harness.dead_letters == []
    assert harness.is_ledger_exact


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
