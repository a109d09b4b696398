"""Damage to a segment after its INSERT: its rows are counted, and duplicates of it are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.errors import StoreTrouble
from receiver.writer.segment_state import Reading
from tests.support.fake_clickhouse import FakeFile, MemoryStore
from tests.support.redelivery import Killed, Mill, rotted


@pytest.fixture(autouse=True)
def small_blocks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite each record separately, so that a segment can lose one of several records."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


def inserted_and_killed(mill: Mill, *records: list[int]) -> FakeFile:
    """A segment whose INSERT was applied and whose writer was killed before the response."""
    file = mill.add(*records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "insert", _last_words(MemoryStore.insert))
        with pytest.raises(Killed):
            mill.start().drain()
    return file


def _last_words(insert: Callable[..., int]) -> Callable[..., int]:
    def killed(self: MemoryStore, path: Path, *, token: str, query_id: str) -> int:
        insert(self, path, token=token, query_id=query_id)
        raise Killed

    return killed


@pytest.mark.fault("damage to a segment after an INSERT whose response was lost, each of its records")
@pytest.mark.parametrize("record", [0, 1, 2])
def test_segment_damaged_after_its_insert_counts_as_stored(tmp_path: Path, record: int) -> None:
    mill = Mill(tmp_path)
    file = inserted_and_killed(mill, [1, 2], [3], [4])
    rotted(file.path, record=record)

    mill.start()
    mill.drain()
    mill.add([1], [2, 3], [4])
    mill.drain()

    assert mill.is_exact
    assert mill.letters == []
    assert mill.booked.unaccounted == 0
    assert (mill.booked.stored, mill.booked.dead) == (2 + 3 + 4 + 5, 0)


def test_segment_that_lost_its_only_record_is_still_counted(tmp_path: Path) -> None:
    mill = Mill(tmp_path)
    file = inserted_and_killed(mill, [1, 2])
    rotted(file.path, record=0)

    mill.start()
    mill.drain()
    mill.add([2, 1])
    mill.drain()

    assert mill.is_exact
    assert (mill.booked.stored, mill.booked.dead, mill.booked.duplicate) == (5, 0, 5)


@pytest.mark.fault("damage to a segment of which some days were stored")
def test_duplicate_of_a_partly_stored_damaged_segment_is_not_stored(tmp_path: Path) -> None:
    mill = Mill(tmp_path)
    file = inserted_and_killed(mill, [1, 2], [3])
    mill.store.parts.pop()
    rotted(file.path, record=0)

    mill.start()
    mill.drain()
    mill.add([1], [2, 3])
    mill.drain()

    assert set(mill.copies.values()) == {0.0, 1.0}
    assert [letter.reason.cause for letter in mill.letters] == ["odd"]
    assert mill.booked.unaccounted == 0
    assert (mill.booked.stored, mill.booked.dead) == (5, 4)


def test_segment_damaged_before_its_insert_loses_only_that_record(tmp_path: Path) -> None:
    mill = Mill(tmp_path)
    file = mill.add([1, 2], [3])
    rotted(file.path, record=1)

    mill.drain()
    mill.add([3])
    mill.drain()

    assert mill.is_exact
    assert [letter.reason.cause for letter in mill.letters] == ["damaged"]


def test_footer_damaged_after_the_insert_loses_no_row(tmp_path: Path) -> None:
    mill = Mill(tmp_path)
    file = inserted_and_killed(mill, [1, 2], [3])
    file.path.write_bytes(file.path.read_bytes()[:-1])

    mill.start()
    mill.drain()
    mill.add([1, 2, 3])
    mill.drain()

    assert mill.is_exact
    assert mill.letters == []
    assert mill.is_ledger_exact


def test_failed_count_of_a_damaged_segment_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = Mill(tmp_path)
    file = inserted_and_killed(mill, [1, 2])
    rotted(file.path, record=0)
    counts, answers = MemoryStore.counts, iter([True, True, False])

    def away(self: MemoryStore, held: list[object]) -> object:
        if next(answers, False):
            raise StoreTrouble("connection reset")
        return counts(self, held)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStore, "counts", away)
    mill.start()
    mill.drain()

    assert mill.is_exact
    assert mill.letters == []
