"""Whole deliveries with a known head: each gets its own verdict, though much is worked out for all."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from receiver.settings import Drain, Limits
from tests.support.intake import (
    SPAN_BODY,
    AppenderDouble,
    Connection,
    CoreDouble,
    Intake,
    OutcomeDouble,
    on_uvloop,
    request,
    running,
    until,
)

KNOWN = "Bearer t"
TOKEN = Drain(name="d", tokens=("t",))
SIGNED = Drain(name="signed", signature_header="x-signature", signature_secrets=("secret",))
HUNDRED = SPAN_BODY.ljust(100, b".")


async def warm(intake: Intake, **headers: str) -> Connection:
    """Open a connection whose next delivery may take the shortcut."""
    connection = await intake.connect()
    connection.writer.write(request(SPAN_BODY, "/v1/traces", "POST", **headers))
    assert (await connection.answer()).status == 200
    return connection


@on_uvloop
async def test_deliveries_of_one_turn_are_refused_only_if_memory_is_spent() -> None:
    core = CoreDouble()
    async with running(TOKEN, limits=Limits(inflight_bytes_max=350), core=core) as intake:
        connections = [await warm(intake, authorization=KNOWN) for _ in range(8)]
        await until(lambda: not intake.admission.bytes_in_flight)
        core.may_go_on.clear()
        for one in connections:
            one.writer.write(request(HUNDRED, authorization=KNOWN))
        await until(lambda: intake.counted("deliveries", "d", "503") == 5)
        core.may_go_on.set()
        statuses = [(await one.answer()).status for one in connections]
        await until(lambda: not intake.admission.bytes_in_flight)
        parsed_count = intake.server.requests_count
        for one in connections:
            await one.close()

    assert sorted(statuses) == [200] * 3 + [503] * 5
    assert parsed_count == len(connections)
    assert intake.counted("body_bytes", "d") == 8 * len(SPAN_BODY) + 3 * len(HUNDRED)


@on_uvloop
async def test_wrong_signature_is_refused_with_a_known_head() -> None:
    signature = hmac.new(b"secret", SPAN_BODY, hashlib.sha1).hexdigest()
    forged = bytes(len(SPAN_BODY))
    async with running(SIGNED) as intake:
        connection = await warm(intake, x_signature=signature)
        connection.writer.write(request(SPAN_BODY, x_signature=signature))
        again = await connection.answer()
        connection.writer.write(request(forged, x_signature=signature))
        refused = await connection.answer()
        parsed_count = intake.server.requests_count
        await connection.close()

    assert (again.status, refused.status, parsed_count) == (200, 403, 1)
    assert [one.body for one in intake.core.deliveries] == [SPAN_BODY, SPAN_BODY]
    assert intake.counted("deliveries", "signed", "403") == 1


@on_uvloop
async def test_partial_success_on_the_fast_path_has_the_header_of_its_path() -> None:
    told = OutcomeDouble(rejected=2, message="two spans have no id")
    drain = Drain(name="d", tokens=("t",), verify_header="proof")
    async with running(drain, core=CoreDouble(special={HUNDRED: told})) as intake:
        connection = await warm(intake, authorization=KNOWN)
        connection.writer.write(request(authorization=KNOWN))
        plain = await connection.answer()
        connection.writer.write(request(HUNDRED, authorization=KNOWN))
        partly = await connection.answer()
        await connection.close()

    assert (plain.status, plain.body, plain.headers["x-vercel-verify"]) == (200, b"", "proof")
    assert (partly.status, partly.headers["x-vercel-verify"]) == (200, "proof")
    assert b"two spans have no id" in partly.body
    assert intake.counted("spans_rejected", "d") == 2


@on_uvloop
async def test_full_journal_is_detected_in_the_next_turn_of_the_event_loop() -> None:
    appender = AppenderDouble()
    async with running(TOKEN, appender=appender, limits=Limits(answer_deadline_s=0.5)) as intake:
        connection = await warm(intake, authorization=KNOWN)
        statuses = []
        for full in ("full", None, "full"):
            appender.full = full
            connection.writer.write(request(authorization=KNOWN))
            statuses.append((await connection.answer()).status)
        await connection.close()

    assert statuses == [503, 200, 503]


@on_uvloop
async def test_unexpected_error_on_the_fast_path_is_answered() -> None:
    def broken() -> int:
        raise ZeroDivisionError

    async with running(TOKEN) as intake:
        connection = await warm(intake, authorization=KNOWN)
        await asyncio.sleep(0)
        intake.delivery_handler.fast_path._now_ns = broken  # noqa: SLF001 - nothing that is foreseen raises
        connection.writer.write(request(authorization=KNOWN))
        answer = await connection.answer()
        await connection.close()

    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
