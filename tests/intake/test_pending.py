"""What waits for a receipt, and the thread that works for the loop meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from receiver.errors import DeadlinePassed
from receiver.intake import pending
from receiver.intake.admission import Admission, Budget
from receiver.intake.store_waiters import StoreWaiters
from receiver.intake.worker_thread import WorkerThread
from receiver.journal.outcomes import STORED
from receiver.model import ContentKind, Delivery, SegmentId
from tests.support.intake import OutcomeDouble, claim_of, on_uvloop

AGES_S = 30
"""Longer than any test may wait for what must come."""


def delivery(body: bytes, *encodings: str) -> Delivery:
    return Delivery("d", body, ContentKind.PROTOBUF, encodings, 0, strict=False, body_bytes_max=1_000)


def place(one: Delivery, on_receipt: pending.ReceiptCallback, deadline: float = 0) -> pending.PendingDelivery:
    return pending.PendingDelivery(one, claim_of(4), on_receipt, deadline, until_stored=False)


def test_compressed_body_is_weighted_by_its_decompressed_size() -> None:
    given: list[object] = []

    plain, packed = (place(one, given.append) for one in (delivery(b"abcd"), delivery(b"abcd", "gzip")))

    assert (plain.weight_bytes, packed.weight_bytes) == (4, 64)


def test_receipt_is_passed_on_once_and_not_after_abandoning() -> None:
    given: list[object] = []
    waits, has_left = (place(delivery(b"abcd"), given.append) for _ in range(2))
    first, second = OutcomeDouble(), OutcomeDouble()

    waits.resolve(first)
    waits.resolve(second)
    has_left.abandon()
    has_left.resolve(second)

    assert given == [first]


@on_uvloop
async def test_released_body_is_not_kept_while_waiting_for_the_store() -> None:
    line, given = pending.DeliveryQueue(), list[object]()
    one = place(delivery(b"abcd"), given.append, deadline=2)
    line.join(one)

    group = line.take_group(pending.GROUP_BYTES_MAX)
    group[0].release_body()
    line.expire(now=1)
    in_time = list(given)
    line.expire(now=3)

    assert group == [one]
    assert one.delivery.body == b""
    assert in_time == []
    assert [type(verdict) for verdict in given] == [DeadlinePassed]


@on_uvloop
async def test_worker_thread_runs_calls_in_order_and_continues_after_a_failure() -> None:
    thread = WorkerThread("test")
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    thread.submit(done.append, 1)
    with pytest.raises(ValueError, match="no"):
        await thread.submit(fail)
    thread.submit(done.append, 2)
    worker = await thread.submit(threading.get_ident)
    thread.stop()

    assert done == [1, 2]
    assert worker != threading.get_ident()


@on_uvloop
async def test_cancelled_call_of_a_worker_thread_is_harmless() -> None:
    thread, may_go_on, disturbed = WorkerThread("test"), threading.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, told: disturbed.append(told))
    left = thread.submit(may_go_on.wait)
    left.cancel()
    may_go_on.set()

    assert await thread.submit(lambda: "next") == "next"
    await asyncio.sleep(0)
    thread.stop()
    assert disturbed == []


def test_worker_thread_outlives_an_event_loop() -> None:
    thread, may_go_on = WorkerThread("test"), threading.Event()

    async def ask() -> None:
        thread.submit(may_go_on.wait, AGES_S)

    async def ask_again() -> int:
        return await asyncio.wait_for(thread.submit(int, "7"), AGES_S)

    asyncio.run(ask())
    may_go_on.set()

    assert asyncio.run(ask_again()) == 7
    thread.stop()


def test_claim_keeps_its_bytes_until_it_is_released() -> None:
    admission = Admission(Budget(100, 0), lambda: None)
    claim = admission.admit(50, is_known=True)

    claim.grow_to(10)
    held_bytes = admission.bytes_in_flight
    claim.release()

    assert (held_bytes, admission.bytes_in_flight) == (50, 0)


class InLine:
    """Deliveries, one a name, and what each was told."""

    def __init__(self) -> None:
        self.line = pending.DeliveryQueue()
        self.admission = Admission(Budget(1_000, 0), lambda: None)
        self.told: list[tuple[str, object]] = []

    def join(self, name: str, *, deadline: float = 100) -> pending.PendingDelivery:
        """Stand in line; the claim is the line's alone."""
        claim = self.admission.admit(1, is_known=True)
        one = pending.PendingDelivery(
            delivery(name.encode()),
            claim,
            lambda found: self.told.append((name, found)),
            deadline,
            until_stored=False,
        )
        self.line.join(one)
        claim.release()
        return one

    def take(self) -> str:
        """Take a group, and say who is in it."""
        return "".join(one.delivery.body.decode() for one in self.line.take_group(pending.GROUP_BYTES_MAX))


async def test_answered_delivery_joins_no_group_and_holds_no_memory() -> None:
    waits = InLine()
    for one in [waits.join(name) for name in "abcd"][1::2]:
        one.resolve(OutcomeDouble())

    assert waits.take() == "ac"
    assert waits.admission.bytes_in_flight == 2


async def test_deadline_is_enforced_behind_answered_deliveries() -> None:
    waits = InLine()
    waits.join("a").resolve(OutcomeDouble())
    waits.join("b", deadline=10)
    waits.join("c", deadline=20)

    waits.line.expire(now=15)

    assert [(name, type(told)) for name, told in waits.told] == [("a", OutcomeDouble), ("b", DeadlinePassed)]
    assert (len(waits.line), waits.admission.bytes_in_flight) == (1, 1)


async def test_requeued_deliveries_are_first_in_order_and_keep_their_weight() -> None:
    waits = InLine()
    for name in "ab":
        waits.join(name)
    group = waits.line.take_group(pending.GROUP_BYTES_MAX)
    weight_bytes = waits.line.weight_bytes
    waits.join("c")

    waits.line.requeue(group)

    assert (weight_bytes, waits.line.weight_bytes, waits.admission.bytes_in_flight) == (0, 3, 3)
    assert waits.take() == "abc"


def test_all_waiters_of_a_segment_are_answered_and_others_are_not_polled() -> None:
    store_waiters, told = StoreWaiters(), list[object]()
    outcomes = [OutcomeDouble(stored=count) for count in range(3)]
    for seq, outcome in zip((1, 1, 2), outcomes, strict=True):
        one = pending.PendingDelivery(delivery(b"a"), claim_of(1), told.append, 0, until_stored=True)
        store_waiters.join(SegmentId(7, seq), one, outcome)
    one.abandon()

    asked_for = store_waiters.segments()
    store_waiters.settle(SegmentId(7, 1), STORED)

    assert asked_for == [SegmentId(7, 1)]
    assert told == outcomes[:2]
    assert store_waiters.segments() == []
