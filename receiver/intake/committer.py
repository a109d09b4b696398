"""The committer: while one group is written to disk, the next is decoded and a third gathers.

    line ──▶ choose segment ──▶ transcode (a thread, no GIL) ──▶ append + sync (a thread) ──▶ receipts

Keeps: a receipt that promises is given only after `append` returned; records are appended in the order their
segments were chosen; a group costs its neighbours nothing but their place in it. Few and small deliveries are
not worth a group of their own: while one is written, they gather.
Never: a delivery without a receipt. What cannot be promised is told within the deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from receiver.errors import CoreCrashed, DiskTrouble, ReceiverError, ShuttingDown, Unavailable
from receiver.intake.admission import Claim
from receiver.intake.aside import Aside
from receiver.intake.hand import Hand
from receiver.intake.outcome import Transcode, refusal
from receiver.intake.pace import Pace
from receiver.intake.waiting import Give, Line, Receipt, StoreLine, Waiting
from receiver.journal.appender import StaleSegment
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import Delivery, Outcome, SegmentId
from receiver.settings import KIB, Drain

EARLY_BYTES_MIN = 256 * KIB
"""What weighs less is not decoded before the disk is free: half a millisecond would be won, and for it many
small groups cost a sync, a block and two changes of thread each."""
TICK_S = 0.05
"""How often deadlines, age and the store are looked at."""
POSTPONED = "postponed"
"""The verdict on a delivery that belongs to the next group."""
STALE_MAX = 3
"""A group meets so many closed segments before the disk is called broken."""


class Appender(Protocol):
    """The journal, as the committer uses it. See `receiver/journal/appender.py`."""

    def choose(self) -> SegmentId:
        """Give the segment that the next record belongs to."""

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """Make a record safe, or raise and make sure that it never comes back."""

    def seal_if_due(self) -> None:
        """Hand the open segment over if it is old enough."""

    def close(self) -> None:
        """Hand everything over and take no more."""

    def is_stored(self, segment: SegmentId) -> bool:
        """Tell whether a segment is in the store."""


@dataclass(slots=True)
class Group:
    """Deliveries that share a record, transcoded for one segment."""

    segment: SegmentId
    record: bytes
    rows: int
    accepted: list[tuple[Waiting, Outcome]]
    decided_count: int = 0
    """Deliveries the core looked at."""


class SpanCounts:
    """What became of the spans of one drain."""

    __slots__ = ("_add", "_drain", "accepted", "received")

    def __init__(self, metrics: Metrics, drain: str) -> None:
        self._add = metrics.add
        self._drain = drain
        self.received = metrics.count("spans_received", drain=drain)
        self.accepted = metrics.count("spans_accepted", drain=drain)

    def add(self, outcome: Outcome) -> None:
        """Count a delivery that is safe."""
        self.received.value += outcome.received
        self.accepted.value += outcome.stored
        if rejected := outcome.rejected:
            self._add("spans_rejected", rejected, drain=self._drain)
        if sampled_out := outcome.sampled_out:
            self._add("spans_sampled_out", sampled_out, drain=self._drain)
        if unresolved := outcome.unresolved:
            self._add("spans_unresolved", unresolved, drain=self._drain)
        for reason, count in outcome.reasons:
            self._add("span_notes", count, reason=reason)


class Committer:
    """Promises deliveries, a group at a time."""

    def __init__(
        self,
        transcode: Transcode,
        appender: Appender,
        aside: Aside,
        metrics: Metrics,
        *,
        answer_deadline_s: float,
    ) -> None:
        self._transcode = transcode
        self._answer_deadline_s = answer_deadline_s
        self._appender = appender
        self._aside = aside
        self._metrics = metrics
        self._line = Line()
        self._store_line = StoreLine()
        self._spans: dict[str, SpanCounts] = {}
        self._core = Hand("core")
        self._disk = Hand("disk")
        self._pace = Pace()
        self._groups_in_flight = 0
        self._sealing = asyncio.Lock()
        self._closing = False

    def use(self, transcode: Transcode, answer_deadline_s: float) -> None:
        """Use these for groups and deliveries to come."""
        self._transcode = transcode
        self._answer_deadline_s = answer_deadline_s

    def require_time(self) -> None:
        """Raise `Overloaded` when a delivery that comes now would be answered too late."""
        self._pace.require_time(self._line.weight_bytes, self._answer_deadline_s)

    async def commit(self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim) -> Outcome:
        """Wait for the receipt of one delivery; raise the verdict if there is none."""
        given: asyncio.Future[Outcome | ReceiverError] = asyncio.get_running_loop().create_future()
        receipt = self.promise(delivery, drain, received_at, claim, partial(_fulfil, given))
        try:
            outcome = await given
        finally:
            receipt.forget()
        if isinstance(outcome, ReceiverError):
            raise outcome
        return outcome

    def promise(
        self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim, give: Give
    ) -> Receipt:
        """Have the receipt of one delivery given. Raises the verdict if there will be none."""
        if self._closing:
            raise ShuttingDown("the receiver is stopping; expected to be back in seconds")
        self.require_time()
        receipt = Receipt(give, received_at + self._answer_deadline_s)
        self._line.join(Waiting(delivery, claim, receipt, until_stored=drain.acknowledge == "store"))
        return receipt

    async def run(self) -> None:
        """Commit group after group until closed and everything in line is answered."""
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._watch()), tasks.create_task(self._seal_by_age())]
            await self._commit_groups()
            for task in beside:
                task.cancel()

    async def close(self, running: asyncio.Future[None]) -> None:
        """Answer everything in line, hand the journal over, let go of the threads."""
        self._closing = True
        self._line.wake()
        await running
        await self._disk.do(self._appender.close)
        self._core.rest()
        self._disk.rest()

    async def _commit_groups(self) -> None:
        appending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        appending.set_result(None)
        while True:
            await self._line.arrival()
            if self._line.weight_bytes < EARLY_BYTES_MIN:
                await appending
            waiting = self._line.take_group()
            if waiting:
                self._pace.bytes_in_hand += sum(one.weight_bytes for one in waiting)
                group = await self._transcoded(waiting)
                await appending
                appending = asyncio.ensure_future(self._promise(group, waiting))
            elif self._closing:
                await appending
                if not self._line:
                    return

    async def _transcoded(self, waiting: Sequence[Waiting]) -> Group:
        """Choose the segment and turn the deliveries into one record for it."""
        async with self._sealing:
            self._groups_in_flight += 1
            segment = self._appender.choose()
        group = await self._transcoded_for(segment, waiting)
        self._metrics.add("commit_deliveries", group.decided_count)
        return group

    async def _transcoded_for(self, segment: SegmentId, waiting: Sequence[Waiting]) -> Group:
        begun_at = time.perf_counter()
        try:
            done = await self._core.do(self._transcode, [one.delivery for one in waiting], segment)
        except Exception as reason:  # noqa: BLE001 - the core answers for bodies; what it raises is a bug
            limited.error("transcode", "a group could not be transcoded", why=type(reason).__name__)
            for one in waiting:
                one.receipt.give(CoreCrashed("the decoder failed; expected to work again"))
            return Group(segment, b"", 0, [])
        took_s = time.perf_counter() - begun_at
        self._metrics.observe("commit_seconds", took_s)
        self._pace.took(sum(one.weight_bytes for one in waiting), took_s)
        group = Group(segment, done.record, done.rows, [], len(waiting))
        postponed = []
        for one, outcome in zip(waiting, done.outcomes, strict=True):
            verdict = outcome.verdict
            if verdict == "accepted":
                group.accepted.append((one, outcome))
            elif verdict == POSTPONED:
                postponed.append(one)
            else:
                refused = refusal(outcome)
                if refused is None:
                    refused = await self._disk.do(self._aside.keep, one.delivery)
                one.receipt.give(refused)
        self._line.put_back(postponed)
        group.decided_count -= len(postponed)
        return group

    async def _promise(self, group: Group, in_hand: Sequence[Waiting]) -> None:
        """Make the record safe, give the receipts, let go of the bodies."""
        try:
            group = await self._appended(group)
        except Unavailable as reason:
            limited.error("append", "a group could not be made safe", why=str(reason))
            for waiting, _ in group.accepted:
                waiting.receipt.give(reason)
        else:
            for waiting, outcome in group.accepted:
                self._settle(group, waiting, outcome)
        finally:
            self._groups_in_flight -= 1
            for waiting in in_hand:
                self._pace.bytes_in_hand -= waiting.weight_bytes
                waiting.claim.release()

    async def _appended(self, group: Group) -> Group:
        """Append the record; if its segment was closed meanwhile, transcode anew for the next one."""
        for _ in range(STALE_MAX):
            if not group.record:
                return group
            try:
                seconds = await self._disk.do(self._append, group)
            except StaleSegment:
                waiting = [one for one, _ in group.accepted]
                group = await self._transcoded_for(self._appender.choose(), waiting)
            else:
                self._metrics.observe("fsync_seconds", seconds)
                return group
        raise DiskTrouble(f"the journal closed {STALE_MAX} segments in a row; expected one to stay open")

    def _append(self, group: Group) -> float:
        begun_at = time.perf_counter()
        self._appender.append(group.segment, group.record, group.rows)
        return time.perf_counter() - begun_at

    def _settle(self, group: Group, waiting: Waiting, outcome: Outcome) -> None:
        """Count a delivery that is safe, and give its receipt or let it wait for the store."""
        drain = waiting.delivery.drain
        spans = self._spans.get(drain)
        if spans is None:
            spans = self._spans[drain] = SpanCounts(self._metrics, drain)
        spans.add(outcome)
        if waiting.until_stored and group.record:
            self._store_line.join(group.segment, waiting, outcome)
        else:
            waiting.receipt.give(outcome)

    async def _watch(self) -> None:
        """Hold deadlines and look for stored segments."""
        while True:
            await asyncio.sleep(TICK_S)
            self._line.expire(asyncio.get_running_loop().time())
            for segment in self._store_line.segments():
                if self._appender.is_stored(segment):
                    self._store_line.stored(segment)

    async def _seal_by_age(self) -> None:
        """Hand over what is old enough while nothing is on its way to the open segment."""
        while True:
            await asyncio.sleep(TICK_S)
            async with self._sealing:
                if not self._groups_in_flight:
                    await self._disk.do(self._appender.seal_if_due)


def _fulfil(given: asyncio.Future[Outcome | ReceiverError], receipt: Outcome | ReceiverError) -> None:
    if not given.done():
        given.set_result(receipt)
