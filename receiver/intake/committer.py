"""Committer: writes deliveries to the journal by group commit, with the groups pipelined.

    queue ──▶ choose segment ──▶ transcode (a thread, no GIL) ──▶ append + sync (a thread) ──▶ receipts

While one group is written to disk, the next is decoded and a third collects in the queue. A small group waits
for the disk before it is decoded, so that it can grow; one thread then decodes and appends it. Sealing runs
on its own thread.

Invariant: a delivery is acknowledged only after `append` returned. Records are appended in the order in which
    their segments were chosen. A refused delivery does not affect the rest of its group. While the journal
    is full, deliveries are held until it has space; at their deadline they get 503.
Never: leaves a delivery without a receipt after its deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from receiver.errors import (
    CoreCrashed,
    DiskTrouble,
    JournalFull,
    ReceiverError,
    ShuttingDown,
    StaleSegment,
    Unavailable,
)
from receiver.intake.admission import Claim
from receiver.intake.batch import OnAccepted, Parts, PendingBatch
from receiver.intake.group import (
    AppendAttempt,
    Appender,
    CommitRate,
    Group,
    SpanCounts,
    Transcode,
    log_first_delivery,
    refusal,
)
from receiver.intake.hold import Hold
from receiver.intake.pending import (
    GROUP_BYTES_MAX,
    DeliveryQueue,
    Pending,
    PendingDelivery,
    ReceiptCallback,
    StoreWaiters,
    delivery_digests,
    refuse,
)
from receiver.intake.worker_thread import WorkerThread
from receiver.journal.quarantine import Quarantine
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import Commit, Delivery, Outcome, SegmentId
from receiver.settings import KIB, Drain
from receiver.transcode import FastBatch

EARLY_BYTES_MIN = 256 * KIB
"""A group below this weight is not decoded before the disk is free: decoding it early would save half a
millisecond, but many small groups would each cost a sync, a block and two thread switches."""
TICK_S = 0.05
"""Interval at which deadlines, segment age and the store are checked."""
POSTPONED = "postponed"
"""Verdict on a delivery that did not fit into its group and moves to the next group."""
STOPPING = "the journal is full and the receiver is stopping; retry in a few seconds"
STORE_GONE = "the receiver is stopping before the delivery is stored; retry in a few seconds"
STALE_MAX = 3
"""Stale segments in a row after which a group is refused with a disk error."""


class Committer:
    """Group commit of deliveries, with a receipt for each."""

    def __init__(
        self,
        transcode: Transcode,
        appender: Appender,
        quarantine: Quarantine,
        metrics: Metrics,
        *,
        answer_deadline_s: float,
    ) -> None:
        self._transcode = transcode
        self._answer_deadline_s = answer_deadline_s
        self._appender = appender
        self._quarantine = quarantine
        self._metrics = metrics
        self._queue = DeliveryQueue()
        self._hold = Hold()
        self._store_waiters = StoreWaiters()
        self._spans: dict[str, SpanCounts] = {}
        self._core_thread = WorkerThread("core")
        self._disk_thread = WorkerThread("disk")
        self._sealer_thread = WorkerThread("sealer")
        self._seal_future: asyncio.Future[None] | None = None
        self._commit_rate = CommitRate()
        self._groups_in_flight = 0
        self._sealing = asyncio.Lock()  # no group chooses a segment while it is retired
        self._closing = False
        self._is_store_gone = False
        self._group_bytes_max = GROUP_BYTES_MAX
        """Reduced after a record that did not fit, because some of its deliveries may fit alone."""

    def use(self, transcode: Transcode, answer_deadline_s: float) -> None:
        """Apply new settings to later groups and deliveries."""
        self._transcode = transcode
        self._answer_deadline_s = answer_deadline_s

    def refuse_if_overloaded(self) -> None:
        """Raise `Overloaded` if a delivery that arrives now would be answered too late."""
        self._commit_rate.refuse_if_overloaded(self._queue.weight_bytes, self._answer_deadline_s)

    def submit(
        self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim, on_receipt: ReceiptCallback
    ) -> PendingDelivery:
        """Queue one delivery; `on_receipt` is called once. Raises `Overloaded` or `ShuttingDown`."""
        deadline, until_stored = self._deadline(received_at), drain.acknowledge == "store"
        pending = PendingDelivery(delivery, claim, on_receipt, deadline, until_stored=until_stored)
        self._queue.join(pending)
        return pending

    def submit_batch(
        self, batch: FastBatch, received_at: float, claim: Claim, on_accepted: OnAccepted, parts: Parts
    ) -> None:
        """Queue a batch, whose receipts wait for the disk only. Raises `Overloaded` or `ShuttingDown`."""
        deadline = self._deadline(received_at)
        self._queue.join(PendingBatch(batch, claim, on_accepted, parts, deadline))

    def call_before_group(self, collect: Callable[[], None]) -> None:
        """Call a function that submits batches before the next group is taken, or after `TICK_S`."""
        self._queue.announce(collect)

    def _deadline(self, received_at: float) -> float:
        """Return the deadline of a receipt. Raises `Overloaded` or `ShuttingDown`."""
        # Checked again, because the body may have taken long to arrive since it was admitted.
        self._commit_rate.refuse_if_overloaded(self._queue.weight_bytes, self._answer_deadline_s)
        if self._closing:
            raise ShuttingDown("the receiver is stopping; retry in a few seconds")
        return received_at + self._answer_deadline_s

    async def run(self) -> None:
        """Commit groups until closed and every queued delivery is answered."""
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self._watch()), tasks.create_task(self._seal_by_age())]
            await self._commit_groups()
            for task in background:
                task.cancel()

    async def seal(self) -> None:
        """Seal the open segment, so that the writer can insert everything acknowledged so far."""
        await self._sealer_thread.submit(self._appender.seal)

    def stop_waiting(self) -> None:
        """Refuse deliveries that wait for space or for the store, because the store has stopped."""
        self._is_store_gone = True

    async def close(self, running: asyncio.Future[None]) -> None:
        """Answer every queued delivery, close the journal and stop the threads."""
        self._closing = True
        self._queue.wake()
        await running  # ends when every queued delivery is answered
        await self._disk_thread.submit(self._appender.close)
        for thread in (self._core_thread, self._disk_thread, self._sealer_thread):
            thread.stop()

    async def _commit_groups(self) -> None:
        appending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        appending.set_result(None)
        while True:
            await self._queue.wait_for_arrival()
            self._queue.collect()
            await self._wait_for_room()
            is_small = self._queue.weight_bytes < EARLY_BYTES_MIN
            if is_small:
                await appending
                self._queue.collect()
            pending = self._queue.take_group(min(self._commit_rate.group_bytes_max, self._group_bytes_max))
            if pending:
                group = await self._transcoded(pending, with_append=is_small)
                await appending
                if is_small:
                    # Its append has ended, too: a task would only delay the receipts by a loop iteration.
                    await self._write_group(group)
                else:
                    # One append at a time, in the order in which the segments were chosen.
                    appending = asyncio.ensure_future(self._write_group(group))
            elif self._closing:
                await appending
                # The last append may have held deliveries.
                self._hold.refuse_all(STOPPING)
                if not self._queue:
                    return

    async def _wait_for_room(self) -> None:
        """Wait until the journal accepts records, if deliveries are queued. Refuse them when stopping."""
        while self._queue and (reason := self._appender.full_reason()) is not None:
            if self._closing or self._is_store_gone:
                refuse(self._queue.take_group(GROUP_BYTES_MAX), JournalFull(reason))
                continue
            limited.warning("hold", "journal accepts no records; requests are held", error=reason)
            await asyncio.sleep(TICK_S)  # not an event: another process frees the space

    async def _transcoded(self, pending: Sequence[Pending], *, with_append: bool) -> Group:
        """Choose a segment and transcode the deliveries into one record for it."""
        weight_bytes = sum([member.weight_bytes for member in pending])
        self._commit_rate.bytes_in_progress += weight_bytes
        async with self._sealing:
            self._groups_in_flight += 1  # before the lock is released, see `_seal_by_age`
            group = Group(pending, weight_bytes, self._choose(pending))
        decided_count = await self._transcode_for(group, group.segment, with_append=with_append)
        self._metrics.add("commit_deliveries", decided_count)
        return group

    def _choose(self, pending: Sequence[Pending]) -> SegmentId:
        return self._appender.choose(is_awaited=any(member.until_stored for member in pending))

    async def _transcode_for(self, group: Group, segment: SegmentId, *, with_append: bool = False) -> int:
        """Transcode a group for a segment. Returns the number of deliveries that were not postponed."""
        group.segment, pending = segment, group.pending
        deliveries = [member.delivery for member in pending]
        try:
            made = await self._core_thread.submit(
                self._transcode_and_append, self._transcode, deliveries, segment, with_append
            )
        except Exception as error:  # noqa: BLE001 - the core returns errors of bodies as outcomes; an exception is a bug
            limited.error("transcode", "group cannot be transcoded", error=type(error).__name__)
            _refuse_all(group, CoreCrashed("the decoder failed; retry later"))
            return 0
        group.commit, took_s, group.append_attempt = made
        self._metrics.observe("commit_seconds", took_s)
        self._commit_rate.observe(sum([member.weight_bytes for member in pending]), took_s)
        group.outcomes = outcomes = group.commit.outcomes
        is_plain = [outcome.is_plain for outcome in outcomes]
        if all(is_plain):
            return len(outcomes)
        return len(outcomes) - await self._settle_refused(group, outcomes)

    def _transcode_and_append(
        self,
        transcode: Transcode,
        deliveries: Sequence[Delivery | FastBatch],
        segment: SegmentId,
        with_append: bool,  # noqa: FBT001 - passed on by position
    ) -> tuple[Commit, float, AppendAttempt | None]:
        """Transcode a group; append a small one on the same thread: a thread switch costs as much."""
        begun_at = time.perf_counter()
        done = transcode(deliveries, segment)
        took_s = time.perf_counter() - begun_at
        return done, took_s, self._append(segment, done) if with_append and done.record else None

    def _append(self, segment: SegmentId, done: Commit) -> AppendAttempt:
        begun_at = time.perf_counter()
        try:
            self._appender.append(segment, done.record, done.rows)
        except (StaleSegment, Unavailable) as error:
            return AppendAttempt(0.0, error)
        return AppendAttempt(time.perf_counter() - begun_at)

    async def _settle_refused(self, group: Group, outcomes: Sequence[Outcome]) -> int:
        """Answer refused deliveries and requeue postponed deliveries. Return how many were postponed."""
        accepted, postponed = [], []
        for pending, outcome in zip(group.split(), outcomes, strict=True):
            verdict = outcome.verdict
            if verdict == "accepted":
                accepted.append((pending, outcome))
            elif verdict == POSTPONED:
                postponed.append(pending)
            else:
                refused = refusal(outcome)
                if refused is None:
                    refused = await self._disk_thread.submit(self._quarantine.keep, pending.delivery)
                pending.resolve(refused)  # at once: it need not wait for the rest of its group
                pending.release_body()
        self._queue.requeue(postponed)
        group.pending = [pending for pending, _ in accepted]
        group.outcomes = [outcome for _, outcome in accepted]
        return len(postponed)

    async def _write_group(self, group: Group) -> None:
        """Write the record of a group, pass on the receipts and release the bodies."""
        try:
            await self._append_record(group)
        except JournalFull as error:
            self._hold_group(group, error)
        except Unavailable as error:
            limited.error("append", "group cannot be written to the journal", error=str(error))
            _refuse_all(group, error)
        else:
            self._group_bytes_max = GROUP_BYTES_MAX
            self._settle(group)
        finally:
            self._groups_in_flight -= 1
            self._commit_rate.bytes_in_progress -= group.weight_bytes

    def _hold_group(self, group: Group, reason: JournalFull) -> None:
        """Hold the deliveries of a record that did not fit; they are transcoded again for another segment."""
        if self._closing or self._is_store_gone or group.commit is None:
            _refuse_all(group, reason)
            return
        self._hold.add(group.split(), len(group.commit.record), str(reason))
        self._group_bytes_max = group.weight_bytes // 2  # a smaller record may fit
        group.pending, group.outcomes, group.commit = (), (), None

    async def _append_record(self, group: Group) -> None:
        """Append the record; if its segment has been closed, transcode it again for the next segment."""
        for _ in range(STALE_MAX):
            if group.commit is None or not group.commit.record:
                return
            append_attempt = group.append_attempt
            if append_attempt is None:
                append_attempt = await self._disk_thread.submit(self._append, group.segment, group.commit)
            if append_attempt.error is None:
                self._metrics.observe("fsync_seconds", append_attempt.seconds)
                self._seal_retired_segments()
                return
            if isinstance(append_attempt.error, Unavailable):
                raise append_attempt.error
            await self._transcode_for(group, self._choose(group.pending))
        raise DiskTrouble(f"the journal closed {STALE_MAX} segments in a row; expected one to stay open")

    def _settle(self, group: Group) -> None:
        """Count the spans on disk, answer the deliveries or register store waiters, release the bodies."""
        if group.commit is None:
            return
        for drain, *counts in group.commit.spans:
            spans = self._spans.get(drain)
            if spans is None:
                spans = self._spans[drain] = SpanCounts(self._metrics, drain)
                log_first_delivery(group.split(), drain, span_count=counts[0])
            spans.add(*counts)
        for reason, count in group.commit.reasons:
            self._metrics.add("span_notes", count, reason=reason)
        record = group.commit.record
        digests: Sequence[str] = ()
        # Scanning the record has a cost, and only `acknowledge = "store"` needs the digests.
        if record and any(pending.until_stored for pending in group.pending):
            digests = delivery_digests(record, len(group.outcomes))
        index = 0
        for pending in group.pending:
            outcome = group.outcomes[index]
            if digests and isinstance(pending, PendingDelivery) and pending.until_stored:
                pending.is_written = True
                self._store_waiters.join(group.segment, pending, outcome, digests[index])
            else:
                # Of a batch all outcomes are plain, or `_settle_refused` would have split it.
                pending.resolve(outcome)
            index += pending.count
            # The body is on disk: waiting for the store needs its digest only.
            pending.release_body()

    async def _watch(self) -> None:
        """Enforce deadlines, retry held groups and answer deliveries whose segment is stored."""
        while True:
            await asyncio.sleep(TICK_S)
            # Also while no group can be taken, so that they meet their deadlines.
            self._queue.collect()
            now, full_reason = asyncio.get_running_loop().time(), self._appender.full_reason
            self._hold.release(full_reason, self._queue, now)
            self._queue.expire(now, full_reason())
            for segment in self._store_waiters.segments():
                if self._appender.is_stored(segment):
                    self._store_waiters.settle(segment, self._appender.outcome_of(segment))
            if self._is_store_gone:
                self._hold.refuse_all(STOPPING)
                self._store_waiters.refuse_all(STORE_GONE)

    async def _seal_by_age(self) -> None:
        """Seal old segments, but not while a group is being written to the open segment."""
        while True:
            await asyncio.sleep(TICK_S)
            async with self._sealing:
                if not self._groups_in_flight:
                    await self._disk_thread.submit(self._appender.retire_if_due)
            self._seal_retired_segments()

    def _seal_retired_segments(self) -> None:
        """Seal closed segments on the sealer thread, so that no receipt waits for it."""
        if not self._appender.has_retired or (self._seal_future and not self._seal_future.done()):
            return
        if self._seal_future:
            self._seal_future.result()  # raises an unexpected error, which ends the process
        self._seal_future = self._sealer_thread.submit(self._appender.seal_retired)


def _refuse_all(group: Group, reason: ReceiverError) -> None:
    refuse(group.pending, reason)
    group.pending, group.outcomes, group.commit = (), (), None
