"""Tests of the fast path for complete requests with known heads: each delivery gets its own answer."""

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

BEARER = "Bearer t"
TOKEN = Drain(name="d", tokens=("t",))
SIGNED = Drain(name="signed", signature_header="x-signature", signature_secrets=("secret",))
HUNDRED = SPAN_BODY.ljust(100, b".")


async def open_known_connection(intake: Intake, **headers: str) -> Connection:
    """Open a connection whose next delivery takes the fast path."""
    connection = await intake.connect()
    connection.writer.write(request(SPAN_BODY, "/v1/traces", "POST", **headers))
    assert (await connection.answer()).status == 200
    return connection


@on_uvloop
async def test_simultaneous_deliveries_are_refused_only_if_memory_is_spent() -> None:
    core = CoreDouble()
    async with running(TOKEN, limits=Limits(inflight_bytes_max=350), core=core) as intake:
        connections = [await open_known_connection(intake, authorization=BEARER) for _ in range(8)]
        await until(lambda: not intake.admission.bytes_in_flight)
        core.may_continue.clear()
        for connection in connections:
            connection.writer.write(request(HUNDRED, authorization=BEARER))
        await until(lambda: intake.counted("deliveries", "d", "503") == 5)
        core.may_continue.set()
        statuses = [(await connection.answer()).status for connection in connections]
        await until(lambda: not intake.admission.bytes_in_flight)
        parsed_count = intake.server.endpoint.requests_count
        for connection in connections:
            await connection.close()

    assert sorted(statuses) == [200] * 3 + [503] * 5
    assert parsed_count == len(connections)
    assert intake.counted("body_bytes", "d") == 8 * len(SPAN_BODY) + 3 * len(HUNDRED)


@on_uvloop
async def test_wrong_signature_is_refused_with_a_known_head() -> None:
    signature = hmac.new(b"secret", SPAN_BODY, hashlib.sha1).hexdigest()
    forged = bytes(len(SPAN_BODY))
    async with running(SIGNED) as intake:
        connection = await open_known_connection(intake, x_signature=signature)
        connection.writer.write(request(SPAN_BODY, x_signature=signature))
        accepted = await connection.answer()
        connection.writer.write(request(forged, x_signature=signature))
        refused = await connection.answer()
        parsed_count = intake.server.endpoint.requests_count
        await connection.close()

    assert (accepted.status, refused.status, parsed_count) == (200, 403, 1)
    assert [delivery.body for delivery in intake.core.deliveries] == [SPAN_BODY, SPAN_BODY]
    assert intake.counted("deliveries", "signed", "403") == 1


@on_uvloop
async def test_partial_success_on_the_fast_path_has_the_header_of_its_path() -> None:
    outcome = OutcomeDouble(rejected=2, message="two spans have no id")
    drain = Drain(name="d", tokens=("t",), verify_header="proof")
    async with running(drain, core=CoreDouble(special={HUNDRED: outcome})) as intake:
        connection = await open_known_connection(intake, authorization=BEARER)
        connection.writer.write(request(authorization=BEARER))
        plain = await connection.answer()
        connection.writer.write(request(HUNDRED, authorization=BEARER))
        partial = await connection.answer()
        await connection.close()

    assert (plain.status, plain.body, plain.headers["x-vercel-verify"]) == (200, b"", "proof")
    assert (partial.status, partial.headers["x-vercel-verify"]) == (200, "proof")
    assert b"two spans have no id" in partial.body
    assert intake.counted("spans_rejected", "d") == 2


@on_uvloop
async def test_full_journal_is_detected_in_the_next_event_loop_iteration() -> None:
    appender = AppenderDouble()
    async with running(TOKEN, appender=appender, limits=Limits(answer_deadline_s=0.5)) as intake:
        connection = await open_known_connection(intake, authorization=BEARER)
        statuses = []
        for full in ("full", None, "full"):
            appender.full = full
            connection.writer.write(request(authorization=BEARER))
            statuses.append((await connection.answer()).status)
        await connection.close()

    assert statuses == [503, 200, 503]


@on_uvloop
async def test_unexpected_error_on_the_fast_path_is_answered() -> None:
    def failing_clock() -> int:
        raise ZeroDivisionError

    async with running(TOKEN) as intake:
        connection = await open_known_connection(intake, authorization=BEARER)
        await asyncio.sleep(0)
        intake.delivery_handler._now_ns = failing_clock  # noqa: SLF001 - no other input raises here
        connection.writer.write(request(authorization=BEARER))
        answer = await connection.answer()
        await connection.close()

    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
