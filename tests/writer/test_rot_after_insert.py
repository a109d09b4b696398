"""A segment rots after it was inserted and before anybody knew: its rows are counted, its copies left out."""

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
    """So that a segment has several records, and loses one of them."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


def inserted_and_killed(harness: Harness, *records: list[int]) -> FakeFile:
    """A segment whose INSERT was applied, and whose writer did not live to hear of it."""
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


@pytest.mark.fault("rot in a segment after an INSERT whose answer was lost, each of its records")
@pytest.mark.parametrize("record", [0, 1, 2])
def test_a_segment_that_rotted_after_its_insert_is_stored_and_known(tmp_path: Path, record: int) -> None:
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


def test_with_its_only_record_nothing_is_forgotten(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = inserted_and_killed(harness, [1, 2])
    rotted(file.path, record=0)

    harness.start()
    harness.drain()
    harness.add([2, 1])
    harness.drain()

    assert harness.is_exact
    assert (harness.booked.stored, harness.booked.dead, harness.booked.duplicate) == (5, 0, 5)


@pytest.mark.fault("rot in a segment of which some days were stored")
def test_of_a_segment_that_is_partly_stored_and_rotted_no_copy_is_stored(tmp_path: Path) -> None:
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


def test_a_segment_that_rotted_before_its_insert_costs_its_record_as_ever(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = harness.add([1, 2], [3])
    rotted(file.path, record=1)

    harness.drain()
    harness.add([3])
    harness.drain()

    assert harness.is_exact
    assert [letter.reason.cause for letter in harness.letters] == ["damaged"]


def test_a_footer_that_rotted_after_the_insert_costs_nothing(tmp_path: Path) -> None:
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


def test_a_store_that_cannot_say_yet_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
