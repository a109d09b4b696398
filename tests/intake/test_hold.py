"""Tests of a full journal: requests are held within the memory budget and the deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.errors import JournalFull
from receiver.journal.appender import Appender
from receiver.settings import KIB, Drain, Journal, Limits
from tests.support.cases import each_case
from tests.support.committer import RunningCommitter, commit, committing, verdict_on
from tests.support.intake import SPAN_BODY, AppenderDouble, CoreDouble, on_uvloop, request, running, until

FULL = "journal holds 9 bytes; the ceiling is 9 bytes"
NO_DEADLINE = Limits(answer_deadline_s=600)
"""Limits without a deadline, so that held requests are answered only because space became free."""


@pytest.mark.parametrize(
    "appender",
    [
        pytest.param(AppenderDouble(full=FULL), id="full"),
        pytest.param(AppenderDouble(room_bytes=1), id="no space for this record"),
    ],
)
@on_uvloop
async def test_held_request_gets_200_once_space_is_free(appender: AppenderDouble) -> None:
    async with running(appender=appender, limits=NO_DEADLINE) as intake:
        posting = [asyncio.create_task(intake.post()) for _ in range(5)]
        await until(lambda: intake.held_count() == 5)
        held_bytes = intake.admission.bytes_in_flight
        appender.full, appender.room_bytes = None, 1_000
        statuses = [(await posted).status for posted in posting]

        assert statuses == [200] * 5
        assert held_bytes == 5 * len(SPAN_BODY)
        assert b"".join(record for _, record, _ in appender.appended).count(SPAN_BODY) == 5
        assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_held_request_on_the_fast_path_gets_200_once_space_is_free() -> None:
    appender = AppenderDouble()
    async with running(Drain(name="d", tokens=("t",)), appender=appender, limits=NO_DEADLINE) as intake:
        connection = await intake.connect()
        await connection.exchange(request(authorization="Bearer t"))
        appender.full = FULL
        connection.writer.write(request(authorization="Bearer t"))
        await until(lambda: intake.held_count() == 1)
        appender.full = None
        answer = await connection.answer()

    assert answer.status == 200


@on_uvloop
async def test_many_senders_at_a_full_journal_stay_within_the_memory_budget() -> None:
    appender = AppenderDouble(full=FULL)
    limits = Limits(answer_deadline_s=600, inflight_bytes_max=10 * len(SPAN_BODY))
    async with running(appender=appender, limits=limits) as intake:
        posting = [asyncio.create_task(intake.post()) for _ in range(30)]
        answered, held = await asyncio.wait(posting, return_when=asyncio.FIRST_COMPLETED)
        while len(held) > 10:
            answered, held = await asyncio.wait(posting, timeout=0.01)
        held_bytes = intake.admission.bytes_in_flight
        appender.full = None
        later = [(await posted).status for posted in held]
        refused = {posted.result().status for posted in answered}
        next_answer = await intake.post()

    assert held_bytes == 10 * len(SPAN_BODY)
    assert later == [200] * 10
    assert refused == {503}
    assert next_answer.status == 200
    assert intake.counted("refusals", "memory_budget_spent") == 20


@on_uvloop
async def test_record_that_does_not_fit_is_refused_at_the_deadline_without_delaying_smaller_records(
    tmp_path: Path,
) -> None:
    core, appender = CoreDouble(), AppenderDouble(room_bytes=20)
    async with committing(core, appender, tmp_path, answer_deadline_s=1) as committer:
        large = commit(committer, "large" * 20)
        await until(lambda: committer._hold._held)  # noqa: SLF001 - the append was tried
        await commit(committer, "small")
        still_held = not large.done()
        reason = await verdict_on(large)

    assert still_held
    assert isinstance(reason, JournalFull)
    assert len(core.groups) == 2


@on_uvloop
async def test_deliveries_whose_common_record_does_not_fit_are_committed_in_smaller_groups(
    tmp_path: Path,
) -> None:
    core, appender = CoreDouble(), AppenderDouble(full=FULL, room_bytes=30)
    async with committing(core, appender, tmp_path, answer_deadline_s=2) as committer:
        held = [commit(committer, name * 10) for name in "abcde"]
        await until(lambda: len(committer._queue) == 5)  # noqa: SLF001 - the held deliveries
        appender.full = None
        receipts = await asyncio.gather(*held)

    assert len(receipts) == 5
    assert len(core.groups[0]) == 5
    assert all(len(record) <= 30 for _, record, _ in appender.appended)


@each_case(
    "end",
    [RunningCommitter.stop_waiting, RunningCommitter.begin_close],
    ids=["the store has stopped", "the committer stops"],
)
@on_uvloop
async def test_held_deliveries_are_refused_when_no_more_space_becomes_free(
    tmp_path: Path, end: Callable[[RunningCommitter], object]
) -> None:
    appender = AppenderDouble(room_bytes=20)
    async with committing(CoreDouble(), appender, tmp_path, answer_deadline_s=600) as committer:
        held = [commit(committer, "large" * 20)]
        await until(lambda: committer._hold._held)  # noqa: SLF001 - the append was tried
        appender.full = FULL
        held.append(commit(committer, "small"))
        await asyncio.sleep(0)
        end(committer)
        reasons = [await verdict_on(posted) for posted in held]

    assert [type(reason) for reason in reasons] == [JournalFull, JournalFull]
    assert appender.appended == []


@on_uvloop
async def test_held_request_is_committed_when_the_journal_on_disk_shrinks(tmp_path: Path) -> None:
    appender = Appender(tmp_path / "journal", Journal(bytes_max=256 * KIB, disk_free_min=0))
    (epoch_directory,) = (tmp_path / "journal").iterdir()
    filler = epoch_directory / "filler"
    filler.write_bytes(bytes(300 * KIB))
    async with committing(CoreDouble(), appender, tmp_path / "aside", answer_deadline_s=600) as committer:
        await until(appender.full_reason)
        held = [commit(committer, name) for name in "abc"]
        await until(lambda: len(committer._queue) == 3)  # noqa: SLF001 - the held deliveries
        filler.unlink()
        receipts = await asyncio.gather(*held)

    assert len(receipts) == 3
