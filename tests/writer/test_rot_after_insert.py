"""A segment rots after it was inserted and before anybody knew: its rows are counted, its copies left out."""

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
    """So that a segment has several records, and loses one of them."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


def inserted_and_killed(mill: Mill, *records: list[int]) -> FakeFile:
    """A segment whose INSERT was applied, and whose writer did not live to hear of it."""
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


@pytest.mark.fault("rot in a segment after an INSERT whose answer was lost, each of its records")
@pytest.mark.parametrize("record", [0, 1, 2])
def test_a_segment_that_rotted_after_its_insert_is_stored_and_known(tmp_path: Path, record: int) -> None:
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


def test_with_its_only_record_nothing_is_forgotten(tmp_path: Path) -> None:
    mill = Mill(tmp_path)
    file = inserted_and_killed(mill, [1, 2])
    rotted(file.path, record=0)

    mill.start()
    mill.drain()
    mill.add([2, 1])
    mill.drain()

    assert mill.is_exact
    assert (mill.booked.stored, mill.booked.dead, mill.booked.duplicate) == (5, 0, 5)


@pytest.mark.fault("rot in a segment of which some days were stored")
def test_of_a_segment_that_is_partly_stored_and_rotted_no_copy_is_stored(tmp_path: Path) -> None:
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


def test_a_segment_that_rotted_before_its_insert_costs_its_record_as_ever(tmp_path: Path) -> None:
    mill = Mill(tmp_path)
    file = mill.add([1, 2], [3])
    rotted(file.path, record=1)

    mill.drain()
    mill.add([3])
    mill.drain()

    assert mill.is_exact
    assert [letter.reason.cause for letter in mill.letters] == ["damaged"]


def test_a_footer_that_rotted_after_the_insert_costs_nothing(tmp_path: Path) -> None:
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


def test_a_store_that_cannot_say_yet_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
