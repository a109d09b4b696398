"""The writer beside its own disk's errors, hung engines and segments that only the store dislikes."""

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
class FileThatStays(FakeFile):
    """A segment that the disk does not let go of at first."""

    refusals: int = 1

    def unlink(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().unlink()


def test_a_segment_that_cannot_be_read_does_not_keep_the_others_waiting(bench: Bench) -> None:
    gone = bench.file(TWO_DAYS)
    bench.file(segment_of([TODAY]), seq=2)
    gone.path.unlink()
    gone.path.mkdir()

    bench.writer.drain()

    assert [token.partition("#")[0][-1] for token in bench.store.tokens] == ["2"]
    assert bench.progress.alarms == 1
    assert "makes no progress" in bench.progress.stall_reason
    assert bench.slept == []


def test_a_segment_the_disk_does_not_let_go_of_is_counted_before_it_is_sent_again(bench: Bench) -> None:
    writer = bench.writer
    writer.drain()
    made = bench.file(TWO_DAYS)
    bench.files[0] = FileThatStays(made.id, made.path)
    bench.store.script = ["partly"]

    writer.drain()
    bench.between_turns_s += 2.0
    writer.drain()

    assert [token.partition(ID)[2][0] for token in bench.store.tokens] == ["#", "@"]
    assert sorted(count for _, _, count in bench.store.parts) == [200, 300]
    assert bench.letters == []
    assert not made.path.exists()


def test_spans_of_a_segment_the_disk_does_not_let_go_of_are_counted_once(bench: Bench) -> None:
    made = bench.file(TWO_DAYS)
    bench.files[0] = FileThatStays(made.id, made.path, refusals=3)
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
def test_the_store_is_inspected_while_the_writer_waits(
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


def test_a_block_the_core_cannot_read_is_set_aside_and_the_next_segment_goes_in(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.file(segment_of([TODAY]), seq=2)
    bench.store.script = ["partly"]
    bench.core.cannot_tell_days = "block is strange"

    bench.writer.drain()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("unreadable", 200)]
    assert bench.letters[0].text == "block is strange; 300 of 500 rows are stored"
    assert (bench.directory / "dead" / f"{ID}.unreadable.native.lz4").read_bytes() == TWO_DAYS
    assert [file.path.exists() for file in bench.files] == [False, False]


def test_while_none_of_it_is_stored_a_block_only_the_core_cannot_read_goes_in_whole(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:210"]
    bench.core.cannot_tell_days = "block is strange"

    bench.carry()

    assert bench.store.tokens == [f"{ID}#0"] * 2
    assert bench.letters == []


def test_days_the_core_cannot_cut_out_are_set_aside(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly"]
    bench.core.cannot_rewrite = "block is strange"

    bench.carry()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("unreadable", 200)]


def test_poison_in_one_day_costs_that_day_and_what_is_set_aside_is_what_is_missing(bench: Bench) -> None:
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


def test_poison_in_one_of_many_days_that_go_in_alone_costs_that_day(bench: Bench) -> None:
    bench.file(segment_of([TODAY - 2] * 100 + [TODAY - 1] * 100 + [TODAY] * 100))
    bench.store.script = ["error:252 too many partitions", *["error:70 cannot convert"] * 2]

    bench.carry()

    assert sum(bench.stored.values()) == 200
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("refused", 100)]


def test_a_day_that_vanishes_again_and_again_is_the_only_one_set_aside(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["torn"] + ["eaten"] * 20

    bench.carry()

    assert sum(bench.stored.values()) == 300
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("short", 200)]
    kept = (bench.directory / "dead" / f"{ID}.short.native.lz4").read_bytes()
    assert kept == segment_of([TODAY] * 200)
    assert "refill 1" in bench.store.events


def test_a_code_nobody_knows_is_poison_in_the_end(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:271 data compressed with different methods"] * 9

    bench.carry()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("refused", 500)]
    assert bench.between_turns_s >= 2.0 + 4.0 + 8.0 + 16.0
    assert bench.slept == []


def test_a_code_nobody_knows_is_no_poison_while_the_store_refuses_everything(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:271"] * 9
    bench.store.probe_refused = True

    bench.carry()

    assert bench.letters == []
    assert len(bench.store.parts) == 2


def test_what_piles_up_behind_a_segment_in_trouble_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:210", "error:210", "ok"]
    told: list[int] = []

    def arriving(delay_s: float) -> None:
        if delay_s:
            told.append(bench.progress.backlog_segments)
            bench.file(segment_of([TODAY]), seq=1 + len(told))

    monkeypatch.setattr(bench, "sleep", arriving)
    bench.writer.drain()

    assert told == [1, 2]


def test_a_segment_that_alone_is_refused_lets_the_others_go_first(bench: Bench) -> None:
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
            id="this one",
        ),
        pytest.param(True, "the store refuses every segment: REFUSED (117)", id="every one"),
    ],
)
def test_an_alarm_says_whether_one_segment_is_refused_or_every_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, text: str, *, probe_refused: bool
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Progress, "alarm", lambda _self, _reason, text: told.append(text))
    bench.file(TWO_DAYS)
    bench.store.script = ["error:117"]
    bench.store.probe_refused = probe_refused

    bench.carry()

    assert told == [text]


def test_rows_are_counted_from_the_first_receipt_to_the_last(bench: Bench) -> None:
    class LateCore(FakeCore):
        def scan(self, _segment: bytes, /) -> FakeScan:
            return FakeScan([FakeRecord(1, (5, 6)), FakeRecord(1, (3, 4)), FakeRecord(0, (0, 9))])

    reading = read_segment(bench.file(TWO_DAYS), LateCore())

    assert reading.received_ms == (3, 6)


def test_one_small_block_has_nothing_to_be_merged_with(bench: Bench) -> None:
    file = bench.file(segment_of([TODAY]))

    bench.carry()

    assert file.replaced == 0


def test_freshness_is_of_the_span_that_waited_longest() -> None:
    progress = Progress()

    progress.record_stored(2, (10_000, 14_000), 15.0)

    assert list(progress.freshness_s) == [5.0]


def test_a_day_twice_and_another_missing_is_not_complete(bench: Bench) -> None:
    file = bench.file(segment_of([TODAY - 1] * 200 + [TODAY] * 200))
    day = next(iter(bench.store.rows_of(file.path)))
    bench.store.parts = [(file.id, day, 200), (file.id, day, 200)]

    bench.carry(in_doubt=True)

    assert [letter.cause for letter in bench.letters] == ["odd"]


def test_the_records_of_another_segment_are_kept_aside_and_not_inserted(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.core.holds = SegmentId(7, 9)

    bench.carry()

    assert bench.store.tokens == []
    assert [(letter.cause, letter.text) for letter in bench.letters] == [
        ("damaged", "holds records of segment 0000000000000007-0000000009")
    ]
    assert (bench.directory / "dead" / f"{ID}.damaged.native.lz4").read_bytes() == TWO_DAYS
    assert not bench.files[0].path.exists()


def test_the_directory_of_the_dead_letters_is_on_the_disk_before_the_segment_goes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    bench.file(TWO_DAYS)
    bench.store.script = ["error:70"]

    bench.carry()

    assert str(bench.directory) in synced
    assert str(bench.directory / "dead") in synced


def test_what_damage_costs_is_known_by_the_footer(bench: Bench) -> None:
    footer = struct.pack("<II4sHHIQQQQ", 0x184D2A55, 44, b"TDRF", 1, 0, 3, 700, 0, 0, 0)

    class SealedCore(FakeCore):
        def scan(self, segment: bytes, /) -> FakeScan:
            return super().scan(segment.removesuffix(footer))

    file = bench.file(TWO_DAYS[:-1] + b', "rot"]' + footer)

    reading = read_segment(file, SealedCore())

    assert reading.rows == 500
    assert reading.rows_lost == 200


def test_single_days_that_a_crash_left_behind_go(bench: Bench) -> None:
    left = bench.directory / "repair" / f"{ID}@20260101.native.lz4"
    left.parent.mkdir()
    left.write_bytes(b"a day")

    bench.writer.drain()

    assert not left.exists()


def test_a_single_day_whose_answer_was_lost_leaves_no_file(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:252 Too many partitions for single INSERT block", "ok", "lost"]

    bench.carry()

    assert sorted(bench.stored.values()) == [200, 300]
    assert list((bench.directory / "repair").iterdir()) == []


class FileThatIsWeighed(FakeFile):
    """It counts how often somebody asks for its size."""

    weighed = 0

    @property
    def bytes(self) -> int:
        type(self).weighed += 1
        return super().bytes


def test_a_long_backlog_is_weighed_once_and_not_once_for_each_of_its_segments(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    waits = Progress.record_backlog_sizes

    def noted(progress: Progress, oldest: SegmentFile | None, segments: int, size: int, now_s: float) -> None:
        told.append((segments, size))
        waits(progress, oldest, segments, size, now_s)

    monkeypatch.setattr(Progress, "record_backlog_sizes", noted)
    for seq in range(1, 31):
        made = bench.file(segment_of([TODAY]), seq=seq)
        bench.files[seq - 1] = FileThatIsWeighed(made.id, made.path)
    size = FakeFile.bytes.fget(bench.files[0])  # type: ignore[attr-defined]

    bench.writer.drain()

    assert told == [(left, left * size) for left in range(30, -1, -1)]
    assert FileThatIsWeighed.weighed <= 2 * 30
