"""Tests of commit groups at the end and after errors: every delivery is answered, counters return to zero."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.errors import DeadlinePassed, DiskTrouble, Overloaded, StaleSegment
from receiver.intake import committer as committer_module
from receiver.intake.group import GROUP_TARGET_S
from receiver.model import Delivery, SegmentId
from receiver.settings import MIB, Drain
from tests.support.committer import bodies, commit, committing, verdict_on
from tests.support.intake import AppenderDouble, CommitDouble, CoreDouble, OutcomeDouble, on_uvloop


class PostponingCore(CoreDouble):
    """Core that accepts a single delivery per group from its second group on."""

    def transcode(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
        postponed = deliveries[1:] if self.groups else ()
        self.special = {delivery.body: OutcomeDouble("postponed") for delivery in postponed}
        return super().transcode(deliveries, segment)


@pytest.mark.parametrize("early_bytes_min", [0, committer_module.EARLY_BYTES_MIN])
@on_uvloop
async def test_postponed_delivery_of_a_closed_segment_is_answered_during_close(
    tmp_path: Path, early_bytes_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "EARLY_BYTES_MIN", early_bytes_min)
    core, appender = PostponingCore(), AppenderDouble(trouble=[StaleSegment("0")])
    appender.may_continue.clear()
    async with committing(core, appender, tmp_path) as committer:
        receipts = [commit(committer, "a"), commit(committer, "b")]
        await asyncio.to_thread(appender.running.wait)
        closing = committer.begin_close()
        await asyncio.sleep(0)
        appender.may_continue.set()
        await asyncio.gather(*receipts, closing)

    assert [record for _, record, _ in appender.appended] == [b"1:\na", b"1:\nb"]


@on_uvloop
async def test_answered_group_no_longer_counts_as_load(tmp_path: Path) -> None:
    core, appender = CoreDouble(), AppenderDouble(trouble=[DiskTrouble("write: I/O error")])
    async with committing(core, appender, tmp_path) as committer:
        await verdict_on(commit(committer, "a"))
        await commit(committer, "b")
        committer.use(core, answer_deadline_s=0)

        committer.refuse_if_overloaded()


@on_uvloop
async def test_delivery_is_refused_if_the_queue_grew_too_long_during_its_body(tmp_path: Path) -> None:
    core = CoreDouble.paused()
    async with committing(core, AppenderDouble(), tmp_path) as committer:
        first = commit(committer, "a")
        await asyncio.to_thread(core.running.wait)
        committer.use(core, answer_deadline_s=0)
        reason = await verdict_on(commit(committer, "b"))
        core.may_continue.set()
        await first

    assert isinstance(reason, Overloaded)


@on_uvloop
async def test_expensive_deliveries_are_split_into_several_groups(tmp_path: Path) -> None:
    class SlowCore(CoreDouble):
        def transcode(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            time.sleep(3 * GROUP_TARGET_S * len(deliveries))
            return super().transcode(deliveries, segment)

    core = SlowCore()
    async with committing(core, AppenderDouble(), tmp_path, answer_deadline_s=60) as committer:
        await commit(committer, "a" * MIB)
        await asyncio.gather(*(commit(committer, name * MIB) for name in "bcd"))

    assert [len(group) for group in core.groups] == [1, 1, 1, 1]


@on_uvloop
async def test_deadline_starts_when_the_body_is_complete(tmp_path: Path) -> None:
    core = CoreDouble.paused()
    async with committing(core, AppenderDouble(), tmp_path) as committer:
        reason = await verdict_on(commit(committer, "a", age_s=100))

    assert isinstance(reason, DeadlinePassed)


@on_uvloop
async def test_abandoned_delivery_is_not_decoded(tmp_path: Path) -> None:
    core = CoreDouble.paused()
    async with committing(core, AppenderDouble(), tmp_path) as committer:
        first = commit(committer, "a")
        await asyncio.to_thread(core.running.wait)
        abandoned = commit(committer, "b")
        await asyncio.sleep(0)
        abandoned.cancel()
        await asyncio.wait([abandoned])
        core.may_continue.set()
        await first

    assert bodies(core) == [["a"]]


@on_uvloop
async def test_delivery_without_rows_does_not_wait_for_the_store(tmp_path: Path) -> None:
    class EmptyCore(CoreDouble):
        """Core whose groups have no rows."""

        def transcode(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            return replace(super().transcode(deliveries, segment), record=b"", rows=0)

    async with committing(EmptyCore(), AppenderDouble(), tmp_path) as committer:
        await commit(committer, "a", Drain(name="d", acknowledge="store"))


@on_uvloop
async def test_reloaded_policy_applies_to_later_groups(tmp_path: Path) -> None:
    old, new = CoreDouble(), CoreDouble()
    async with committing(old, AppenderDouble(), tmp_path) as committer:
        await commit(committer, "a")
        committer.use(new, answer_deadline_s=60)
        await commit(committer, "b")

    assert [bodies(core) for core in (old, new)] == [[["a"]], [["b"]]]
