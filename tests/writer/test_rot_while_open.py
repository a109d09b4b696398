"""Damage to a segment between two attempts of one process: no row is lost silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.writer.reading import Reading
from tests.support.redelivery import Harness, rotted


@pytest.fixture(autouse=True)
def small_blocks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each record apart, so that a segment can lose one of several records."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)


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
    assert (harness.recorded.received, harness.recorded.stored, harness.recorded.dead) == (
        9,
        stored,
        9 - stored,
    )
    assert sum(letter.reason.rows or 0 for letter in harness.dead_letters) == 9 - stored


@pytest.mark.fault("damage to every record of a segment between two attempts of one process")
def test_segment_that_lost_all_rows_between_two_attempts_is_not_stored(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.store.script = ["error:241"]
    file = harness.add([1])
    harness.start().drain()
    rotted(file.path, record=0)

    harness.run_turns(10)

    assert (harness.recorded.received, harness.recorded.stored, harness.recorded.dead) == (2, 0, 2)
    assert [(letter.reason.cause, letter.reason.rows) for letter in harness.dead_letters] == [("damaged", 2)]
