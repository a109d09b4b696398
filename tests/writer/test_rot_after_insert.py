"""Damage to a segment after its INSERT: its rows are counted, and duplicates of it are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.errors import StoreTrouble
from receiver.writer.segment_state import Reading
from tests.support.fake_clickhouse import FakeFile, MemoryStore
from tests.support.redelivery import Harness, Killed, rotted


@pytest.fixture(autouse=True)
def small_blocks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite each record separately, so that a segment can lose one of several records."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


def inserted_and_killed(harness: Harness, *records: list[int]) -> FakeFile:
    """A segment whose INSERT was applied and whose writer was killed before the response."""
    file = harness.add(*records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "insert", _last_words(MemoryStore.insert))
        with pytest.raises(Killed):
            harness.start().drain()
    return file


def _last_words(insert: Callable[..., int]) -> Callable[..., int]:
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
    assert harness.letters == []
    assert harness.booked.unaccounted == 0
    assert (harness.booked.stored, harness.booked.dead) == (2 + 3 + 4 + 5, 0)


def test_segment_that_lost_its_only_record_is_still_counted(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2])
    rotted(file.path, record=0)

    harness.start()
    harness.drain()
    harness.add([2, 1])
    harness.drain()

    assert harness.is_exact
    assert (harness.booked.stored, harness.booked.dead, harness.booked.duplicate) == (5, 0, 5)


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
    assert [letter.reason.cause for letter in harness.letters] == ["odd"]
    assert harness.booked.unaccounted == 0
    assert (harness.booked.stored, harness.booked.dead) == (5, 4)


def test_segment_damaged_before_its_insert_loses_only_that_record(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = harness.add([1, 2], [3])
    rotted(file.path, record=1)

    harness.drain()
    harness.add([3])
    harness.drain()

    assert harness.is_exact
    assert [letter.reason.cause for letter in harness.letters] == ["damaged"]


def test_footer_damaged_after_the_insert_loses_no_row(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2], [3])
    file.path.write_bytes(file.path.read_bytes()[:-1])

    harness.start()
    harness.drain()
    harness.add([1, 2, 3])
    harness.drain()

    assert harness.is_exact
    assert harness.letters == []
    assert harness.is_ledger_exact


def test_failed_count_of_a_damaged_segment_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2])
    rotted(file.path, record=0)
    counts, answers = MemoryStore.counts, iter([True, True, False])

    def away(self: MemoryStore, held: list[object]) -> object:
        if next(answers, False):
            raise StoreTrouble("connection reset")
        return counts(self, held)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStore, "counts", away)
    harness.start()
    harness.drain()

    assert harness.is_exact
    assert harness.letters == []
