"""The committer: while one group is written to disk, the next is decoded and a third gathers.

    line ──▶ choose segment ──▶ transcode (a thread, no GIL) ──▶ append + sync (a thread) ──▶ receipts

Keeps: a receipt that promises is given only after `append` returned; records are appended in the order their
segments were chosen; a group costs its neighbours nothing but their place in it. Few and small deliveries are
not worth a group of their own: while one is written, they gather. A small group changes threads once: what
decodes it appends it. Segments that take no more records are sealed beside all this.
While the journal is full, deliveries are held until it has room, or until their deadline: then they get 503.
Never: a delivery without a receipt. What cannot be promised is told within the deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import structlog

from receiver.errors import CoreCrashed, DiskTrouble, JournalFull, ReceiverError, ShuttingDown, Unavailable
from receiver.intake.admission import Claim
from receiver.intake.commit_rate import CommitRate
from receiver.intake.group import Group, SpanCounts, Tried
from receiver.intake.outcome import Transcode, refusal
from receiver.intake.quarantine import Quarantine
from receiver.intake.store_line import StoreLine, digests_in
from receiver.intake.waiting import GROUP_BYTES_MAX, Give, Hold, Line, Waiting, refuse
from receiver.intake.worker_thread import WorkerThread
from receiver.journal.appender import StaleSegment
from receiver.journal.outcomes import SegmentOutcome
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import Commit, Delivery, Outcome, SegmentId
from receiver.settings import KIB, Drain

EARLY_BYTES_MIN = 256 * KIB
"""What weighs less is not decoded before the disk is free: half a millisecond would be won, and for it many
small groups cost a sync, a block and two changes of thread each."""
TICK_S = 0.05
"""How often deadlines, age and the store are looked at."""
POSTPONED = "postponed"
"""The verdict on a delivery that belongs to the next group."""
STOPPING = "the journal is full and the receiver is stopping; expected to be back in seconds"
STORE_GONE = "the receiver is stopping before the delivery is stored; expected to be back in seconds"
STALE_MAX = 3
"""A group meets so many closed segments before the disk is called broken."""


class Appender(Protocol):
    """The journal, as the committer uses it. See `receiver/journal/appender.py`."""

    def choose(self) -> SegmentId:
        """Give the segment that the next record belongs to."""

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """Make a record safe, or raise and make sure that it never comes back."""

    def full_reason(self, more_bytes: int = 0) -> str | None:
        """Return why a record of this size cannot be appended now; none: it probably can."""

    @property
    def has_retired(self) -> bool:
        """Whether a segment waits for `seal_retired`."""

    def seal_retired(self) -> None:
        """Seal such segments. May be called beside everything else."""

    def retire_if_due(self) -> None:
        """Take no more records into the open segment if it is old enough."""

    def seal(self) -> None:
        """Seal the open segment."""

    def close(self) -> None:
        """Hand everything over and take no more."""

    def is_stored(self, segment: SegmentId) -> bool:
        """Return whether nothing of a segment is left in the journal."""

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        """Return what became of a segment that is gone; `None`: the writer did not delete it."""


class Committer:
    """Promises deliveries, a group at a time."""

    def __init__(
        self,
        transcode: Transcode,
        appender: Appender,
        aside: Quarantine,
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
        self._hold = Hold()
        self._store_line = StoreLine()
        self._spans: dict[str, SpanCounts] = {}
        self._core = WorkerThread("core")
        self._disk = WorkerThread("disk")
        self._sealer = WorkerThread("sealer")
        self._handing_over: asyncio.Future[None] | None = None
        self._pace = CommitRate()
        self._groups_in_flight = 0
        self._sealing = asyncio.Lock()
        self._closing = False
        self._is_store_gone = False
        self._group_bytes_max = GROUP_BYTES_MAX
        """Less after a record that did not fit: single deliveries of it may."""

    def use(self, transcode: Transcode, answer_deadline_s: float) -> None:
        """Use these for groups and deliveries to come."""
        self._transcode = transcode
        self._answer_deadline_s = answer_deadline_s

    def require_time(self) -> None:
        """Raise `Overloaded` when a delivery that comes now would be answered too late."""
        self._pace.require_time(self._line.weight_bytes, self._answer_deadline_s)

    async def commit(self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim) -> Outcome:
        """Wait for the receipt of one delivery; raise the verdict if there is none."""
        self.require_time()
        given: asyncio.Future[Outcome | ReceiverError] = asyncio.get_running_loop().create_future()
        waiting = self.promise(delivery, drain, received_at, claim, partial(_fulfil, given))
        try:
            receipt = await given
        finally:
            waiting.forget()
        if isinstance(receipt, ReceiverError):
            raise receipt
        return receipt

    def promise(
        self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim, give: Give
    ) -> Waiting:
        """Have the receipt of one delivery given. Raises `ShuttingDown` if there will be none."""
        if self._closing:
            raise ShuttingDown("the receiver is stopping; expected to be back in seconds")
        deadline, until_stored = received_at + self._answer_deadline_s, drain.acknowledge == "store"
        waiting = Waiting(delivery, claim, give, deadline, until_stored=until_stored)
        self._line.join(waiting)
        return waiting

    async def run(self) -> None:
        """Commit group after group until closed and everything in line is answered."""
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._watch()), tasks.create_task(self._seal_by_age())]
            await self._commit_groups()
            for task in beside:
                task.cancel()

    async def seal(self) -> None:
        """Seal the open segment: everything acknowledged so far is the writer's then."""
        await self._sealer.do(self._appender.seal)

    def wait_no_longer(self) -> None:
        """Refuse what waits for room or for the store from now on: the store has stopped."""
        self._is_store_gone = True

    async def close(self, running: asyncio.Future[None]) -> None:
        """Answer everything in line, hand the journal over, let go of the threads."""
        self._closing = True
        self._line.wake()
        await running
        await self._disk.do(self._appender.close)
        for hand in (self._core, self._disk, self._sealer):
            hand.rest()

    async def _commit_groups(self) -> None:
        appending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        appending.set_result(None)
        while True:
            await self._line.arrival()
            await self._room()
            is_small = self._line.weight_bytes < EARLY_BYTES_MIN
            if is_small:
                await appending
            waiting = self._line.take_group(min(self._pace.bytes_in_a_moment, self._group_bytes_max))
            if waiting:
                group = await self._transcoded(waiting, with_append=is_small)
                await appending
                appending = asyncio.ensure_future(self._promise(group))
            elif self._closing:
                await appending
                self._hold.refuse_all(STOPPING)
                if not self._line:
                    return

    async def _room(self) -> None:
        """Wait until the journal takes records, if deliveries wait in line. Refuse them when stopping."""
        while self._line and (reason := self._appender.full_reason()) is not None:
            if self._closing or self._is_store_gone:
                refuse(self._line.take_group(GROUP_BYTES_MAX), JournalFull(reason))
                continue
            limited.warning("hold", "journal takes no records; requests are held", error=reason)
            await asyncio.sleep(TICK_S)

    async def _transcoded(self, waiting: Sequence[Waiting], *, with_append: bool) -> Group:
        """Choose the segment and turn the deliveries into one record for it."""
        weight_bytes = sum([one.weight_bytes for one in waiting])
        self._pace.bytes_in_hand += weight_bytes
        async with self._sealing:
            self._groups_in_flight += 1
            group = Group(waiting, weight_bytes, self._appender.choose())
        decided_count = await self._transcode_for(group, group.segment, with_append=with_append)
        self._metrics.add("commit_deliveries", decided_count)
        return group

    async def _transcode_for(self, group: Group, segment: SegmentId, *, with_append: bool = False) -> int:
        """Make the record of a group. How many deliveries the core looked at."""
        group.segment, waiting = segment, group.waiting
        deliveries = [one.delivery for one in waiting]
        try:
            made = await self._core.do(self._make, self._transcode, deliveries, segment, with_append)
        except Exception as reason:  # noqa: BLE001 - the core answers for bodies; what it raises is a bug
            limited.error("transcode", "a group could not be transcoded", error=type(reason).__name__)
            _refuse_all(group, CoreCrashed("the decoder failed; expected to work again"))
            return 0
        group.done, took_s, group.tried = made
        self._metrics.observe("commit_seconds", took_s)
        self._pace.took(sum([one.weight_bytes for one in waiting]), took_s)
        outcomes = group.done.outcomes
        is_plain = [outcome.is_plain for outcome in outcomes]
        if all(is_plain):
            group.outcomes = outcomes
            return len(waiting)
        return len(waiting) - await self._sort_out(group, outcomes)

    def _make(
        self,
        transcode: Transcode,
        deliveries: Sequence[Delivery],
        segment: SegmentId,
        with_append: bool,  # noqa: FBT001 - a hand takes what it is given by position
    ) -> tuple[Commit, float, Tried | None]:
        """Transcode, and append in the same go: for a small group each change of thread costs as much."""
        begun_at = time.perf_counter()
        done = transcode(deliveries, segment)
        took_s = time.perf_counter() - begun_at
        return done, took_s, self._append(segment, done) if with_append and done.record else None

    def _append(self, segment: SegmentId, done: Commit) -> Tried:
        begun_at = time.perf_counter()
        try:
            self._appender.append(segment, done.record, done.rows)
        except (StaleSegment, Unavailable) as reason:
            return Tried(0.0, reason)
        return Tried(time.perf_counter() - begun_at)

    async def _sort_out(self, group: Group, outcomes: Sequence[Outcome]) -> int:
        """Refuse what is refused, put back what had no room, keep the rest. How many were put back."""
        accepted, postponed = [], []
        for one, outcome in zip(group.waiting, outcomes, strict=True):
            verdict = outcome.verdict
            if verdict == "accepted":
                accepted.append((one, outcome))
            elif verdict == POSTPONED:
                postponed.append(one)
            else:
                refused = refusal(outcome)
                if refused is None:
                    refused = await self._disk.do(self._aside.keep, one.delivery)
                one.give(refused)
                one.let_go()
        self._line.put_back(postponed)
        group.waiting, group.outcomes = [one for one, _ in accepted], [outcome for _, outcome in accepted]
        return len(postponed)

    async def _promise(self, group: Group) -> None:
        """Make the record safe, give the receipts, let go of the bodies."""
        try:
            await self._append_record(group)
        except JournalFull as reason:
            self._hold_group(group, reason)
        except Unavailable as reason:
            limited.error("append", "a group could not be written to the journal", error=str(reason))
            _refuse_all(group, reason)
        else:
            self._group_bytes_max = GROUP_BYTES_MAX
            self._settle(group)
        finally:
            self._groups_in_flight -= 1
            self._pace.bytes_in_hand -= group.weight_bytes

    def _hold_group(self, group: Group, reason: JournalFull) -> None:
        """Hold the deliveries of a record that did not fit; they are transcoded again for another segment."""
        if self._closing or self._is_store_gone or group.done is None:
            _refuse_all(group, reason)
            return
        self._hold.add(group.waiting, len(group.done.record), str(reason))
        self._group_bytes_max = group.weight_bytes // 2
        group.waiting, group.outcomes, group.done = (), (), None

    async def _append_record(self, group: Group) -> None:
        """Append the record; if its segment was closed meanwhile, transcode anew for the next one."""
        for _ in range(STALE_MAX):
            if group.done is None or not group.done.record:
                return
            tried = group.tried
            if tried is None:
                tried = await self._disk.do(self._append, group.segment, group.done)
            if tried.refused is None:
                self._metrics.observe("fsync_seconds", tried.seconds)
                self._hand_over()
                return
            if isinstance(tried.refused, Unavailable):
                raise tried.refused
            await self._transcode_for(group, self._appender.choose())
        raise DiskTrouble(f"the journal closed {STALE_MAX} segments in a row; expected one to stay open")

    def _settle(self, group: Group) -> None:
        """Count what is safe, give receipts or let them wait for the store, let go of the bodies."""
        if group.done is None:
            return
        for drain, *counts in group.done.spans:
            spans = self._spans.get(drain)
            if spans is None:
                spans = self._spans[drain] = SpanCounts(self._metrics, drain)
                _log_first(group, drain, span_count=counts[0])
            spans.add(*counts)
        for reason, count in group.done.reasons:
            self._metrics.add("span_notes", count, reason=reason)
        record = group.done.record
        if record and any(waiting.until_stored for waiting in group.waiting):
            digests = digests_in(record, len(group.waiting))
        else:
            digests = [""] * len(group.waiting)
        for waiting, outcome, digest in zip(group.waiting, group.outcomes, digests, strict=True):
            if waiting.until_stored and record:
                self._store_line.join(group.segment, waiting, outcome, digest)
            else:
                waiting.give(outcome)
            waiting.let_go()

    async def _watch(self) -> None:
        """Hold deadlines and look for stored segments."""
        while True:
            await asyncio.sleep(TICK_S)
            now, full_reason = asyncio.get_running_loop().time(), self._appender.full_reason
            self._hold.release(full_reason, self._line, now)
            self._line.expire(now, full_reason())
            for segment in self._store_line.segments():
                if self._appender.is_stored(segment):
                    self._store_line.settle(segment, self._appender.outcome_of(segment))
            if self._is_store_gone:
                self._hold.refuse_all(STOPPING)
                self._store_line.refuse_all(STORE_GONE)

    async def _seal_by_age(self) -> None:
        """Hand over what is old enough while nothing is on its way to the open segment."""
        while True:
            await asyncio.sleep(TICK_S)
            async with self._sealing:
                if not self._groups_in_flight:
                    await self._disk.do(self._appender.retire_if_due)
            self._hand_over()

    def _hand_over(self) -> None:
        """See to segments that take no more records, beside everything else: no promise waits for that."""
        if not self._appender.has_retired or (self._handing_over and not self._handing_over.done()):
            return
        if self._handing_over:
            self._handing_over.result()
        self._handing_over = self._sealer.do(self._appender.seal_retired)


def _log_first(group: Group, drain: str, *, span_count: int) -> None:
    """Log the first deliveries of a drain since this intake started: those of one group, often one."""
    kinds = [one.delivery.content_kind.value for one in group.waiting if one.delivery.drain == drain]
    structlog.get_logger().info(
        "first delivery accepted",
        drain=drain,
        content_type=kinds[0] if kinds else "",
        deliveries=len(kinds),
        spans=span_count,
    )


def _fulfil(given: asyncio.Future[Outcome | ReceiverError], receipt: Outcome | ReceiverError) -> None:
    if not given.done():
        given.set_result(receipt)


def _refuse_all(group: Group, reason: ReceiverError) -> None:
    """Give all that are left in a group this verdict."""
    refuse(group.waiting, reason)
    group.waiting, group.outcomes, group.done = (), (), None
