"""Tests of reading a body and claiming its memory, without a connection."""

from __future__ import annotations

import asyncio
import random

import pytest

from receiver.errors import BodyTooLarge, MemoryBudgetSpent
from receiver.intake.admission import Admission, Budget, Claim
from receiver.intake.connections import body
from receiver.intake.connections.body import ArrivingBody, BodyTooSlow, SenderGone, SpeedFloor
from receiver.settings import KIB
from tests.support.clock import Clock
from tests.support.committer import claim_of

FLOOR = SpeedFloor(grace_s=30, bytes_per_s_min=1, total_s=30)


def arrived(content: bytes) -> ArrivingBody:
    payload = ArrivingBody(len(content))
    payload.feed(content)
    return payload


async def read(payload: ArrivingBody, claim: Claim | None = None, *, bytes_max: int = 100) -> bytes:
    return await body.read(payload, claim or claim_of(0), bytes_max=bytes_max, floor=FLOOR)


async def test_complete_body_is_checked_against_its_limit() -> None:
    assert await read(arrived(b"four"), bytes_max=4) == b"four"

    with pytest.raises(BodyTooLarge):
        await read(arrived(b"fives"), bytes_max=4)


async def test_complete_body_is_checked_against_the_memory_budget() -> None:
    claim = Admission(Budget(4, 0), lambda: None).admit(0, is_known=True)

    with pytest.raises(MemoryBudgetSpent):
        await read(arrived(b"fives"), claim)


async def test_connection_lost_within_a_body_raises_sender_gone() -> None:
    payload = ArrivingBody(10)
    payload.feed(b"half")
    reading = asyncio.create_task(read(payload))
    await asyncio.sleep(0)
    payload.set_exception(ConnectionResetError("lost"))

    with pytest.raises(SenderGone):
        await reading


async def test_reader_is_woken_at_the_end_or_when_the_claim_is_exceeded() -> None:
    async def woken_at(length_bytes: int, claimed_bytes: int) -> list[int]:
        payload, woken = ArrivingBody(length_bytes, claimed_bytes), dict[int, bytes]()
        content = random.randbytes(length_bytes)

        async def read_pieces() -> None:
            while piece := await payload.readany():
                woken[payload.total_bytes] = woken.get(payload.total_bytes, b"") + piece

        reading = asyncio.create_task(read_pieces())
        for first in range(0, length_bytes, 16 * KIB):
            await asyncio.sleep(0)
            payload.feed(content[first : first + 16 * KIB])
        await reading
        assert b"".join(woken.values()) == content
        return list(woken)

    assert await woken_at(200 * KIB, 0) == [64 * KIB, 128 * KIB, 192 * KIB, 200 * KIB]
    assert await woken_at(200 * KIB, 100 * KIB) == [112 * KIB, 176 * KIB, 200 * KIB]
    assert await woken_at(200 * KIB, 300 * KIB) == [200 * KIB]


async def test_body_below_the_minimum_speed_is_too_slow() -> None:
    floor = SpeedFloor(grace_s=0.05, bytes_per_s_min=100, total_s=30)
    payload = ArrivingBody(100)
    started_at = asyncio.get_running_loop().time()
    reading = asyncio.create_task(body.read(payload, claim_of(0), bytes_max=100, floor=floor))
    await asyncio.sleep(0)
    payload.feed(b"x" * 30)

    with pytest.raises(BodyTooSlow):
        await reading
    assert asyncio.get_running_loop().time() - started_at >= floor.allowed_s(30)


async def test_body_that_ends_exactly_at_its_deadline_is_accepted() -> None:
    floor = SpeedFloor(grace_s=0, bytes_per_s_min=1_000, total_s=0)
    payload = ArrivingBody(4)
    reading = asyncio.create_task(body.read(payload, claim_of(0), bytes_max=100, floor=floor))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(
        payload.feed, b"four"
    )  # in the event loop iteration in which the time is over

    assert await reading == b"four"


async def test_refused_body_is_not_ended_again_by_its_timer() -> None:
    raised = list[BaseException]()

    class RecordingBody(ArrivingBody):
        def set_exception(self, exc: BaseException) -> None:
            raised.append(exc)

    payload = RecordingBody(200 * KIB)
    payload.feed(bytes(100 * KIB))

    with pytest.raises(BodyTooLarge):
        await body.read(payload, claim_of(0), bytes_max=100, floor=SpeedFloor(0, 1_000, 0))
    await asyncio.sleep(0.01)
    assert raised == []


def test_body_never_dismisses_itself() -> None:
    clock, dismissed = Clock(), list[str]()
    admission = Admission(Budget(1_000, 100), lambda: None, now=clock)
    claim = admission.admit(60, is_known=False)
    claim.on_dismissed = lambda: dismissed.append("go")
    clock.now_s += 100

    with pytest.raises(MemoryBudgetSpent):
        claim.grow_to(150)

    assert (dismissed, admission.unknown_bytes) == ([], 60)
