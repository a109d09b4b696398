"""Damage to a segment that is stored in pieces: every row is stored once or dead, and in the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.writer.reading import Reading
from tests.support.redelivery import Harness, rotted
from tests.support.segments import day_of


@pytest.fixture(autouse=True)
def keep_records_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not merge records, so that a segment can lose one of several records."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


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
