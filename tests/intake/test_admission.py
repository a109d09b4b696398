"""Tests of admission: the memory budget for bodies, and the share that unauthenticated senders may use."""

from __future__ import annotations

import asyncio
import hmac
import math
from functools import partial

import pytest

from receiver.intake import admission, committer
from receiver.intake.admission import Admission, Budget
from receiver.settings import KIB, MIB, Drain, Limits
from tests.support.intake import SPAN_BODY, AppenderDouble, CoreDouble, on_uvloop, request, running, until

SIGNED = Drain(name="d", signature_header="x-s", signature_secrets=("s",))
SIGNATURE = hmac.digest(b"s", SPAN_BODY, "sha1").hex()


def chunked(**headers: str) -> bytes:
    return request(b"", content_length="", transfer_encoding="chunked", **headers)


@on_uvloop
async def test_body_over_the_memory_budget_gets_503() -> None:
    core = CoreDouble.paused()
    async with running(limits=Limits(inflight_bytes_max=10), core=core) as intake:
        first = asyncio.create_task(intake.post())
        await asyncio.to_thread(core.running.wait)
        second = await intake.post()
        third = await intake.exchange(chunked() + b"4\r\n\nabc\r\n0\r\n\r\n")
        core.may_continue.set()

        assert (await first).status == 200
        assert [answer.status for answer in (second, third)] == [503, 503]
        assert second.headers["retry-after"] == "2"
        assert intake.admission.bytes_in_flight == 0
        assert (await intake.post()).status == 200


@on_uvloop
async def test_body_in_the_committer_stays_claimed_after_its_sender_got_503(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committer, "EARLY_BYTES_MIN", 0)
    core, appender = CoreDouble(), AppenderDouble()
    appender.may_continue.clear()
    limits = Limits(answer_deadline_s=0.1, inflight_bytes_max=2 * len(SPAN_BODY))
    async with running(limits=limits, core=core, appender=appender) as intake:
        stalled = [await intake.post(), await intake.post()]
        refused = await intake.post()
        held_bytes = intake.admission.bytes_in_flight
        appender.may_continue.set()
        await until(lambda: not intake.admission.bytes_in_flight)
        accepted = await intake.post()

    assert [answer.status for answer in (*stalled, refused)] == [503, 503, 503]
    assert b"bodies in flight" in refused.body
    assert held_bytes == 2 * len(SPAN_BODY)
    assert accepted.status == 200


@on_uvloop
async def test_body_that_expires_in_the_queue_is_freed() -> None:
    core = CoreDouble.paused()
    async with running(limits=Limits(answer_deadline_s=0.1), core=core) as intake:
        decoding = asyncio.create_task(intake.post())
        await asyncio.to_thread(core.running.wait)
        queued = [await intake.post() for _ in range(5)]
        held_bytes = intake.admission.bytes_in_flight

        assert [answer.status for answer in (await decoding, *queued)] == [503] * 6
        assert held_bytes == len(SPAN_BODY)


@on_uvloop
async def test_announced_length_claims_at_most_one_mebibyte() -> None:
    async with running(Drain(name="d", tokens=("t",))) as intake:
        connection = await intake.connect()
        connection.writer.write(
            request(b"\n", content_length=str(64 * MIB), authorization="Bearer t") + bytes(2 * MIB)
        )
        await until(lambda: intake.admission.bytes_in_flight > MIB)
        await until(lambda: intake.admission.bytes_in_flight == 2 * MIB + 1)
        await connection.close()
        await until(lambda: not intake.admission.bytes_in_flight)


@on_uvloop
async def test_unauthenticated_senders_cannot_use_up_the_memory_of_authenticated_senders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "PREEMPTION_GRACE_S", math.inf)
    signed = Drain(name="signed", path="/signed", signature_header="x-s", signature_secrets=("s",))
    known = Drain(name="known", path="/known", tokens=("t",))
    limits = Limits(inflight_bytes_max=16 * MIB, body_bytes_max=MIB)
    async with running(signed, known, limits=limits) as intake:
        stalled = [await intake.connect() for _ in range(6)]
        for connection in stalled:
            connection.writer.write(request(bytes(MIB - 1), "/signed", content_length=str(MIB), x_s="00"))
        await until(lambda: intake.counted("refusals", "memory_budget_spent") == 2)
        accepted = await intake.post(path="/known", authorization="Bearer t")
        refused = await intake.post(path="/signed", x_s="00")

    assert (accepted.status, refused.status) == (200, 503)
    assert b"unknown senders" in refused.body


@on_uvloop
async def test_oldest_incomplete_body_is_dismissed_for_a_complete_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "PREEMPTION_GRACE_S", 0.0)
    limits = Limits(inflight_bytes_max=4 * MIB, body_bytes_max=MIB)
    async with running(SIGNED, limits=limits) as intake:
        slow = await intake.connect()
        slow.writer.write(request(bytes(MIB - 1), content_length=str(MIB), x_s="00"))
        await until(lambda: intake.admission.unknown_bytes == MIB - 1)
        accepted = await intake.post(x_s=SIGNATURE)
        dismissed = await slow.answer()
        end = await slow.closed()
        await until(lambda: not intake.admission.bytes_in_flight)

    assert accepted.status == 200
    assert (dismissed.status, dismissed.headers["retry-after"], end) == (503, "2", b"")
    assert intake.admission.unknown_bytes == 0


@on_uvloop
async def test_announced_length_of_an_unauthenticated_sender_claims_little() -> None:
    limits = Limits(inflight_bytes_max=16 * MIB, body_bytes_max=MIB)
    async with running(SIGNED, limits=limits) as intake:
        announcing = [await intake.connect() for _ in range(50)]
        for connection in announcing:
            connection.writer.write(request(b"", content_length=str(MIB), x_s="00"))
        await until(lambda: intake.admission.unknown_bytes == 50 * 64 * KIB)
        accepted = await intake.post(x_s=SIGNATURE)

    assert accepted.status == 200


@on_uvloop
async def test_complete_signed_body_no_longer_counts_toward_unauthenticated_senders() -> None:
    core = CoreDouble.paused()
    limits = Limits(inflight_bytes_max=100, body_bytes_max=len(SPAN_BODY))
    async with running(SIGNED, limits=limits, core=core) as intake:
        tasks = [asyncio.create_task(intake.post(x_s=SIGNATURE)) for _ in range(10)]
        await until(lambda: intake.admission.bytes_in_flight == 10 * len(SPAN_BODY))
        core.may_continue.set()

        assert {(await task).status for task in tasks} == {200}
        assert (intake.admission.bytes_in_flight, intake.admission.unknown_bytes) == (0, 0)


@on_uvloop
async def test_chunked_body_claims_memory_as_it_grows() -> None:
    async with running(limits=Limits(inflight_bytes_max=10)) as intake:
        connection = await intake.connect()
        connection.writer.write(chunked() + b"4\r\n\nabc\r\n")
        await until(lambda: intake.admission.bytes_in_flight == 4)
        answer = await connection.exchange(b"7\r\nabcdefg\r\n")

    assert (answer.status, answer.headers["connection"]) == (503, "close")
    assert intake.admission.bytes_in_flight == 0


def test_largest_body_is_dismissed_when_it_stalls() -> None:
    now_s, dismissed = [0.0], list[str]()
    full_admission = Admission(Budget(8 * MIB, 2 * MIB), lambda: None, now=lambda: now_s[0])
    largest = full_admission.admit(0, is_known=False)
    largest.on_dismissed = partial(dismissed.append, "largest")
    largest.grow_to(2 * MIB)
    now_s[0] += 2

    full_admission.admit(MIB, is_known=False)

    assert dismissed == ["largest"]


def test_largest_body_that_makes_progress_is_not_dismissed() -> None:
    now_s, dismissed = [0.0], list[str]()
    full_admission = Admission(Budget(8 * MIB, 2 * MIB), lambda: None, now=lambda: now_s[0])
    largest, other = full_admission.admit(0, is_known=False), full_admission.admit(0, is_known=False)
    for name, claim in (("largest", largest), ("other", other)):
        claim.on_dismissed = partial(dismissed.append, name)
    largest.grow_to(MIB)
    other.grow_to(MIB - 64 * KIB)
    now_s[0] += 2
    largest.grow_by(64 * KIB)

    full_admission.admit(MIB, is_known=False)

    assert dismissed == ["other"]
