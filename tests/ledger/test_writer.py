"""Entries of the writer when rows are not stored: poison, damage, lost decisions."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from receiver import transcode
from receiver.journal.frame import answers_of
from receiver.ledger import ledger
from receiver.ledger.ledger import read_sums
from receiver.ledger.line_sums import OTHER, UNKNOWN, Counts
from receiver.ledger.recorded import RecordedSegments
from receiver.model import Heading
from receiver.settings import Ledger as Limits
from receiver.writer import dedupe
from tests.support.fake_clickhouse import NOW_S, FakeFile
from tests.support.redelivery import Harness, Killed, killed_at_each_step, rotted
from tests.support.segments import day_of

POISON = "error:70"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def rows_stored(harness: Harness) -> int:
    return sum(count for _, _, count in harness.store.parts)


def test_dead_letter_counts_as_dead_and_its_copies_as_duplicates(harness: Harness) -> None:
    harness.store.poisonous_days = {day_of(1), day_of(2)}
    harness.add([1, 2])
    harness.add([2])

    harness.drain()

    assert harness.recorded == Counts(received=8, duplicate=3, dead=5)


def test_missing_rows_of_a_partly_stored_segment_are_dead(harness: Harness) -> None:
    harness.store.script = ["first_day", "ok_without_rows", "ok_without_rows"]
    harness.add([1, 2], [4])

    harness.drain()

    assert rows_stored(harness) not in {0, 10}
    assert harness.recorded == Counts(
        received=10, stored=rows_stored(harness), dead=10 - rows_stored(harness)
    )


@pytest.mark.parametrize("runs", [1, 2])
def test_deleted_segment_is_kept_as_a_sum(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    for _ in range(29):
        harness.add([0])
    if runs > 1:
        harness.drain()
        harness.kill()
    monkeypatch.setattr(ledger, "LOG_BYTES_MIN", 100)
    harness.add([0])

    harness.drain()

    sums, one_by_one = read_sums(harness.directory / "ledger", Limits())
    assert sum(counts.received for counts in sums.lines.values()) == 30
    assert len(one_by_one) < 10


def test_partly_stored_segment_is_counted_row_by_row(harness: Harness) -> None:
    harness.store.script = ["half_a_day"]
    harness.add([3])

    harness.drain()

    assert harness.recorded == Counts(received=4, stored=2, dead=2)


def test_damaged_rows_are_dead_although_their_drain_is_unknown(harness: Harness) -> None:
    file = harness.add([1], [2], [4])
    lost = rotted(file.path, record=1)

    harness.drain()

    sums, _ = read_sums(harness.directory / "ledger", Limits())
    assert sums.lines == {
        Heading("drain", "", NOW_S // 3_600): Counts(received=7, stored=7),
        Heading(UNKNOWN, OTHER, NOW_S // 3_600): Counts(received=lost, dead=lost),
    }


def test_damage_that_cannot_be_removed_makes_the_whole_segment_dead(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise ValueError("no")

    lost = rotted(harness.add([1], [2], [4]).path, record=1)
    monkeypatch.setattr(transcode, "rewrite", refuse)

    harness.drain()

    assert harness.recorded == Counts(received=10, dead=10)
    assert lost == 3


@pytest.mark.parametrize(
    "outcome",
    [pytest.param("ok", id="stored"), pytest.param(POISON, id="dead letter", marks=pytest.mark.fault_tier)],
)
@pytest.mark.timeout(300)
def test_kill_at_any_step_counts_a_damaged_segment_once(tmp_path: Path, outcome: str) -> None:
    def prepare(harness: Harness) -> None:
        harness.store.script = [outcome]
        rotted(harness.add([1], [2], [1, 4]).path, record=1)
        harness.add([2, 3])

    for kill, harness in killed_at_each_step(tmp_path, prepare):
        harness.start()
        harness.drain()

        assert harness.recorded.unaccounted == 0, kill
        assert harness.recorded.received == 9 + 3 + 7, f"{kill}: {harness.recorded}"
        assert harness.recorded.stored == rows_stored(harness), f"{kill}: {harness.recorded}"


@pytest.mark.timeout(300)
def test_kill_while_a_part_becomes_a_dead_letter_keeps_the_ledger_correct(tmp_path: Path) -> None:
    def prepare(harness: Harness) -> None:
        harness.store.script = [
            *("first_day", POISON, POISON, "ok_without_rows", "ok_without_rows", "answer_lost")
        ]
        harness.add([1, 2], [4])
        harness.add([2, 3])

    for kill, harness in killed_at_each_step(tmp_path, prepare):
        assert harness.is_accounted_for, f"{kill}: {harness.recorded}"
        harness.start()
        harness.drain()

        assert harness.is_accounted_for, f"{kill}: {harness.recorded}"
        assert harness.recorded.stored == rows_stored(harness), f"{kill}: {harness.recorded}"


def test_removed_copy_is_a_duplicate_even_if_its_decision_was_lost(harness: Harness) -> None:
    harness.add([1, 2])
    again = harness.add([2, 3])
    harness.store.script = ["ok", *["error:117"] * 5]
    harness.start().drain()
    assert _rows(again) == (3 + 4, 4)
    harness.kill()
    shutil.rmtree(harness.directory / "redelivery")

    harness.drain()

    assert harness.recorded == Counts(received=12, stored=9, duplicate=3)


def test_segment_that_waits_for_another_version_is_recorded_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(_file: FakeFile) -> None:
        raise Killed

    monkeypatch.setattr(ledger, "LOG_BYTES_MIN", 1)
    file = harness.add([1])
    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(FakeFile, "unlink", kill)
        harness.start().drain()
    harness.start([harness.add([2])], newer=[file]).drain()
    harness.start()

    harness.drain()

    assert harness.recorded == Counts(received=5, stored=5)


@pytest.mark.parametrize("is_refused", [False, True], ids=["stored", "dead letter"])
@pytest.mark.parametrize("record", [0, 1])
def test_damage_in_a_rewritten_segment_is_counted_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, record: int, *, is_refused: bool
) -> None:
    monkeypatch.setattr(dedupe, "BLOCK_ROWS_MAX", 4)
    harness.add([1])
    file = harness.add([1, 2], [3])
    harness.store.script = ["ok", *["error:117"] * 5]
    harness.start().drain()
    assert _rows(file) == (2 + 3 + 4, 3 + 4)
    lost = rotted(file.path, record=record)
    harness.kill()
    harness.store.script = []
    harness.store.poisonous_days = {day_of(2), day_of(3)} if is_refused else set()

    harness.drain()

    received = 2 + 9 if record else 2 + 7
    stored = rows_stored(harness)
    assert stored == (2 if is_refused else 2 + 7 - lost)
    assert not any(letter.reason.deliveries for letter in harness.dead_letters)
    duplicate = 2 if record else 0
    assert harness.recorded == Counts(
        received, stored, duplicate=duplicate, dead=received - stored - duplicate
    )


@pytest.mark.parametrize("record", [0, 1])
def test_damage_is_counted_once_after_a_restart(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, record: int
) -> None:
    monkeypatch.setattr(dedupe, "BLOCK_ROWS_MAX", 4)
    file = harness.add([2], [3])
    harness.store.script = ["error:117"] * 2
    harness.start().drain()
    lost = rotted(file.path, record=record)
    harness.start().drain()
    assert not transcode.scan(file.path.read_bytes()).damage
    harness.kill()

    harness.drain()

    assert harness.recorded == Counts(received=7, stored=7 - lost, dead=lost)


def test_second_damage_keeps_the_dead_letter_and_the_ledger_entry_of_the_first(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedupe, "BLOCK_ROWS_MAX", 2)
    file = harness.add([1], [2], [4])
    harness.store.script = ["error:117"] * 2
    lost = rotted(file.path, record=0)
    harness.start().drain()
    lost_again = rotted(file.path, record=0)

    harness.start()
    harness.drain()

    assert [letter.reason.rows for letter in harness.dead_letters] == [lost, lost_again]
    assert harness.recorded == Counts(received=10, stored=10 - lost - lost_again, dead=lost + lost_again)


def _rows(file: FakeFile) -> Sequence[int]:
    """Return the rows of the delivery records and the rows of the segment."""
    records = transcode.scan(file.path.read_bytes()).records
    answered = sum(delivery.rows for record in records for delivery in answers_of(record))
    return answered, sum(record.rows for record in records)


@pytest.mark.timeout(300)
def test_kill_at_any_step_logs_each_stored_segment_for_the_metrics_of_spans(tmp_path: Path) -> None:
    def prepare(harness: Harness) -> None:
        harness.follows = True
        harness.store.script = ["first_day", POISON]
        harness.add([1, 2], [4])
        harness.add([2, 3])
        harness.add([3])

    for kill, harness in killed_at_each_step(tmp_path, prepare):
        harness.start()
        harness.drain()

        log = RecordedSegments(harness.directory / "followed" / "segments.log")
        assert sum(segment.rows for segment in log.entries()) == rows_stored(harness), kill
        log.retain(set())
        log.discard([segment.id for segment in log.entries()])
        log.close()
