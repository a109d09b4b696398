"""The writer with local disk errors, hanging engines and segments that only the store refuses."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import pytest

from receiver import transcode
from receiver.durable.files import Disk
from receiver.model import SegmentId
from receiver.writer.progress import Progress
from receiver.writer.reading import read_segment
from tests.support.fake_clickhouse import (
    TODAY,
    FakeCore,
    FakeFile,
    FakeRecord,
    FakeScan,
    MemoryStore,
    segment_of,
)
from tests.support.record_layout import record
from tests.support.segments import day_of
from tests.writer.test_writer import ID, TWO_DAYS, WriterHarness


@pytest.fixture
def harness(tmp_path: Path) -> WriterHarness:
    return WriterHarness(tmp_path, MemoryStore())


@dataclass
class UndeletableFile(FakeFile):
    """A segment whose first deletions fail."""

    failures_left: int = 1

    def unlink(self) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().unlink()


def test_unreadable_segment_does_not_delay_other_segments(harness: WriterHarness) -> None:
    unreadable = harness.file(TWO_DAYS)
    harness.file(segment_of([TODAY]), seq=2)
    unreadable.path.unlink()
    unreadable.path.mkdir()

    harness.writer.drain()

    assert [token.partition("#")[0][-1] for token in harness.store.tokens] == ["2"]
    assert harness.progress.alarms == 1
    assert "makes no progress" in harness.progress.stall_reason
    assert harness.slept == []


def test_segment_that_cannot_be_deleted_is_counted_before_the_next_insert(harness: WriterHarness) -> None:
    writer = harness.writer
    writer.drain()
    file = harness.file(TWO_DAYS)
    harness.files[0] = UndeletableFile(file.id, file.path)

    writer.drain()
    harness.between_turns_s += 2.0
    writer.drain()

    assert harness.store.tokens == [f"{ID}#0"]
    assert harness.store.events.count("count") == 2
    assert harness.dead_letters == []
    assert not file.path.exists()


def test_spans_of_a_segment_that_cannot_be_deleted_are_counted_once(harness: WriterHarness) -> None:
    file = harness.file(TWO_DAYS)
    harness.files[0] = UndeletableFile(file.id, file.path, failures_left=3)
    writer = harness.writer

    for _ in range(4):
        writer.drain()
        harness.between_turns_s += 60.0

    assert not file.path.exists()
    assert harness.progress.rows == 500


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(["error:243"] * 40, id="waiting until the store has space"),
        pytest.param(["delayed:400"], id="waiting for a statement whose answer was lost"),
    ],
)
def test_store_is_checked_for_damage_while_the_writer_waits(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch, script: list[str]
) -> None:
    harness.file(TWO_DAYS)
    harness.sleeps_max = 500
    harness.store.script = script
    harness.store.probe_refused = True
    monkeypatch.setattr(harness.store, "kill", lambda _prefix: None)

    harness.drain_first_segment()

    inspections = harness.store.events.count("inspect")
    assert inspections >= max(1, sum(harness.slept) // 120)


def test_unreadable_block_becomes_a_dead_letter_and_the_next_segment_is_inserted(
    harness: WriterHarness,
) -> None:
    harness.file(TWO_DAYS)
    harness.file(segment_of([TODAY]), seq=2)
    harness.store.script = ["first_day"]
    harness.core.cannot_read_days = "block is malformed"

    harness.drain_first_segment()

    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("unreadable", 200)]
    assert harness.dead_letters[0].text == "block is malformed; 300 of 500 rows are stored"
    assert (harness.directory / "dead" / f"{ID}.unreadable.native.lz4").read_bytes() == TWO_DAYS
    assert [file.path.exists() for file in harness.files] == [False, False]


def test_block_that_only_the_core_cannot_read_is_inserted_if_no_row_is_stored(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:210"]
    harness.core.cannot_read_days = "block is malformed"

    harness.drain_first_segment()

    assert harness.store.tokens == [f"{ID}#0"] * 2
    assert harness.dead_letters == []


def test_days_that_the_core_cannot_extract_become_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["first_day"]
    harness.core.cannot_rewrite = "block is malformed"

    harness.drain_first_segment()

    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("unreadable", 200)]


def test_dead_letter_of_a_refused_day_contains_only_that_day(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.file(TWO_DAYS)
    harness.file(segment_of([TODAY - 1]), seq=2)
    harness.store.script = ["first_day"]
    insert = harness.store.insert

    def insert_then_poison_a_day(path: Path, *, token: str, query_id: str) -> int:
        try:
            return insert(path, token=token, query_id=query_id)
        finally:
            harness.store.poisonous_days = {day_of(0)}

    monkeypatch.setattr(harness.store, "insert", insert_then_poison_a_day)
    harness.drain_first_segment()

    assert [(letter.cause, letter.rows, letter.text) for letter in harness.dead_letters] == [
        ("poison", 200, "constraint is violated")
    ]
    kept = (harness.directory / "dead" / f"{ID}.poison.native.lz4").read_bytes()
    assert kept == segment_of([TODAY] * 200)
    assert harness.store.events.count("refill 1") == 1
    assert harness.progress.rows == 301


def test_refused_day_in_a_group_of_days_loses_only_that_day(harness: WriterHarness) -> None:
    harness.file(segment_of([TODAY - 2] * 100 + [TODAY - 1] * 100 + [TODAY] * 100))
    harness.store.partitions_max = 2
    harness.store.poisonous_days = {day_of(1)}

    harness.drain_first_segment()

    assert harness.stored == {day_of(0): 100, day_of(2): 100}
    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("poison", 100)]


def test_only_the_vanishing_day_becomes_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["tokens_and_first_day"] + ["ok_without_rows"] * 20

    harness.drain_first_segment()

    assert sum(harness.stored.values()) == 300
    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("short", 200)]
    kept = (harness.directory / "dead" / f"{ID}.short.native.lz4").read_bytes()
    assert kept == segment_of([TODAY] * 200)
    assert "refill 1" in harness.store.events


def test_unknown_error_code_is_treated_as_refusal_after_several_failures(harness: WriterHarness) -> None:
    harness.file(segment_of([TODAY]))
    harness.store.script = ["error:271 data compressed with different methods"] * 9

    harness.drain_first_segment()

    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("poison", 1)]
    assert len(harness.store.tokens) == 5
    assert harness.between_turns_s >= 2.0 + 4.0 + 8.0 + 16.0
    assert harness.slept == []


def test_piece_with_the_same_unknown_error_code_is_refused_at_once(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:271 data compressed with different methods"] * 9

    harness.drain_first_segment()

    assert harness.dead_letters == []
    assert sum(harness.stored.values()) == 500
    assert harness.between_turns_s <= 2.0 + 4.0 + 8.0 + 16.0 + 4.0


def test_unknown_error_code_is_not_treated_as_refusal_while_the_probe_row_is_refused(
    harness: WriterHarness,
) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:271"] * 9
    harness.store.probe_refused = True

    harness.drain_first_segment()

    assert harness.dead_letters == []
    assert len(harness.store.parts) == 2


def test_backlog_behind_a_failing_segment_is_reported(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:210", "error:210", "ok"]
    backlogs: list[int] = []

    def add_segment(delay_s: float) -> None:
        if delay_s:
            backlogs.append(harness.progress.backlog_segments)
            harness.file(segment_of([TODAY]), seq=1 + len(backlogs))

    monkeypatch.setattr(harness, "sleep", add_segment)
    harness.writer.drain()

    assert backlogs == [1, 2]


def test_segment_that_the_store_refuses_does_not_delay_other_segments(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.file(segment_of([TODAY]), seq=2)
    harness.store.script = ["error:117", "ok", "error:117", "ok"]
    writer = harness.writer

    drained = [writer.drain(), writer.drain()]

    assert drained == [2, 0]
    assert [token[-3] for token in harness.store.tokens] == ["1", "2"]
    assert harness.progress.backlog_segments == 1
    harness.sleep(60.0)
    assert writer.drain() == 1
    harness.sleep(60.0)
    assert writer.drain() == 1
    assert sum(count for _, _, count in harness.store.parts) == 501
    assert harness.progress.backlog_segments == 0


@pytest.mark.parametrize(
    ("probe_refused", "text"),
    [
        pytest.param(
            False,
            f"segment {ID} makes no progress: "
            "its INSERT fails, but the store accepts other rows: REFUSED (117)",
            id="the store accepts other rows",
        ),
        pytest.param(
            True, "the store refuses every segment: REFUSED (117)", id="the store refuses every row"
        ),
    ],
)
def test_alarm_distinguishes_one_refused_segment_from_all(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch, text: str, *, probe_refused: bool
) -> None:
    alarms: list[str] = []
    monkeypatch.setattr(Progress, "alarm", lambda _self, _reason, text: alarms.append(text))
    harness.file(TWO_DAYS)
    harness.store.script = ["error:117"]
    harness.store.probe_refused = probe_refused

    harness.drain_first_segment()

    assert alarms == [text]


def test_reading_spans_the_first_to_the_last_receipt_time(harness: WriterHarness) -> None:
    class CoreWithReceiptTimes(FakeCore):
        def scan(self, _segment: bytes, /) -> FakeScan:
            return FakeScan([FakeRecord(1, (5, 6)), FakeRecord(1, (3, 4)), FakeRecord(0, (0, 9))])

    reading = read_segment(harness.file(TWO_DAYS), CoreWithReceiptTimes())

    assert reading.received_ms == (3, 6)


def test_single_small_block_is_not_rewritten(harness: WriterHarness) -> None:
    file = harness.file(segment_of([TODAY]))

    harness.drain_first_segment()

    assert file.replaced == 0


def test_freshness_is_measured_from_the_first_delivery() -> None:
    progress = Progress()

    progress.record_stored(2, (10_000, 14_000), 15.0)

    assert list(progress.freshness_s) == [5.0]


def test_duplicated_day_does_not_hide_a_missing_day(harness: WriterHarness) -> None:
    file = harness.file(segment_of([TODAY - 1] * 200 + [TODAY] * 200))
    day = next(iter(harness.store.rows_of(file.path)))
    harness.store.parts = [(file.id, day, 200), (file.id, day, 200)]

    harness.drain_first_segment(in_doubt=True)

    assert [letter.cause for letter in harness.dead_letters] == ["odd"]


def test_records_of_another_segment_become_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.core.scanned_id = SegmentId(7, 9)

    harness.drain_first_segment()

    assert harness.store.tokens == []
    assert [(letter.cause, letter.text) for letter in harness.dead_letters] == [
        ("damaged", "holds records of segment 0000000000000007-0000000009")
    ]
    assert (harness.directory / "dead" / f"{ID}.damaged.native.lz4").read_bytes() == TWO_DAYS
    assert not harness.files[0].path.exists()


def test_dead_letter_directory_is_synced_before_the_segment_is_deleted(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(Disk, "sync_directory", lambda _disk, path: synced.append(str(path)))
    harness.file(segment_of([TODAY]))
    harness.store.script = ["error:70"]

    harness.drain_first_segment()

    assert str(harness.directory) in synced
    assert str(harness.directory / "dead") in synced


def test_footer_gives_the_number_of_damaged_rows(harness: WriterHarness) -> None:
    footer = transcode.footer(record("a", rows=700))

    class SealedCore(FakeCore):
        def scan(self, segment: bytes, /) -> FakeScan:
            return super().scan(segment.removesuffix(footer))

    file = harness.file(TWO_DAYS[:-1] + b', "rot"]' + footer)

    reading = read_segment(file, SealedCore())

    assert reading.rows == 500
    assert reading.rows_lost == 200


def test_extracted_days_left_by_a_crash_are_deleted(harness: WriterHarness) -> None:
    leftover = harness.directory / "repair" / f"{ID}@20260101.native.lz4"
    leftover.parent.mkdir()
    leftover.write_bytes(b"a day")

    harness.writer.drain()

    assert not leftover.exists()


def test_extracted_day_is_deleted_after_a_lost_response(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:252 Too many partitions for single INSERT block", "ok", "answer_lost"]

    harness.drain_first_segment()

    assert sorted(harness.stored.values()) == [200, 300]
    assert list((harness.directory / "repair").iterdir()) == []
