"""What waits for a receipt, and the thread that works for the loop meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from receiver.intake import waiting
from receiver.intake.hand import Hand
from receiver.model import ContentKind, Delivery
from tests.intake_support import OutcomeDouble, claim_of, on_uvloop


def delivery(body: bytes, *encodings: str) -> Delivery:
    return Delivery("d", body, ContentKind.PROTOBUF, encodings, 0, strict=False, body_bytes_max=1_000)


def test_a_compressed_body_counts_for_what_it_may_become() -> None:
    receipt = waiting.Receipt(list[object]().append, deadline=0)

    plain, packed = (
        waiting.Waiting(one, claim_of(4), receipt, until_stored=False)
        for one in (delivery(b"abcd"), delivery(b"abcd", "gzip"))
    )

    assert (plain.weight_bytes, packed.weight_bytes) == (4, 64)


def test_a_receipt_is_given_once_and_not_to_who_has_left() -> None:
    given: list[object] = []
    receipt, forgotten = waiting.Receipt(given.append, 0), waiting.Receipt(given.append, 0)
    first, second = OutcomeDouble(), OutcomeDouble()

    receipt.give(first)
    receipt.give(second)
    forgotten.forget()
    forgotten.give(second)

    assert given == [first]


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
    hand, may_go_on = Hand("test"), threading.Event()
    left = hand.do(may_go_on.wait)
    left.cancel()
    may_go_on.set()

    assert await hand.do(lambda: "next") == "next"
    await asyncio.sleep(0)
    hand.rest()
