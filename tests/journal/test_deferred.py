"""Tests of deferred segments: a segment that is stuck does not delay the seal of its successors."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from receiver.journal.appender import Appender
from receiver.journal.writer_notes import DeferredSegments
from receiver.model import SegmentId
from tests.support.clock import Clock
from tests.support.journal import ROOT, append, appender, files_of, maintain
from tests.support.memory_disk import MemoryDisk

STUCK = SegmentId(7, 1)


def seal_and_append(journal: Appender) -> SegmentId:
    """Seal a segment that stays in the journal, and begin the next. Returns the sealed segment."""
    sealed = append(journal, "a")
    journal.seal()
    append(journal, "b")
    return sealed


def test_segment_is_sealed_by_age_if_its_predecessor_is_deferred(files: MemoryDisk, clock: Clock) -> None:
    journal = appender(files, clock=clock)
    DeferredSegments(ROOT.parent, files).publish([seal_and_append(journal)])

    clock.now_s += 1
    maintain(journal)

    assert files_of(files, journal) == ["0000000000.native.lz4", "0000000001.native.lz4"]


def test_backlog_behind_a_deferred_segment_becomes_one_segment_while_the_writer_is_behind(
    files: MemoryDisk, clock: Clock
) -> None:
    journal = appender(files, clock=clock)
    DeferredSegments(ROOT.parent, files).publish([seal_and_append(journal)])

    for _ in range(600):
        clock.now_s += 1
        append(journal, "c")
        maintain(journal)

    assert files_of(files, journal) == ["0000000000.native.lz4", "0000000001.native.lz4", "0000000002.open"]


def refuse_renames_of(names: Collection[str], files: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = files.rename

    def refuse(source: Path, target: Path) -> None:
        if source.name in names:
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(files, "rename", refuse)


@pytest.mark.parametrize(
    ("refused", "sealed", "left_open"),
    [
        pytest.param({"0000000000.open"}, [1], 2, id="one segment: the next is sealed"),
        pytest.param({f"{seq:010d}.open" for seq in range(9)}, [], 3, id="each segment: the open one grows"),
    ],
)
def test_seal_that_fails_delays_later_seals_only_if_the_disk_is_at_fault(  # noqa: PLR0913, PLR0917 - three are a case
    files: MemoryDisk,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    refused: Collection[str],
    sealed: Sequence[int],
    left_open: int,
) -> None:
    refuse_renames_of(refused, files, monkeypatch)
    journal = appender(files, clock=clock)
    seal_and_append(journal)

    for _ in range(4):
        clock.now_s += 1
        maintain(journal)
        append(journal, "c")

    names = files_of(files, journal)
    assert [name for name in names if name.endswith(".lz4")] == [f"{seq:010d}.native.lz4" for seq in sealed]
    assert len(names) - len(sealed) == left_open


def test_published_segments_replace_the_earlier_ones(files: MemoryDisk) -> None:
    deferred = DeferredSegments(Path("/data"), files)
    deferred.add(STUCK)
    deferred.publish([SegmentId(7, 2)])

    assert (deferred.has(STUCK), deferred.has(SegmentId(7, 2))) == (False, True)


def test_next_process_drops_deferred_segments_of_the_one_before(files: MemoryDisk) -> None:
    DeferredSegments(Path("/data"), files).add(STUCK)

    DeferredSegments(Path("/data"), files).publish([])

    assert not DeferredSegments(Path("/data"), files).has(STUCK)
