"""What waits for a receipt, and the thread that works for the loop meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from receiver.errors import DeadlinePassed
from receiver.intake import waiting
from receiver.intake.admission import Admission, Budget
from receiver.intake.hand import Hand
from receiver.intake.store_line import StoreLine
from receiver.journal.outcomes import STORED
from receiver.model import ContentKind, Delivery, SegmentId
from tests.intake_support import OutcomeDouble, claim_of, on_uvloop

AGES_S = 30
"""Longer than any test may wait for what must come."""


def delivery(body: bytes, *encodings: str) -> Delivery:
    return Delivery("d", body, ContentKind.PROTOBUF, encodings, 0, strict=False, body_bytes_max=1_000)


def place(one: Delivery, give: waiting.Give, deadline: float = 0) -> waiting.Waiting:
    return waiting.Waiting(one, claim_of(4), give, deadline, until_stored=False)


def test_a_compressed_body_counts_for_what_it_may_become() -> None:
    given: list[object] = []

    plain, packed = (place(one, given.append) for one in (delivery(b"abcd"), delivery(b"abcd", "gzip")))

    assert (plain.weight_bytes, packed.weight_bytes) == (4, 64)


def test_a_receipt_is_given_once_and_not_to_who_has_left() -> None:
    given: list[object] = []
    waits, has_left = (place(delivery(b"abcd"), given.append) for _ in range(2))
    first, second = OutcomeDouble(), OutcomeDouble()

    waits.give(first)
    waits.give(second)
    has_left.forget()
    has_left.give(second)

    assert given == [first]


@on_uvloop
async def test_a_body_that_was_let_go_of_is_not_held_by_who_waits_for_the_store() -> None:
    line, given = waiting.Line(), list[object]()
    one = place(delivery(b"abcd"), given.append, deadline=2)
    line.join(one)

    group = line.take_group(waiting.GROUP_BYTES_MAX)
    group[0].let_go()
    line.expire(now=1)
    in_time = list(given)
    line.expire(now=3)

    assert group == [one]
    assert one.delivery.body == b""
    assert in_time == []
    assert [type(verdict) for verdict in given] == [DeadlinePassed]


@on_uvloop
async def test_a_hand_does_one_thing_after_another_and_goes_on_after_a_failure() -> None:
    hand = Hand("test")
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    hand.do(done.append, 1)
    with pytest.raises(ValueError, match="no"):
        await hand.do(fail)
    hand.do(done.append, 2)
    worker = await hand.do(threading.get_ident)
    hand.rest()

    assert done == [1, 2]
    assert worker != threading.get_ident()


@on_uvloop
async def test_what_a_hand_did_for_who_waits_no_longer_disturbs_nobody() -> None:
    hand, may_go_on, disturbed = Hand("test"), threading.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, told: disturbed.append(told))
    left = hand.do(may_go_on.wait)
    left.cancel()
    may_go_on.set()

    assert await hand.do(lambda: "next") == "next"
    await asyncio.sleep(0)
    hand.rest()
    assert disturbed == []


def test_a_hand_outlives_the_loop_that_asked() -> None:
    hand, may_go_on = Hand("test"), threading.Event()

    async def ask() -> None:
        hand.do(may_go_on.wait, AGES_S)

    async def ask_again() -> int:
        return await asyncio.wait_for(hand.do(int, "7"), AGES_S)

    asyncio.run(ask())
    may_go_on.set()

    assert asyncio.run(ask_again()) == 7
    hand.rest()


def test_a_claim_holds_what_it_once_held_until_it_is_let_go() -> None:
    admission = Admission(Budget(100, 0), lambda: None)
    claim = admission.admit(50, is_known=True)

    claim.grow_to(10)
    held_bytes = admission.bytes_in_flight
    claim.release()

    assert (held_bytes, admission.bytes_in_flight) == (50, 0)


class InLine:
    """Deliveries, one a name, and what each was told."""

    def __init__(self) -> None:
        self.line = waiting.Line()
        self.admission = Admission(Budget(1_000, 0), lambda: None)
        self.told: list[tuple[str, object]] = []

    def join(self, name: str, *, deadline: float = 100) -> waiting.Waiting:
        """Stand in line; the claim is the line's alone."""
        claim = self.admission.admit(1, is_known=True)
        one = waiting.Waiting(
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
        return "".join(one.delivery.body.decode() for one in self.line.take_group(waiting.GROUP_BYTES_MAX))


async def test_whoever_was_answered_is_not_taken_into_a_group_and_holds_no_memory() -> None:
    waits = InLine()
    for one in [waits.join(name) for name in "abcd"][1::2]:
        one.give(OutcomeDouble())

    assert waits.take() == "ac"
    assert waits.admission.bytes_in_flight == 2


async def test_a_deadline_is_held_whatever_those_before_were_told() -> None:
    waits = InLine()
    waits.join("a").give(OutcomeDouble())
    waits.join("b", deadline=10)
    waits.join("c", deadline=20)

    waits.line.expire(now=15)

    assert [(name, type(told)) for name, told in waits.told] == [("a", OutcomeDouble), ("b", DeadlinePassed)]
    assert (len(waits.line), waits.admission.bytes_in_flight) == (1, 1)


async def test_who_is_put_back_stands_first_in_order_and_still_counts() -> None:
    waits = InLine()
    for name in "ab":
        waits.join(name)
    group = waits.line.take_group(waiting.GROUP_BYTES_MAX)
    weight_bytes = waits.line.weight_bytes
    waits.join("c")

    waits.line.put_back(group)

    assert (weight_bytes, waits.line.weight_bytes, waits.admission.bytes_in_flight) == (0, 3, 3)
    assert waits.take() == "abc"


def test_all_who_wait_for_a_segment_are_told_and_a_segment_nobody_waits_for_is_not_asked_for() -> None:
    store_line, told = StoreLine(), list[object]()
    outcomes = [OutcomeDouble(stored=count) for count in range(3)]
    for seq, outcome in zip((1, 1, 2), outcomes, strict=True):
        one = waiting.Waiting(delivery(b"a"), claim_of(1), told.append, 0, until_stored=True)
        store_line.join(SegmentId(7, seq), one, outcome)
    one.forget()

    asked_for = store_line.segments()
    store_line.settle(SegmentId(7, 1), STORED)

    assert asked_for == [SegmentId(7, 1)]
    assert told == outcomes[:2]
    assert store_line.segments() == []
