"""Tests of pending deliveries, their queue, and the worker thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from receiver.errors import DeadlinePassed
from receiver.intake import pending
from receiver.intake.admission import Admission, Budget
from receiver.intake.pending import StoreWaiters
from receiver.intake.worker_thread import WorkerThread
from receiver.journal.writer_notes import STORED
from receiver.model import ContentKind, Delivery, SegmentId
from tests.support.committer import claim_of
from tests.support.intake import OutcomeDouble, on_uvloop

TIMEOUT_S = 30
"""Longer than any test waits for an expected event."""


def delivery(body: bytes, *encodings: str) -> Delivery:
    return Delivery("d", body, ContentKind.PROTOBUF, encodings, 0, strict=False, body_bytes_max=1_000)


def pending_delivery(
    queued: Delivery, on_receipt: pending.ReceiptCallback, deadline: float = 0
) -> pending.PendingDelivery:
    return pending.PendingDelivery(queued, claim_of(4), on_receipt, deadline, until_stored=False)


def test_compressed_body_is_weighted_by_its_decompressed_size() -> None:
    receipts: list[object] = []

    plain, compressed = (
        pending_delivery(queued, receipts.append) for queued in (delivery(b"abcd"), delivery(b"abcd", "gzip"))
    )

    assert (plain.weight_bytes, compressed.weight_bytes) == (4, 64)


def test_receipt_is_passed_on_once_and_not_after_abandoning() -> None:
    receipts: list[object] = []
    waiting, abandoned = (pending_delivery(delivery(b"abcd"), receipts.append) for _ in range(2))
    first, second = OutcomeDouble(), OutcomeDouble()

    waiting.resolve(first)
    waiting.resolve(second)
    abandoned.abandon()
    abandoned.resolve(second)

    assert receipts == [first]


@on_uvloop
async def test_released_body_is_not_kept_while_waiting_for_the_store() -> None:
    queue, receipts = pending.DeliveryQueue(), list[object]()
    queued = pending_delivery(delivery(b"abcd"), receipts.append, deadline=2)
    queue.join(queued)

    group = queue.take_group(pending.GROUP_BYTES_MAX)
    group[0].release_body()
    queue.expire(now=1)
    in_time = list(receipts)
    queue.expire(now=3)

    assert group == [queued]
    assert queued.delivery.body == b""
    assert in_time == []
    assert [type(verdict) for verdict in receipts] == [DeadlinePassed]


@on_uvloop
async def test_worker_thread_runs_calls_in_order_and_continues_after_a_failure() -> None:
    thread = WorkerThread("test")
    results: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    thread.submit(results.append, 1)
    with pytest.raises(ValueError, match="no"):
        await thread.submit(fail)
    thread.submit(results.append, 2)
    worker = await thread.submit(threading.get_ident)
    thread.stop()

    assert results == [1, 2]
    assert worker != threading.get_ident()


@on_uvloop
async def test_cancelled_call_of_a_worker_thread_is_harmless() -> None:
    thread, may_continue, loop_errors = WorkerThread("test"), threading.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, verdicts: loop_errors.append(verdicts))
    cancelled = thread.submit(may_continue.wait)
    cancelled.cancel()
    may_continue.set()

    assert await thread.submit(lambda: "next") == "next"
    await asyncio.sleep(0)
    thread.stop()
    assert loop_errors == []


def test_worker_thread_outlives_an_event_loop() -> None:
    thread, may_continue = WorkerThread("test"), threading.Event()

    async def start_call() -> None:
        thread.submit(may_continue.wait, TIMEOUT_S)

    async def call_again() -> int:
        return await asyncio.wait_for(thread.submit(int, "7"), TIMEOUT_S)

    asyncio.run(start_call())
    may_continue.set()

    assert asyncio.run(call_again()) == 7
    thread.stop()


def test_claim_keeps_its_bytes_until_it_is_released() -> None:
    admission = Admission(Budget(100, 0), lambda: None)
    claim = admission.admit(50, is_known=True)

    claim.grow_to(10)
    held_bytes = admission.bytes_in_flight
    claim.release()

    assert (held_bytes, admission.bytes_in_flight) == (50, 0)


class QueueUnderTest:
    """Queue of named deliveries that records the verdict of each."""

    def __init__(self) -> None:
        self.queue = pending.DeliveryQueue()
        self.admission = Admission(Budget(1_000, 0), lambda: None)
        self.verdicts: list[tuple[str, object]] = []

    def join(self, name: str, *, deadline: float = 100) -> pending.PendingDelivery:
        """Add a delivery to the queue, which then holds its only claim."""
        claim = self.admission.admit(1, is_known=True)
        queued = pending.PendingDelivery(
            delivery(name.encode()),
            claim,
            lambda verdict: self.verdicts.append((name, verdict)),
            deadline,
            until_stored=False,
        )
        self.queue.join(queued)
        claim.release()
        return queued

    def take(self) -> str:
        """Take a group, and return the names of its deliveries."""
        return "".join(
            queued.split()[0].delivery.body.decode()
            for queued in self.queue.take_group(pending.GROUP_BYTES_MAX)
        )


async def test_answered_delivery_joins_no_group_and_holds_no_memory() -> None:
    queue = QueueUnderTest()
    for queued in [queue.join(name) for name in "abcd"][1::2]:
        queued.resolve(OutcomeDouble())

    assert queue.take() == "ac"
    assert queue.admission.bytes_in_flight == 2


async def test_deliveries_that_are_announced_while_a_group_is_taken_wake_the_committer() -> None:
    queue = QueueUnderTest()
    queue.join("a")
    queue.queue.announce(lambda: None)

    queue.take()

    await asyncio.wait_for(queue.queue.wait_for_arrival(), TIMEOUT_S)


async def test_deadline_is_enforced_behind_answered_deliveries() -> None:
    queue = QueueUnderTest()
    queue.join("a").resolve(OutcomeDouble())
    queue.join("b", deadline=10)
    queue.join("c", deadline=20)

    queue.queue.expire(now=15)

    assert [(name, type(verdicts)) for name, verdicts in queue.verdicts] == [
        ("a", OutcomeDouble),
        ("b", DeadlinePassed),
    ]
    assert (len(queue.queue), queue.admission.bytes_in_flight) == (1, 1)


async def test_requeued_deliveries_are_first_in_order_and_keep_their_weight() -> None:
    queue = QueueUnderTest()
    for name in "ab":
        queue.join(name)
    group = queue.queue.take_group(pending.GROUP_BYTES_MAX)
    weight_bytes = queue.queue.weight_bytes
    queue.join("c")

    queue.queue.requeue([queued.split()[0] for queued in group])

    assert (weight_bytes, queue.queue.weight_bytes, queue.admission.bytes_in_flight) == (0, 3, 3)
    assert queue.take() == "abc"


def test_deadline_error_of_a_written_delivery_says_that_only_the_store_is_late() -> None:
    queue = QueueUnderTest()
    written, queued = queue.join("written", deadline=1), queue.join("queued", deadline=1)
    queue.take()
    written.is_written = True

    queue.queue.expire(now=2)

    errors = [str(verdict).partition(",")[0].partition(";")[0] for _, verdict in queue.verdicts]
    assert errors == ["the delivery is on disk", "the delivery was not written to disk in time"]
    assert not queued.is_written


def test_all_waiters_of_a_segment_are_answered() -> None:
    store_waiters, verdicts = StoreWaiters(), list[object]()
    outcomes = [OutcomeDouble(stored=count) for count in range(3)]
    for seq, outcome in zip((1, 1, 2), outcomes, strict=True):
        queued = pending.PendingDelivery(delivery(b"a"), claim_of(1), verdicts.append, 0, until_stored=True)
        store_waiters.join(SegmentId(7, seq), queued, outcome)
    queued.abandon()

    polled = store_waiters.segments()
    store_waiters.settle(SegmentId(7, 1), STORED)

    assert polled == [SegmentId(7, 1)]
    assert verdicts == outcomes[:2]
    assert store_waiters.segments() == []
