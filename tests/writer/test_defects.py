"""The writer with local disk errors, hanging engines and segments that only the store refuses."""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from receiver.model import SegmentId
from receiver.writer.progress import Progress
from receiver.writer.segment_state import SegmentFile, read_segment
from tests.support.fake_clickhouse import (
    TODAY,
    FakeCore,
    FakeFile,
    FakeRecord,
    FakeScan,
    MemoryStore,
    segment_of,
)
from tests.writer.test_writer import ID, TWO_DAYS, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, MemoryStore())


@dataclass
class UndeletableFile(FakeFile):
    """A segment that the disk cannot delete at first."""

    refusals: int = 1

    def unlink(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().unlink()


def test_unreadable_segment_does_not_delay_others(bench: Bench) -> None:
    gone = bench.file(TWO_DAYS)
    bench.file(segment_of([TODAY]), seq=2)
    gone.path.unlink()
    gone.path.mkdir()

    bench.writer.drain()

    assert [token.partition("#")[0][-1] for token in bench.store.tokens] == ["2"]
    assert bench.progress.alarms == 1
    assert "makes no progress" in bench.progress.stall_reason
    assert bench.slept == []


def test_segment_that_cannot_be_deleted_is_counted_before_the_next_insert(bench: Bench) -> None:
    writer = bench.writer
    writer.drain()
    made = bench.file(TWO_DAYS)
    bench.files[0] = UndeletableFile(made.id, made.path)
    bench.store.script = ["partly"]

    writer.drain()
    bench.between_turns_s += 2.0
    writer.drain()

    assert [token.partition(ID)[2][0] for token in bench.store.tokens] == ["#", "@"]
    assert sorted(count for _, _, count in bench.store.parts) == [200, 300]
    assert bench.letters == []
    assert not made.path.exists()


def test_spans_of_a_segment_that_cannot_be_deleted_are_counted_once(bench: Bench) -> None:
    made = bench.file(TWO_DAYS)
    bench.files[0] = UndeletableFile(made.id, made.path, refusals=3)
    writer = bench.writer

    for _ in range(4):
        writer.drain()
        bench.between_turns_s += 60.0

    assert not made.path.exists()
    assert bench.progress.rows == 500


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(["error:243"] * 40, id="no space: the writer waits for the store"),
        pytest.param(["late:400"], id="the writer waits for a lost statement"),
    ],
)
def test_store_is_checked_for_damage_while_the_writer_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, script: list[str]
) -> None:
    bench.file(TWO_DAYS)
    bench.naps_max = 500
    bench.store.script = script
    bench.store.probe_refused = True
    monkeypatch.setattr(bench.store, "kill", lambda _prefix: None)

    bench.carry()

    inspections = bench.store.events.count("inspect")
    assert inspections >= sum(bench.slept) // 120 >= 2


def test_unreadable_block_becomes_a_dead_letter_and_the_next_segment_is_inserted(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.file(segment_of([TODAY]), seq=2)
    bench.store.script = ["partly"]
    bench.core.cannot_tell_days = "block is strange"

    bench.writer.drain()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("unreadable", 200)]
    assert bench.letters[0].text == "block is strange; 300 of 500 rows are stored"
    assert (bench.directory / "dead" / f"{ID}.unreadable.native.lz4").read_bytes() == TWO_DAYS
    assert [file.path.exists() for file in bench.files] == [False, False]


def test_block_that_only_the_core_cannot_read_is_inserted_if_no_row_is_stored(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:210"]
    bench.core.cannot_tell_days = "block is strange"

    bench.carry()

    assert bench.store.tokens == [f"{ID}#0"] * 2
    assert bench.letters == []


def test_days_that_the_core_cannot_extract_become_a_dead_letter(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly"]
    bench.core.cannot_rewrite = "block is strange"

    bench.carry()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("unreadable", 200)]


def test_dead_letter_of_a_refused_day_holds_only_that_day(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.file(segment_of([TODAY]), seq=2)
    bench.store.script = ["partly", "error:70 cannot convert"]

    bench.writer.drain()

    assert [(letter.cause, letter.rows, letter.text) for letter in bench.letters] == [
        ("refused", 200, "cannot convert; an empty clone of the table accepts all of its rows")
    ]
    kept = (bench.directory / "dead" / f"{ID}.refused.native.lz4").read_bytes()
    assert kept == segment_of([TODAY] * 200)
    assert bench.store.events[-6:].count("refill 1") == 1
    assert bench.progress.rows == 301
    assert [file.path.exists() for file in bench.files] == [False, False]


def test_refused_day_in_a_group_of_days_loses_only_that_day(bench: Bench) -> None:
    bench.file(segment_of([TODAY - 2] * 100 + [TODAY - 1] * 100 + [TODAY] * 100))
    bench.store.script = ["error:252 too many partitions", *["error:70 cannot convert"] * 2]

    bench.carry()

    assert sum(bench.stored.values()) == 200
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("refused", 100)]


def test_only_the_vanishing_day_becomes_a_dead_letter(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["torn"] + ["eaten"] * 20

    bench.carry()

    assert sum(bench.stored.values()) == 300
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("short", 200)]
    kept = (bench.directory / "dead" / f"{ID}.short.native.lz4").read_bytes()
    assert kept == segment_of([TODAY] * 200)
    assert "refill 1" in bench.store.events


def test_unknown_error_code_is_treated_as_refusal_after_several_failures(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:271 data compressed with different methods"] * 9

    bench.carry()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("refused", 500)]
    assert bench.between_turns_s >= 2.0 + 4.0 + 8.0 + 16.0
    assert bench.slept == []


def test_unknown_error_code_is_no_refusal_while_the_probe_row_is_refused(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:271"] * 9
    bench.store.probe_refused = True

    bench.carry()

    assert bench.letters == []
    assert len(bench.store.parts) == 2


def test_backlog_behind_a_failing_segment_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:210", "error:210", "ok"]
    backlogs: list[int] = []

    def arriving(delay_s: float) -> None:
        if delay_s:
            backlogs.append(bench.progress.backlog_segments)
            bench.file(segment_of([TODAY]), seq=1 + len(backlogs))

    monkeypatch.setattr(bench, "sleep", arriving)
    bench.writer.drain()

    assert backlogs == [1, 2]


def test_segment_that_alone_is_refused_does_not_delay_others(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.file(segment_of([TODAY]), seq=2)
    bench.store.script = ["error:117", "ok", "error:117", "ok"]
    writer = bench.writer

    drained = [writer.drain(), writer.drain()]

    assert drained == [2, 0]
    assert [token[-3] for token in bench.store.tokens] == ["1", "2"]
    assert bench.progress.backlog_segments == 1
    bench.sleep(60.0)
    assert writer.drain() == 1
    bench.sleep(60.0)
    assert writer.drain() == 1
    assert sum(count for _, _, count in bench.store.parts) == 501
    assert bench.progress.backlog_segments == 0


@pytest.mark.parametrize(
    ("probe_refused", "text"),
    [
        pytest.param(
            False,
            f"segment {ID} makes no progress: the store refuses it and accepts other rows: REFUSED (117)",
            id="one segment",
        ),
        pytest.param(True, "the store refuses every segment: REFUSED (117)", id="every segment"),
    ],
)
def test_alarm_distinguishes_one_refused_segment_from_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, text: str, *, probe_refused: bool
) -> None:
    alarms: list[str] = []
    monkeypatch.setattr(Progress, "alarm", lambda _self, _reason, text: alarms.append(text))
    bench.file(TWO_DAYS)
    bench.store.script = ["error:117"]
    bench.store.probe_refused = probe_refused

    bench.carry()

    assert alarms == [text]


def test_count_covers_the_first_to_the_last_receipt_time(bench: Bench) -> None:
    class LateCore(FakeCore):
        def scan(self, _segment: bytes, /) -> FakeScan:
            return FakeScan([FakeRecord(1, (5, 6)), FakeRecord(1, (3, 4)), FakeRecord(0, (0, 9))])

    reading = read_segment(bench.file(TWO_DAYS), LateCore())

    assert reading.received_ms == (3, 6)


def test_single_small_block_is_not_rewritten(bench: Bench) -> None:
    file = bench.file(segment_of([TODAY]))

    bench.carry()

    assert file.replaced == 0


def test_freshness_is_measured_from_the_first_delivery() -> None:
    progress = Progress()

    progress.record_stored(2, (10_000, 14_000), 15.0)

    assert list(progress.freshness_s) == [5.0]


def test_duplicated_day_does_not_hide_a_missing_day(bench: Bench) -> None:
    file = bench.file(segment_of([TODAY - 1] * 200 + [TODAY] * 200))
    day = next(iter(bench.store.rows_of(file.path)))
    bench.store.parts = [(file.id, day, 200), (file.id, day, 200)]

    bench.carry(in_doubt=True)

    assert [letter.cause for letter in bench.letters] == ["odd"]


def test_records_of_another_segment_become_a_dead_letter(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.core.holds = SegmentId(7, 9)

    bench.carry()

    assert bench.store.tokens == []
    assert [(letter.cause, letter.text) for letter in bench.letters] == [
        ("damaged", "holds records of segment 0000000000000007-0000000009")
    ]
    assert (bench.directory / "dead" / f"{ID}.damaged.native.lz4").read_bytes() == TWO_DAYS
    assert not bench.files[0].path.exists()


def test_dead_letter_directory_is_synced_before_the_segment_is_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    bench.file(TWO_DAYS)
    bench.store.script = ["error:70"]

    bench.carry()

    assert str(bench.directory) in synced
    assert str(bench.directory / "dead") in synced


def test_footer_gives_the_number_of_damaged_rows(bench: Bench) -> None:
    footer = struct.pack("<II4sHHIQQQQ", 0x184D2A55, 44, b"TDRF", 1, 0, 3, 700, 0, 0, 0)

    class SealedCore(FakeCore):
        def scan(self, segment: bytes, /) -> FakeScan:
            return super().scan(segment.removesuffix(footer))

    file = bench.file(TWO_DAYS[:-1] + b', "rot"]' + footer)

    reading = read_segment(file, SealedCore())

    assert reading.rows == 500
    assert reading.rows_lost == 200


def test_extracted_days_left_by_a_crash_are_deleted(bench: Bench) -> None:
    left = bench.directory / "repair" / f"{ID}@20260101.native.lz4"
    left.parent.mkdir()
    left.write_bytes(b"a day")

    bench.writer.drain()

    assert not left.exists()


def test_extracted_day_is_deleted_after_a_lost_response(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:252 Too many partitions for single INSERT block", "ok", "lost"]

    bench.carry()

    assert sorted(bench.stored.values()) == [200, 300]
    assert list((bench.directory / "repair").iterdir()) == []


class SizeCountingFile(FakeFile):
    """A segment that counts the reads of its size."""

    size_reads = 0

    @property
    def bytes(self) -> int:
        type(self).size_reads += 1
        return super().bytes


def test_backlog_size_is_computed_once_per_round(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[int, int]] = []
    record_backlog_sizes = Progress.record_backlog_sizes

    def noted(progress: Progress, oldest: SegmentFile | None, segments: int, size: int, now_s: float) -> None:
        reported.append((segments, size))
        record_backlog_sizes(progress, oldest, segments, size, now_s)

    monkeypatch.setattr(Progress, "record_backlog_sizes", noted)
    for seq in range(1, 31):
        made = bench.file(segment_of([TODAY]), seq=seq)
        bench.files[seq - 1] = SizeCountingFile(made.id, made.path)
    size = FakeFile.bytes.fget(bench.files[0])  # type: ignore[attr-defined]

    bench.writer.drain()

    assert reported == [(left, left * size) for left in range(30, -1, -1)]
    assert SizeCountingFile.size_reads <= 2 * 30
