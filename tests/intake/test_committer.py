"""Tests of the committer: groups, order, overlap, deadlines, and errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from receiver.errors import (
    BodyTooLarge,
    CoreCrashed,
    DeadlinePassed,
    DiskTrouble,
    MalformedBody,
    ShuttingDown,
    StoreTrouble,
)
from receiver.intake import committer as committer_module
from receiver.intake import pending
from receiver.journal.writer_notes import STORED
from receiver.model import Delivery, SegmentId
from receiver.settings import Drain
from tests.support.committer import bodies, commit, committing, verdict_on
from tests.support.intake import AppenderDouble, CommitDouble, CoreDouble, OutcomeDouble, on_uvloop, until


@on_uvloop
async def test_deliveries_that_arrive_during_decoding_share_the_next_group(tmp_path: Path) -> None:
    core, appender = CoreDouble.paused(), AppenderDouble()
    async with committing(core, appender, tmp_path) as committer:
        first = commit(committer, "a")
        await asyncio.to_thread(core.running.wait)
        others = [commit(committer, name) for name in "bcd"]
        await asyncio.sleep(0)
        core.may_continue.set()
        await asyncio.gather(first, *others)

    assert bodies(core) == [["a"], ["b", "c", "d"]]
    assert [record for _, record, _ in appender.appended] == [b"0:\na", b"0:\nb|\nc|\nd"]


@on_uvloop
async def test_next_group_is_decoded_while_the_current_group_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "EARLY_BYTES_MIN", 0)
    core, appender = CoreDouble(), AppenderDouble()
    appender.may_continue.clear()
    async with committing(core, appender, tmp_path) as committer:
        first = commit(committer, "a")
        await asyncio.to_thread(appender.running.wait)
        second = commit(committer, "b")
        await until(lambda: len(core.groups) == 2)
        third = commit(committer, "c")
        await asyncio.sleep(0.05)
        decoded_early, done_early = bodies(core), [first.done(), second.done()]
        appender.may_continue.set()
        await asyncio.gather(first, second, third)

    assert decoded_early == [["a"], ["b"]]
    assert done_early == [False, False]
    assert [record for _, record, _ in appender.appended] == [b"0:\na", b"0:\nb", b"0:\nc"]


@on_uvloop
async def test_small_deliveries_are_collected_while_a_group_is_synced(tmp_path: Path) -> None:
    core, appender = CoreDouble(), AppenderDouble()
    appender.may_continue.clear()
    async with committing(core, appender, tmp_path) as committer:
        tasks = [commit(committer, "a")]
        await asyncio.to_thread(appender.running.wait)
        tasks.append(commit(committer, "b"))
        await asyncio.sleep(0.05)
        tasks.append(commit(committer, "c"))
        await asyncio.sleep(0)
        appender.may_continue.set()
        await asyncio.gather(*tasks)

    assert bodies(core) == [["a"], ["b", "c"]]


@on_uvloop
async def test_group_is_limited_in_deliveries_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "GROUP_DELIVERIES_MAX", 3)
    monkeypatch.setattr(pending, "GROUP_BYTES_MAX", 20)
    core = CoreDouble.paused()
    async with committing(core, AppenderDouble(), tmp_path) as committer:
        tasks = [
            commit(committer, name) for name in ("first", "1", "2", "3", "4", "large" * 4, "5" * 15, "6" * 15)
        ]
        await asyncio.to_thread(core.running.wait)
        await asyncio.sleep(0)
        core.may_continue.set()
        await asyncio.gather(*tasks)

    groups = bodies(core)
    assert [name for group in groups for name in group][-3:] == ["large" * 4, "5" * 15, "6" * 15]
    assert groups[-3:] == [["large" * 4], ["5" * 15], ["6" * 15]]
    assert max(len(group) for group in groups) == 3


@on_uvloop
async def test_postponed_delivery_is_first_in_the_next_group_and_counted_once(tmp_path: Path) -> None:
    class CoreWithTwoPerGroup(CoreDouble):
        def transcode(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            self.special = {delivery.body: OutcomeDouble("postponed") for delivery in deliveries[2:]}
            return super().transcode(deliveries, segment)

    core, appender = CoreWithTwoPerGroup(), AppenderDouble()
    core.may_continue.clear()
    async with committing(core, appender, tmp_path) as committer:
        first = commit(committer, "a")
        await asyncio.to_thread(core.running.wait)
        others = [commit(committer, name) for name in "bcdef"]
        await asyncio.sleep(0)
        core.may_continue.set()
        await asyncio.gather(first, *others)

    assert bodies(core) == [["a"], list("bcdef"), list("def"), ["f"]]
    records = [record for _, record, _ in appender.appended]
    assert records == [b"0:\na", b"0:\nb|\nc", b"0:\nd|\ne", b"0:\nf"]
    assert committer.counters()["commit_deliveries"] == 6


@on_uvloop
async def test_refused_delivery_does_not_affect_the_others_of_its_group(tmp_path: Path) -> None:
    core = CoreDouble(
        special={
            b"\nbad": OutcomeDouble("malformed", message="cut", field="resource_spans"),
            b"\nbig": OutcomeDouble("too_large", message="too many spans"),
        }
    )
    appender = AppenderDouble()
    async with committing(core, appender, tmp_path) as committer:
        good, bad, big = (commit(committer, name) for name in ("good", "bad", "big"))
        reasons = await verdict_on(bad), await verdict_on(big)
        await good

    assert [type(reason) for reason in reasons] == [MalformedBody, BodyTooLarge]
    assert isinstance(reasons[0], MalformedBody)
    assert reasons[0].field == "resource_spans"
    assert b"".join(record for _, record, _ in appender.appended) == b"0:\ngood"


@on_uvloop
async def test_disk_error_refuses_all_deliveries_of_its_group_only(tmp_path: Path) -> None:
    error = DiskTrouble("write: I/O error")
    core, appender = CoreDouble(), AppenderDouble(trouble=[error])
    core.may_continue.clear()
    async with committing(core, appender, tmp_path) as committer:
        first = [commit(committer, name) for name in "ab"]
        await asyncio.to_thread(core.running.wait)
        later = commit(committer, "c")
        await asyncio.sleep(0)
        core.may_continue.set()
        reasons = [await verdict_on(task) for task in first]
        await later

    assert reasons == [error, error]
    assert [rows for _, _, rows in appender.appended] == [1]


@on_uvloop
async def test_delivery_past_its_deadline_is_refused_and_not_decoded(tmp_path: Path) -> None:
    core = CoreDouble.paused()
    async with committing(core, AppenderDouble(), tmp_path, answer_deadline_s=0.1) as committer:
        tasks = [commit(committer, "a")]
        await asyncio.to_thread(core.running.wait)
        tasks.append(commit(committer, "b"))
        reasons = [await verdict_on(task) for task in tasks]

    assert [type(reason) for reason in reasons] == [DeadlinePassed, DeadlinePassed]
    assert bodies(core) == [["a"]]


@on_uvloop
async def test_third_crash_of_the_same_body_is_answered_as_malformed(tmp_path: Path) -> None:
    core = CoreDouble(special={b"\npoison": OutcomeDouble("crashed")})
    async with committing(core, AppenderDouble(), tmp_path / "quarantine") as committer:
        reasons = [await verdict_on(commit(committer, "poison")) for _ in range(3)]
        await commit(committer, "good")

    (kept,) = (tmp_path / "quarantine").glob("*.body")
    assert [type(reason) for reason in reasons] == [CoreCrashed, CoreCrashed, MalformedBody]
    assert kept.read_bytes() == b"\npoison"
    assert kept.name.endswith(".protobuf.body")


@on_uvloop
async def test_exception_in_the_core_refuses_only_its_group(tmp_path: Path) -> None:
    class CrashingCore(CoreDouble):
        def transcode(self, deliveries, segment):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as in its base class
            committed = super().transcode(deliveries, segment)
            if len(self.groups) == 1:
                raise MemoryError
            return committed

    async with committing(CrashingCore(), AppenderDouble(), tmp_path) as committer:
        reason = await verdict_on(commit(committer, "a"))
        await commit(committer, "b")

    assert isinstance(reason, CoreCrashed)


@on_uvloop
async def test_delivery_acknowledged_by_the_store_waits_for_its_segment(tmp_path: Path) -> None:
    appender = AppenderDouble()
    async with committing(CoreDouble(), appender, tmp_path) as committer:
        task = commit(committer, "a", Drain(name="d", acknowledge="store"))
        await commit(committer, "b")
        early = task.done()
        appender.outcomes[SegmentId(7, 0)] = STORED
        appender.stored.add(SegmentId(7, 0))
        await task

    assert not early


@on_uvloop
async def test_store_acknowledgement_is_announced_to_the_journal_and_refused_at_the_deadline(
    tmp_path: Path,
) -> None:
    appender = AppenderDouble()
    async with committing(CoreDouble(), appender, tmp_path, answer_deadline_s=0.1) as committer:
        await commit(committer, "a")
        was_awaited = appender.is_awaited
        reason = await verdict_on(commit(committer, "b", Drain(name="d", acknowledge="store")))

    assert (was_awaited, appender.is_awaited) == (False, True)
    assert isinstance(reason, DeadlinePassed)


@on_uvloop
async def test_delivery_whose_segment_was_deleted_without_an_outcome_is_unavailable(tmp_path: Path) -> None:
    appender = AppenderDouble()
    async with committing(CoreDouble(), appender, tmp_path) as committer:
        task = commit(committer, "a", Drain(name="d", acknowledge="store"))
        await until(lambda: bool(appender.appended))
        appender.stored.add(SegmentId(7, 0))
        reason = await verdict_on(task)

    assert isinstance(reason, StoreTrouble)


@on_uvloop
async def test_close_answers_queued_deliveries_and_accepts_no_more(tmp_path: Path) -> None:
    core, appender = CoreDouble.paused(), AppenderDouble()
    async with committing(core, appender, tmp_path) as committer:
        tasks = [commit(committer, name) for name in "abc"]
        await asyncio.to_thread(core.running.wait)
        threading.Timer(0.05, core.may_continue.set).start()
    await asyncio.gather(*tasks)

    assert appender.closed
    assert isinstance(await verdict_on(commit(committer, "late")), ShuttingDown)


@on_uvloop
async def test_spans_are_counted_by_outcome(tmp_path: Path) -> None:
    outcome = OutcomeDouble(
        received=10, stored=6, sampled_out=1, rejected=3, unresolved=2, reasons=[("bad_id", 3)]
    )
    async with committing(CoreDouble(special={b"\na": outcome}), AppenderDouble(), tmp_path) as committer:
        await commit(committer, "a")

    values = committer.counters()
    expected = {
        "spans_received": 10,
        "spans_accepted": 6,
        "spans_sampled_out": 1,
        "spans_rejected": 3,
        "spans_unresolved": 2,
        "span_notes": 3,
        "commit_deliveries": 1,
    }
    assert {name: values[name] for name in expected} == expected
