"""Tests of the committer with the journal: a record is durable before its deliveries are acknowledged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from receiver.errors import DiskTrouble, StaleSegment
from receiver.intake import committer as committer_module
from receiver.model import Delivery, SegmentId
from receiver.settings import MIB
from tests.support.committer import bodies, commit, committing, verdict_on
from tests.support.intake import AppenderDouble, CommitDouble, CoreDouble, OutcomeDouble, on_uvloop, until


@on_uvloop
async def test_delivery_is_acknowledged_only_after_append_returns(tmp_path: Path) -> None:
    core, appender = CoreDouble(), AppenderDouble()
    appender.may_continue.clear()
    async with committing(core, appender, tmp_path) as committer:
        task = commit(committer, "a")
        await asyncio.to_thread(appender.running.wait)
        await asyncio.sleep(0.05)
        early = task.done()
        appender.may_continue.set()
        await task

    assert not early


@on_uvloop
async def test_group_without_rows_is_not_appended(tmp_path: Path) -> None:
    core = CoreDouble(special={b"\nbad": OutcomeDouble("malformed", message="cut")})
    appender = AppenderDouble()
    async with committing(core, appender, tmp_path) as committer:
        await verdict_on(commit(committer, "bad"))

    assert appender.appended == []


@pytest.mark.parametrize(
    "early_bytes_min",
    [pytest.param(0, id="decoded early"), pytest.param(MIB, id="decoded and appended together")],
)
@on_uvloop
async def test_group_of_a_closed_segment_is_committed_to_the_next_segment_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early_bytes_min: int
) -> None:
    monkeypatch.setattr(committer_module, "EARLY_BYTES_MIN", early_bytes_min)
    core = CoreDouble()
    appender = AppenderDouble(trouble=[StaleSegment("0")])
    async with committing(core, appender, tmp_path) as committer:
        await commit(committer, "a")

    assert bodies(core) == [["a"], ["a"]]
    assert appender.appended == [(SegmentId(7, 1), b"1:\na", 1)]
    assert committer.counters()["commit_deliveries"] == 1


@on_uvloop
async def test_repeatedly_closed_segments_are_reported_as_a_disk_error(tmp_path: Path) -> None:
    appender = AppenderDouble(trouble=[StaleSegment(str(seq)) for seq in range(3)])
    async with committing(CoreDouble(), appender, tmp_path) as committer:
        reason = await verdict_on(commit(committer, "a"))
        await commit(committer, "b")

    assert isinstance(reason, DiskTrouble)


@on_uvloop
async def test_segment_is_sealed_by_age_only_while_no_group_is_in_flight(tmp_path: Path) -> None:
    core, appender = CoreDouble.paused(), AppenderDouble()
    async with committing(core, appender, tmp_path) as committer:
        task = commit(committer, "a")
        await asyncio.to_thread(core.running.wait)
        before = appender.sealed_count
        await asyncio.sleep(0.2)
        meanwhile = appender.sealed_count
        core.may_continue.set()
        await task
        await until(lambda: appender.sealed_count > meanwhile)

    assert before == meanwhile


@pytest.mark.parametrize(
    ("early_bytes_min", "thread_count"), [pytest.param(0, 2, id="large"), pytest.param(MIB, 1, id="small")]
)
@on_uvloop
async def test_small_group_is_appended_by_the_thread_that_decoded_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early_bytes_min: int, thread_count: int
) -> None:
    monkeypatch.setattr(committer_module, "EARLY_BYTES_MIN", early_bytes_min)
    threads: set[int] = set()

    class ThreadRecordingCore(CoreDouble):
        def transcode(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            threads.add(threading.get_ident())
            return super().transcode(deliveries, segment)

    class ThreadRecordingAppender(AppenderDouble):
        def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
            threads.add(threading.get_ident())
            super().append(segment, record, rows)

    async with committing(ThreadRecordingCore(), ThreadRecordingAppender(), tmp_path) as committer:
        await commit(committer, "a")

    assert len(threads - {threading.get_ident()}) == thread_count


@on_uvloop
async def test_acknowledgement_does_not_wait_for_sealing(tmp_path: Path) -> None:
    appender = AppenderDouble(has_retired=True)
    appender.may_seal.clear()
    async with committing(CoreDouble(), appender, tmp_path) as committer:
        await commit(committer, "a")
        await commit(committer, "b")
        appender.may_seal.set()

    assert [record for _, record, _ in appender.appended] == [b"0:\na", b"0:\nb"]
