"""The writer with local disk errors, hanging engines and segments that only the store refuses."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from receiver import transcode
from receiver.durable.files import Disk
from receiver.model import SegmentId
from receiver.writer.progress import Progress
from receiver.writer.reading import read_segment
from tests.support.fake_clickhouse import TODAY, FakeCore, FakeFile, FakeRecord, FakeScan, segment_of
from tests.support.record_layout import record
from tests.support.segments import day_of
from tests.support.writer_harness import ID, TWO_DAYS, WriterHarness


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


def test_segment_that_cannot_be_deleted_is_counted_again_but_not_inserted_or_reported_again(
    harness: WriterHarness,
) -> None:
    writer = harness.writer
    writer.drain()
    file = harness.file(TWO_DAYS)
    harness.files[0] = UndeletableFile(file.id, file.path, failures_left=3)

    for _ in range(4):
        writer.drain()
        harness.between_turns_s += 60.0

    assert harness.tokens == ["#0"]
    assert harness.store.events.count("count") == 4
    assert harness.progress.rows == 500
    assert harness.dead == []
    assert not file.path.exists()


@dataclass(frozen=True, kw_only=True)
class Malformed:
    """A segment that the core cannot read or rewrite, and the result."""

    content: bytes = TWO_DAYS
    script: Sequence[str] = ()
    cannot_read_days: str = ""
    cannot_rewrite: str = ""
    stored: Sequence[int] = ()
    """Stored rows of each day, in ascending order."""
    dead: Sequence[tuple[str, int | None]] = ()
    is_rewritten: bool = False


DAMAGED = TWO_DAYS[:-1] + b', "rot"]'
REWRITES = {
    "small blocks are merged only before the first INSERT": Malformed(
        content=segment_of(*[[TODAY] * 10] * 30), script=["error:210"], stored=[300], is_rewritten=True
    ),
    "large blocks": Malformed(content=segment_of([TODAY] * 200, [TODAY] * 200), stored=[400]),
    "single small block": Malformed(content=segment_of([TODAY]), stored=[1]),
    "small blocks that cannot be merged are inserted unchanged": Malformed(
        content=segment_of([TODAY] * 10, [TODAY] * 10), cannot_rewrite="block is malformed", stored=[20]
    ),
    "damaged record": Malformed(
        content=DAMAGED, stored=[200, 300], dead=[("damaged", None)], is_rewritten=True
    ),
    "damage that cannot be removed": Malformed(
        content=DAMAGED, cannot_rewrite="no whole record", dead=[("damaged", None)]
    ),
    "unreadable block, no row is stored: inserted again": Malformed(
        script=["error:210"], cannot_read_days="block is malformed", stored=[200, 300]
    ),
    "unreadable block, a day is missing": Malformed(
        script=["first_day"], cannot_read_days="block is malformed", stored=[300], dead=[("unreadable", 200)]
    ),
    "missing day that cannot be extracted": Malformed(
        script=["first_day"], cannot_rewrite="block is malformed", stored=[300], dead=[("unreadable", 200)]
    ),
}


@pytest.mark.parametrize("case", REWRITES.values(), ids=REWRITES)
def test_rows_that_the_core_cannot_separate_are_stored_together_or_dead(
    harness: WriterHarness, case: Malformed
) -> None:
    file = harness.file(case.content)
    harness.store.script = list(case.script)
    harness.core.cannot_read_days, harness.core.cannot_rewrite = case.cannot_read_days, case.cannot_rewrite

    harness.drain_first_segment()

    assert (sorted(harness.stored.values()), harness.dead) == (list(case.stored), list(case.dead))
    assert file.replaced == case.is_rewritten
    assert not file.path.exists()
    # The dead letter holds the bytes as they were read.
    assert all(harness.dead_content(cause) == case.content for cause, _ in harness.dead)


def test_unreadable_block_does_not_delay_the_next_segment(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.file(segment_of([TODAY]), seq=2)
    harness.store.script = ["first_day"]
    harness.core.cannot_read_days = "block is malformed"

    harness.drain_first_segment()

    assert [reason.text for reason in harness.reasons] == ["block is malformed; 300 of 500 rows are stored"]
    assert [file.path.exists() for file in harness.files] == [False, False]


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

    assert harness.dead == [("poison", 200)]
    assert harness.dead_content("poison") == segment_of([TODAY] * 200)
    assert harness.store.events.count("refill 1") == 1
    assert harness.progress.rows == 301


def test_refused_day_in_a_group_of_days_loses_only_that_day(harness: WriterHarness) -> None:
    harness.file(segment_of([TODAY - 2] * 100 + [TODAY - 1] * 100 + [TODAY] * 100))
    harness.store.partitions_max = 2
    harness.store.poisonous_days = {day_of(1)}

    harness.drain_first_segment()

    assert harness.stored == {day_of(0): 100, day_of(2): 100}
    assert harness.dead == [("poison", 100)]


def test_only_the_vanishing_day_becomes_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["tokens_and_first_day", *["ok_without_rows"] * 20]

    harness.drain_first_segment()

    assert sum(harness.stored.values()) == 300
    assert harness.dead == [("short", 200)]
    assert harness.dead_content("short") == segment_of([TODAY] * 200)
    assert "refill 1" in harness.store.events


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


def test_freshness_is_measured_from_the_first_delivery() -> None:
    progress = Progress()

    progress.record_stored(2, (10_000, 14_000), 15.0)

    assert list(progress.freshness_s) == [5.0]


def test_records_of_another_segment_become_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.core.scanned_id = SegmentId(7, 9)

    harness.drain_first_segment()

    assert harness.store.tokens == []
    assert [(letter.cause, letter.text) for letter in harness.reasons] == [
        ("damaged", "holds records of segment 0000000000000007-0000000009")
    ]
    assert harness.dead_content("damaged") == TWO_DAYS
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


def test_response_lost_for_a_day_leaves_no_file_of_it(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:252 Too many partitions for single INSERT block", "ok", "answer_lost"]

    harness.drain_first_segment()

    assert sorted(harness.stored.values()) == [200, 300]
    assert list((harness.directory / "repair").iterdir()) == []


def test_extracted_days_left_by_a_crash_are_deleted(harness: WriterHarness) -> None:
    leftover = harness.directory / "repair" / f"{ID}@20260101.native.lz4"
    leftover.parent.mkdir()
    leftover.write_bytes(b"a day")

    harness.writer.drain()

    assert not leftover.exists()
