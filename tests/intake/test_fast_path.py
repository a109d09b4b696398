"""Tests of the fast path for complete requests with known heads: each delivery gets its own answer."""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

import pytest

from receiver.intake.answers import Reply
from receiver.intake.batch import deliveries_of
from receiver.intake.batch_handler import BatchHandler
from receiver.intake.connections.body import STEP_BYTES
from receiver.intake.handler import DeliveryHandler
from receiver.intake.head import Head
from receiver.intake.pending import PendingDelivery
from receiver.intake.routes import Routes, Sender
from receiver.settings import KIB, MIB, Drain, Limits
from receiver.transcode import FastBatch
from tests.support.cases import each_case
from tests.support.intake import (
    SPAN_BODY,
    AppenderDouble,
    CoreDouble,
    OutcomeDouble,
    on_uvloop,
    request,
    running,
    until,
)

TOKEN = Drain(name="d", tokens=("t",))
SIGNED = Drain(name="d", signature_header="x-s", signature_secrets=("secret",))
SIGNATURE = {"x_s": hmac.digest(b"secret", SPAN_BODY, "sha1").hex()}
BEARER = "Bearer t"
HUNDRED = SPAN_BODY.ljust(100, b".")


@on_uvloop
async def test_deliveries_with_the_same_head_take_the_fast_path() -> None:
    async with running(TOKEN) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        bodies = [SPAN_BODY * count for count in range(1, 20)]
        for body in bodies:
            assert (await connection.exchange(request(body, authorization=BEARER))).status == 200
        parsed_count = intake.server.endpoint.requests_count

    assert parsed_count == 1
    assert [delivery.body for delivery in intake.core.deliveries] == [SPAN_BODY, *bodies]
    assert intake.counted("deliveries", "d", "200") == 20


@on_uvloop
async def test_delivery_is_taken_once_on_every_request_path(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    take = DeliveryHandler.take

    def recorded(self: DeliveryHandler, known: Head, raw: bytes, *others: Any) -> PendingDelivery | Reply:  # noqa: ANN401 - passed on
        taken.append(raw)
        return take(self, known, raw, *others)

    def recorded_batch(self: BatchHandler, sender: Sender, batch: FastBatch, arrived_at: float) -> bool:
        taken.extend(delivery.body for _, delivery in deliveries_of(batch))
        return submit(self, sender, batch, arrived_at)

    monkeypatch.setattr(DeliveryHandler, "take", recorded)
    submit = BatchHandler._submit  # noqa: SLF001 - the step that takes a batch
    monkeypatch.setattr(BatchHandler, "_submit", recorded_batch)
    complete, partial = SPAN_BODY * 2, SPAN_BODY * 3
    async with running(TOKEN) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        await connection.exchange(request(complete, authorization=BEARER))
        connection.writer.write(request(partial, authorization=BEARER)[:-1])
        await until(lambda: intake.admission.bytes_in_flight)
        await connection.exchange(partial[-1:])
        parsed_count = intake.server.endpoint.requests_count

    assert parsed_count == 1
    assert taken == [SPAN_BODY, complete, partial]
    assert [delivery.body for delivery in intake.core.deliveries] == taken


@on_uvloop
async def test_revoked_token_is_refused_on_an_open_connection() -> None:
    async with running(TOKEN) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        routes = Routes((Drain(name="d", tokens=("new",)),), Limits(), post_root=True)
        intake.delivery_handler.use(routes, Limits())
        answer = await connection.exchange(request(authorization=BEARER))

    assert answer.status == 401


@on_uvloop
async def test_thousand_deliveries_in_a_single_read_are_refused_individually() -> None:
    async with running(TOKEN) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        intake.admission.is_closed = True
        connection.writer.write(request(authorization=BEARER) * 1_000)
        statuses = [(await connection.answer()).status for _ in range(1_000)]
        intake.admission.is_closed = False
        connection.writer.write(request(authorization=BEARER))
        statuses.append((await connection.answer()).status)

    assert statuses == [503] * 1_000 + [200]
    assert intake.counted("deliveries", "d", "503") == 1_000


@on_uvloop
async def test_stalled_body_on_the_fast_path_closes_the_connection() -> None:
    async with running(TOKEN, limits=Limits(body_grace_s=0.2, body_bytes_per_s_min=1000)) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        connection.writer.write(request(b"", content_length="1000", authorization=BEARER) + bytes(10))
        received = await connection.closed()

    assert received == b""
    assert intake.counted("refusals", "body_too_slow") == 1
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_sender_that_disconnects_within_a_body_leaves_no_state() -> None:
    async with running(TOKEN) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        connection.writer.write(request(b"", content_length="1000", authorization=BEARER) + bytes(10))
        await until(lambda: intake.admission.bytes_in_flight)
        connection.writer.transport.abort()
        await until(lambda: not intake.server.connection_count)
        await until(lambda: not intake.admission.bytes_in_flight)

    assert len(intake.core.deliveries) == 1


@on_uvloop
async def test_header_timeout_does_not_run_while_a_delivery_is_answered() -> None:
    core = CoreDouble()
    async with running(
        TOKEN, limits=Limits(header_timeout_s=0.2, keepalive_timeout_s=0.2), core=core
    ) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        core.pause()
        connection.writer.write(request(authorization=BEARER))
        await asyncio.to_thread(core.running.wait)
        await asyncio.sleep(0.6)
        core.may_continue.set()
        answer = await connection.answer()
        end = await connection.closed()

    assert (answer.status, end) == (200, b"")


@on_uvloop
async def test_stop_closes_connections_on_the_fast_path_with_their_answer() -> None:
    core = CoreDouble()
    async with running(TOKEN, core=core) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        core.pause()
        connection.writer.write(request(authorization=BEARER))
        await asyncio.to_thread(core.running.wait)
        stopping = asyncio.create_task(intake.server.stop(5))
        await until(lambda: intake.server.endpoint.is_stopping)
        core.may_continue.set()
        answer = await connection.answer()
        end = await connection.closed()
        await stopping

    assert (answer.status, answer.headers["connection"], end) == (200, "close", b"")


@on_uvloop
async def test_body_without_memory_on_the_fast_path_gets_503_and_closes() -> None:
    async with running(TOKEN, limits=Limits(inflight_bytes_max=100)) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        answer = await connection.exchange(
            request(b"", content_length="1000", authorization=BEARER) + bytes(10)
        )
        end = await connection.closed()

    assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "2", "close")
    assert end == b""
    assert intake.server.endpoint.requests_count == 1


@each_case("is_complete", [True, False])
@on_uvloop
async def test_wrong_signature_is_refused_on_the_fast_path(*, is_complete: bool) -> None:
    async with running(SIGNED) as intake:
        connection = await intake.connect()
        statuses = []
        for body in (SPAN_BODY, SPAN_BODY[:-1] + b"!", SPAN_BODY):
            raw = request(body, **SIGNATURE)
            connection.writer.write(raw if is_complete else raw[:-1])
            await connection.writer.drain()
            await asyncio.sleep(0 if is_complete else 0.05)
            connection.writer.write(b"" if is_complete else raw[-1:])
            statuses.append((await connection.answer()).status)
        parsed_count = intake.server.endpoint.requests_count

    assert (statuses, parsed_count) == ([200, 403, 200], 1)
    assert [delivery.body for delivery in intake.core.deliveries] == [SPAN_BODY, SPAN_BODY]


@each_case(
    ("drain", "head", "sent_bytes"),
    [
        pytest.param(TOKEN, {"authorization": BEARER}, 2 * MIB, id="valid token"),
        pytest.param(SIGNED, SIGNATURE, 300 * KIB, id="signature not yet checked"),
    ],
)
@on_uvloop
async def test_large_body_on_the_fast_path_claims_the_bytes_that_have_arrived(
    drain: Drain, head: dict[str, str], sent_bytes: int
) -> None:
    async with running(drain) as intake:
        connection = await intake.connect()
        assert (await connection.exchange(request(SPAN_BODY, **head))).status == 200
        connection.writer.write(request(b"", content_length=str(16 * MIB), **head) + bytes(sent_bytes))
        await until(lambda: intake.admission.bytes_in_flight > sent_bytes - STEP_BYTES)
        parsed_count = intake.server.endpoint.requests_count

    assert parsed_count == 1


@on_uvloop
async def test_simultaneous_deliveries_are_refused_only_if_memory_is_spent() -> None:
    core = CoreDouble()
    async with running(TOKEN, limits=Limits(inflight_bytes_max=350), core=core) as intake:
        connections = [await intake.used_connection(authorization=BEARER) for _ in range(8)]
        await until(lambda: not intake.admission.bytes_in_flight)
        core.may_continue.clear()
        for connection in connections:
            connection.writer.write(request(HUNDRED, authorization=BEARER))
        await until(lambda: intake.counted("deliveries", "d", "503") == 5)
        core.may_continue.set()
        statuses = [(await connection.answer()).status for connection in connections]
        await until(lambda: not intake.admission.bytes_in_flight)
        parsed_count = intake.server.endpoint.requests_count

    assert sorted(statuses) == [200] * 3 + [503] * 5
    assert parsed_count == len(connections)
    assert intake.counted("body_bytes", "d") == 8 * len(SPAN_BODY) + 3 * len(HUNDRED)


@on_uvloop
async def test_partial_success_on_the_fast_path_has_the_header_of_its_path() -> None:
    outcome = OutcomeDouble(rejected=2, message="two spans have no id")
    drain = Drain(name="d", tokens=("t",), verify_header="proof")
    async with running(drain, core=CoreDouble(special={HUNDRED: outcome})) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        plain = await connection.exchange(request(authorization=BEARER))
        partial = await connection.exchange(request(HUNDRED, authorization=BEARER))

    assert (plain.status, plain.body, plain.headers["x-vercel-verify"]) == (200, b"", "proof")
    assert (partial.status, partial.headers["x-vercel-verify"]) == (200, "proof")
    assert b"two spans have no id" in partial.body
    assert intake.counted("spans_rejected", "d") == 2


@on_uvloop
async def test_full_journal_is_detected_in_the_next_event_loop_iteration() -> None:
    appender = AppenderDouble()
    async with running(TOKEN, appender=appender, limits=Limits(answer_deadline_s=0.5)) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        statuses = []
        for full in ("full", None, "full"):
            appender.full = full
            connection.writer.write(request(authorization=BEARER))
            statuses.append((await connection.answer()).status)

    assert statuses == [503, 200, 503]


@on_uvloop
async def test_unexpected_error_on_the_fast_path_is_answered() -> None:
    def failing_clock() -> int:
        raise ZeroDivisionError

    async with running(TOKEN) as intake:
        connection = await intake.used_connection(authorization=BEARER)
        await asyncio.sleep(0)
        intake.delivery_handler._now_ns = failing_clock  # noqa: SLF001 - no other input raises here
        answer = await connection.exchange(request(authorization=BEARER))

    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
