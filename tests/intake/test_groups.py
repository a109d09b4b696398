"""What a group leaves behind it, whatever became of it: nobody unanswered, nothing counted for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from receiver.errors import DeadlinePassed, DiskTrouble, Overloaded
from receiver.intake import committer
from receiver.intake.commit_rate import GROUP_TARGET_S
from receiver.intake.committer import Committer
from receiver.intake.quarantine import Quarantine
from receiver.journal.appender import StaleSegment
from receiver.metrics import Metrics
from receiver.model import Delivery, Outcome, SegmentId
from receiver.settings import MIB, Drain
from tests.support.committer import delivery
from tests.support.intake import (
    AppenderDouble,
    CommitDouble,
    CoreDouble,
    OutcomeDouble,
    claim_of,
    on_uvloop,
)

AGES_S = 30
"""Longer than any test may wait for what must come."""


class Closing:
    """A committer that is told to close while a test still uses it."""

    def __init__(self, core: CoreDouble, appender: AppenderDouble, root: Path) -> None:
        self.metrics = Metrics("intake-0")
        self.committer = Committer(core, appender, Quarantine(root), self.metrics, answer_deadline_s=60)
        self._running = asyncio.create_task(self.committer.run())
        self._closing: asyncio.Task[None] | None = None

    def commit(
        self, name: str, *, age_s: float = 0, acknowledge: Literal["journal", "store"] = "journal"
    ) -> asyncio.Task[Outcome]:
        """Ask for a receipt for a delivery that came so long ago."""
        received_at = asyncio.get_running_loop().time() - age_s
        drain = Drain(name="d", acknowledge=acknowledge)
        return asyncio.create_task(self.committer.commit(delivery(name), drain, received_at, claim_of(2)))

    def close(self) -> asyncio.Task[None]:
        """Begin to close, once."""
        if self._closing is None:
            self._closing = asyncio.create_task(self.committer.close(self._running))
        return self._closing


@asynccontextmanager
async def committing(core: CoreDouble, appender: AppenderDouble, root: Path) -> AsyncIterator[Closing]:
    closing = Closing(core, appender, root)
    try:
        yield closing
    finally:
        core.may_go_on.set()
        appender.may_go_on.set()
        await closing.close()


class LaterNarrow(CoreDouble):
    """Has room for one delivery from its second group on."""

    def __call__(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
        left_out = deliveries[1:] if self.groups else ()
        self.special = {one.body: OutcomeDouble("postponed") for one in left_out}
        return super().__call__(deliveries, segment)


@on_uvloop
async def test_group_of_a_segment_closed_during_close_is_committed_again(
    tmp_path: Path,
) -> None:
    appender = AppenderDouble(trouble=[StaleSegment("0")])
    appender.may_go_on.clear()
    async with committing(CoreDouble(), appender, tmp_path) as intake, asyncio.timeout(AGES_S):
        receipt = intake.commit("a")
        await asyncio.to_thread(appender.running.wait)
        closing = intake.close()
        await asyncio.sleep(0)
        appender.may_go_on.set()
        await receipt
        await closing

    assert appender.appended == [(SegmentId(7, 1), b"1:\na", 1)]


@pytest.mark.parametrize("early_bytes_min", [0, committer.EARLY_BYTES_MIN])
@on_uvloop
async def test_postponed_delivery_is_answered_during_close(
    tmp_path: Path, early_bytes_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "EARLY_BYTES_MIN", early_bytes_min)
    core, appender = LaterNarrow(), AppenderDouble(trouble=[StaleSegment("0")])
    appender.may_go_on.clear()
    async with committing(core, appender, tmp_path) as intake, asyncio.timeout(AGES_S):
        receipts = [intake.commit("a"), intake.commit("b")]
        await asyncio.to_thread(appender.running.wait)
        closing = intake.close()
        await asyncio.sleep(0)
        appender.may_go_on.set()
        await asyncio.gather(*receipts)
        await closing

    assert [record for _, record, _ in appender.appended] == [b"1:\na", b"1:\nb"]


@on_uvloop
async def test_delivery_queued_during_decoding_does_not_block_close(
    tmp_path: Path,
) -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake, asyncio.timeout(AGES_S):
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        second = intake.commit("b")
        await asyncio.sleep(0)
        closing = intake.close()
        core.may_go_on.set()
        await asyncio.gather(first, second, closing)

    assert len(core.groups) == 2


@on_uvloop
async def test_a_delivery_that_is_postponed_is_counted_once(tmp_path: Path) -> None:
    core = LaterNarrow()
    core.may_go_on.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        others = [intake.commit(name) for name in "bcd"]
        await asyncio.sleep(0)
        core.may_go_on.set()
        await asyncio.gather(first, *others)

    counted = {one.name: one.value for one in intake.metrics.snapshot().series}
    assert (len(core.groups), counted["commit_deliveries"]) == (4, 4)


@on_uvloop
async def test_answered_group_no_longer_counts_as_load(tmp_path: Path) -> None:
    core, appender = CoreDouble(), AppenderDouble(trouble=[DiskTrouble("write: I/O error")])
    async with committing(core, appender, tmp_path) as intake:
        with pytest.raises(DiskTrouble):
            await intake.commit("a")
        await intake.commit("b")
        intake.committer.use(core, answer_deadline_s=0)

        intake.committer.refuse_if_overloaded()


@on_uvloop
async def test_delivery_is_refused_if_the_queue_grew_too_long_during_its_body(
    tmp_path: Path,
) -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        intake.committer.use(core, answer_deadline_s=0)
        with pytest.raises(Overloaded):
            await intake.commit("b")
        core.may_go_on.set()
        await first


@on_uvloop
async def test_expensive_deliveries_are_split_into_several_groups(tmp_path: Path) -> None:
    class Slow(CoreDouble):
        def __call__(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            time.sleep(3 * GROUP_TARGET_S * len(deliveries))
            return super().__call__(deliveries, segment)

    core = Slow()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        await intake.commit("a" * MIB)
        await asyncio.gather(*(intake.commit(name * MIB) for name in "bcd"))

    assert [len(group) for group in core.groups] == [1, 1, 1, 1]


@on_uvloop
async def test_deadline_starts_when_the_body_is_complete(tmp_path: Path) -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake, asyncio.timeout(AGES_S):
        with pytest.raises(DeadlinePassed):
            await intake.commit("a", age_s=100)
        core.may_go_on.set()


@on_uvloop
async def test_abandoned_delivery_is_not_decoded(tmp_path: Path) -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        gone = intake.commit("b")
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        core.may_go_on.set()
        await first

    assert [one.body for one in core.deliveries] == [b"\na"]


@on_uvloop
async def test_delivery_without_rows_does_not_wait_for_the_store(tmp_path: Path) -> None:
    class Empty(CoreDouble):
        """Finds nothing to journal."""

        def __call__(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            found = super().__call__(deliveries, segment)
            return replace(found, record=b"", rows=0)

    async with committing(Empty(), AppenderDouble(), tmp_path) as intake, asyncio.timeout(AGES_S):
        await intake.commit("a", acknowledge="store")


@on_uvloop
async def test_reloaded_policy_applies_to_later_groups(tmp_path: Path) -> None:
    old, new = CoreDouble(), CoreDouble()
    async with committing(old, AppenderDouble(), tmp_path) as intake:
        await intake.commit("a")
        intake.committer.use(new, answer_deadline_s=60)
        await intake.commit("b")

    assert [[one.body for one in core.deliveries] for core in (old, new)] == [[b"\na"], [b"\nb"]]
