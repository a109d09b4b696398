"""Tests of commit groups at the end and after errors: every delivery is answered, counters return to zero."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from receiver.errors import DeadlinePassed, DiskTrouble, Overloaded, StaleSegment
from receiver.intake import committer
from receiver.intake.committer import Committer
from receiver.intake.group import GROUP_TARGET_S
from receiver.intake.quarantine import Quarantine
from receiver.metrics import Metrics
from receiver.model import Delivery, Outcome, SegmentId
from receiver.settings import MIB, Drain
from tests.support.committer import delivery, outcome_of
from tests.support.intake import (
    AppenderDouble,
    CommitDouble,
    CoreDouble,
    OutcomeDouble,
    claim_of,
    on_uvloop,
)

TIMEOUT_S = 30
"""Longer than any test waits for an expected event."""


class CommitterUnderTest:
    """Committer that closes while a test still uses it."""

    def __init__(self, core: CoreDouble, appender: AppenderDouble, root: Path) -> None:
        self.metrics = Metrics("intake-0")
        self.committer = Committer(core, appender, Quarantine(root), self.metrics, answer_deadline_s=60)
        self._running = asyncio.create_task(self.committer.run())
        self._closing: asyncio.Task[None] | None = None

    def commit(
        self, name: str, *, age_s: float = 0, acknowledge: Literal["journal", "store"] = "journal"
    ) -> asyncio.Task[Outcome]:
        """Submit a delivery that was received `age_s` ago."""
        received_at = asyncio.get_running_loop().time() - age_s
        drain = Drain(name="d", acknowledge=acknowledge)
        return asyncio.create_task(
            outcome_of(self.committer, delivery(name), drain, received_at, claim_of(2))
        )

    def close(self) -> asyncio.Task[None]:
        """Start closing; later calls return the same task."""
        if self._closing is None:
            self._closing = asyncio.create_task(self.committer.close(self._running))
        return self._closing


@asynccontextmanager
async def committing(
    core: CoreDouble, appender: AppenderDouble, root: Path
) -> AsyncIterator[CommitterUnderTest]:
    closing = CommitterUnderTest(core, appender, root)
    try:
        yield closing
    finally:
        core.may_continue.set()
        appender.may_continue.set()
        await closing.close()


class PostponingCore(CoreDouble):
    """Core that accepts a single delivery per group from its second group on."""

    def __call__(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
        postponed = deliveries[1:] if self.groups else ()
        self.special = {delivery.body: OutcomeDouble("postponed") for delivery in postponed}
        return super().__call__(deliveries, segment)


@on_uvloop
async def test_group_of_a_segment_closed_during_close_is_committed_again(
    tmp_path: Path,
) -> None:
    appender = AppenderDouble(trouble=[StaleSegment("0")])
    appender.may_continue.clear()
    async with committing(CoreDouble(), appender, tmp_path) as intake, asyncio.timeout(TIMEOUT_S):
        receipt = intake.commit("a")
        await asyncio.to_thread(appender.running.wait)
        closing = intake.close()
        await asyncio.sleep(0)
        appender.may_continue.set()
        await receipt
        await closing

    assert appender.appended == [(SegmentId(7, 1), b"1:\na", 1)]


@pytest.mark.parametrize("early_bytes_min", [0, committer.EARLY_BYTES_MIN])
@on_uvloop
async def test_postponed_delivery_is_answered_during_close(
    tmp_path: Path, early_bytes_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "EARLY_BYTES_MIN", early_bytes_min)
    core, appender = PostponingCore(), AppenderDouble(trouble=[StaleSegment("0")])
    appender.may_continue.clear()
    async with committing(core, appender, tmp_path) as intake, asyncio.timeout(TIMEOUT_S):
        receipts = [intake.commit("a"), intake.commit("b")]
        await asyncio.to_thread(appender.running.wait)
        closing = intake.close()
        await asyncio.sleep(0)
        appender.may_continue.set()
        await asyncio.gather(*receipts)
        await closing

    assert [record for _, record, _ in appender.appended] == [b"1:\na", b"1:\nb"]


@on_uvloop
async def test_delivery_queued_during_decoding_does_not_block_close(
    tmp_path: Path,
) -> None:
    core = CoreDouble()
    core.may_continue.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake, asyncio.timeout(TIMEOUT_S):
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        second = intake.commit("b")
        await asyncio.sleep(0)
        closing = intake.close()
        core.may_continue.set()
        await asyncio.gather(first, second, closing)

    assert len(core.groups) == 2


@on_uvloop
async def test_postponed_delivery_is_counted_once(tmp_path: Path) -> None:
    core = PostponingCore()
    core.may_continue.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        others = [intake.commit(name) for name in "bcd"]
        await asyncio.sleep(0)
        core.may_continue.set()
        await asyncio.gather(first, *others)

    values = {series.name: series.value for series in intake.metrics.snapshot().series}
    assert (len(core.groups), values["commit_deliveries"]) == (4, 4)


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
    core.may_continue.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        intake.committer.use(core, answer_deadline_s=0)
        with pytest.raises(Overloaded):
            await intake.commit("b")
        core.may_continue.set()
        await first


@on_uvloop
async def test_expensive_deliveries_are_split_into_several_groups(tmp_path: Path) -> None:
    class SlowCore(CoreDouble):
        def __call__(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            time.sleep(3 * GROUP_TARGET_S * len(deliveries))
            return super().__call__(deliveries, segment)

    core = SlowCore()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        await intake.commit("a" * MIB)
        await asyncio.gather(*(intake.commit(name * MIB) for name in "bcd"))

    assert [len(group) for group in core.groups] == [1, 1, 1, 1]


@on_uvloop
async def test_deadline_starts_when_the_body_is_complete(tmp_path: Path) -> None:
    core = CoreDouble()
    core.may_continue.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake, asyncio.timeout(TIMEOUT_S):
        with pytest.raises(DeadlinePassed):
            await intake.commit("a", age_s=100)
        core.may_continue.set()


@on_uvloop
async def test_abandoned_delivery_is_not_decoded(tmp_path: Path) -> None:
    core = CoreDouble()
    core.may_continue.clear()
    async with committing(core, AppenderDouble(), tmp_path) as intake:
        first = intake.commit("a")
        await asyncio.to_thread(core.running.wait)
        abandoned = intake.commit("b")
        await asyncio.sleep(0)
        abandoned.cancel()
        await asyncio.wait([abandoned])
        core.may_continue.set()
        await first

    assert [delivery.body for delivery in core.deliveries] == [b"\na"]


@on_uvloop
async def test_delivery_without_rows_does_not_wait_for_the_store(tmp_path: Path) -> None:
    class EmptyCore(CoreDouble):
        """Core whose groups have no rows."""

        def __call__(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
            committed = super().__call__(deliveries, segment)
            return replace(committed, record=b"", rows=0)

    async with committing(EmptyCore(), AppenderDouble(), tmp_path) as intake, asyncio.timeout(TIMEOUT_S):
        await intake.commit("a", acknowledge="store")


@on_uvloop
async def test_reloaded_policy_applies_to_later_groups(tmp_path: Path) -> None:
    old, new = CoreDouble(), CoreDouble()
    async with committing(old, AppenderDouble(), tmp_path) as intake:
        await intake.commit("a")
        intake.committer.use(new, answer_deadline_s=60)
        await intake.commit("b")

    assert [[delivery.body for delivery in core.deliveries] for core in (old, new)] == [[b"\na"], [b"\nb"]]
