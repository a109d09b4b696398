"""Tests of the fast path for known heads: when it is used, and that its answers do not differ."""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.intake.answers import Reply
from receiver.intake.connections.arriving_body import STEP_BYTES
from receiver.intake.handler import DeliveryHandler
from receiver.intake.head import Head
from receiver.intake.known_heads import HeadBytes, head_bytes
from receiver.intake.pending import PendingDelivery
from receiver.intake.routes import Routes
from receiver.settings import KIB, MIB, Drain, Limits
from tests.support.intake import (
    SPAN_BODY,
    Connection,
    CoreDouble,
    Intake,
    on_uvloop,
    request,
    running,
    until,
)

TOKEN = Drain(name="d", tokens=("t",))
SIGNED = Drain(name="d", signature_header="x-s", signature_secrets=("secret",))
SIGNATURE = {"x_s": hmac.digest(b"secret", SPAN_BODY, "sha1").hex()}
BEARER = "Bearer t"
FEW_BYTES = Limits(body_bytes_max=500)


async def open_known_connection(intake: Intake) -> Connection:
    """Open a connection whose next delivery takes the fast path."""
    connection = await intake.connect()
    connection.writer.write(request(authorization=BEARER))
    assert (await connection.answer()).status == 200
    return connection


@on_uvloop
async def test_deliveries_with_the_same_head_take_the_fast_path() -> None:
    async with running(TOKEN) as intake:
        connection = await open_known_connection(intake)
        bodies = [SPAN_BODY * count for count in range(1, 20)]
        for body in bodies:
            connection.writer.write(request(body, authorization=BEARER))
            assert (await connection.answer()).status == 200
        parsed_count = intake.server.endpoint.requests_count
        await connection.close()

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

    monkeypatch.setattr(DeliveryHandler, "take", recorded)
    complete, partial = SPAN_BODY * 2, SPAN_BODY * 3
    async with running(TOKEN) as intake:
        connection = await open_known_connection(intake)
        connection.writer.write(request(complete, authorization=BEARER))
        await connection.answer()
        connection.writer.write(request(partial, authorization=BEARER)[:-1])
        await until(lambda: intake.admission.bytes_in_flight)
        connection.writer.write(partial[-1:])
        await connection.answer()
        parsed_count = intake.server.endpoint.requests_count
        await connection.close()

    assert parsed_count == 1
    assert taken == [SPAN_BODY, complete, partial]
    assert [delivery.body for delivery in intake.core.deliveries] == taken


@on_uvloop
async def test_revoked_token_is_refused_on_an_open_connection() -> None:
    async with running(TOKEN) as intake:
        connection = await open_known_connection(intake)
        routes = Routes((Drain(name="d", tokens=("new",)),), Limits(), post_root=True)
        intake.delivery_handler.use(routes, Limits())
        connection.writer.write(request(authorization=BEARER))
        answer = await connection.answer()
        await connection.close()

    assert answer.status == 401


@on_uvloop
async def test_thousand_deliveries_in_a_single_read_are_refused_individually() -> None:
    async with running(TOKEN) as intake:
        connection = await open_known_connection(intake)
        intake.admission.is_closed = True
        connection.writer.write(request(authorization=BEARER) * 1_000)
        statuses = [(await connection.answer()).status for _ in range(1_000)]
        intake.admission.is_closed = False
        connection.writer.write(request(authorization=BEARER))
        statuses.append((await connection.answer()).status)
        await connection.close()

    assert statuses == [503] * 1_000 + [200]
    assert intake.counted("deliveries", "d", "503") == 1_000


@on_uvloop
async def test_stalled_body_on_the_fast_path_closes_the_connection() -> None:
    async with running(TOKEN, limits=Limits(body_grace_s=0.2, body_bytes_per_s_min=1000)) as intake:
        connection = await open_known_connection(intake)
        connection.writer.write(request(b"", content_length="1000", authorization=BEARER) + bytes(10))
        received = await connection.closed()

    assert received == b""
    assert intake.counted("refusals", "body_too_slow") == 1
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_sender_that_disconnects_within_a_body_leaves_no_state() -> None:
    async with running(TOKEN) as intake:
        connection = await open_known_connection(intake)
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
        connection = await open_known_connection(intake)
        core.may_continue.clear()
        core.running.clear()
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
        connection = await open_known_connection(intake)
        core.may_continue.clear()
        core.running.clear()
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
        connection = await open_known_connection(intake)
        connection.writer.write(request(b"", content_length="1000", authorization=BEARER) + bytes(10))
        answer = await connection.answer()
        end = await connection.closed()

    assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "2", "close")
    assert end == b""
    assert intake.server.endpoint.requests_count == 1


@pytest.mark.parametrize("is_complete", [True, False])
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
        await connection.close()

    assert (statuses, parsed_count) == ([200, 403, 200], 1)
    assert [delivery.body for delivery in intake.core.deliveries] == [SPAN_BODY, SPAN_BODY]


@on_uvloop
async def test_body_on_the_fast_path_is_in_flight_until_it_is_released() -> None:
    async with running(TOKEN) as intake:
        connection = await open_known_connection(intake)
        intake.core.may_continue.clear()
        intake.core.running.clear()
        connection.writer.write(request(authorization=BEARER))
        await asyncio.to_thread(intake.core.running.wait)
        held_bytes = intake.admission.bytes_in_flight
        intake.core.may_continue.set()
        await connection.answer()
        await until(lambda: intake.admission.bytes_in_flight == 0)
        await connection.close()

    assert held_bytes == len(SPAN_BODY)
    assert intake.server.endpoint.requests_count == 1


@pytest.mark.parametrize(
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
        connection.writer.write(request(SPAN_BODY, **head))
        assert (await connection.answer()).status == 200
        connection.writer.write(request(b"", content_length=str(16 * MIB), **head) + bytes(sent_bytes))
        await until(lambda: intake.admission.bytes_in_flight > sent_bytes - STEP_BYTES)
        parsed_count = intake.server.endpoint.requests_count
        await connection.close()

    assert parsed_count == 1


HEAD = request(b"", content_length="10")
PATTERN = head_bytes(HEAD, len(HEAD) + 10, 10)


@pytest.mark.parametrize(
    "digits",
    [
        pytest.param(digits, id=digits or "empty")
        for digits in ("", "0", "010", "+10", "-10", " 10", "10 ", "1_0", "0x10", "10,10", "1e1", "9" * 10)
    ],
)
def test_head_with_a_malformed_length_is_unknown(digits: str) -> None:
    assert PATTERN is not None
    assert PATTERN.match(HEAD) == (10, len(HEAD))
    assert PATTERN.match(HEAD.replace(b": 10\r", f": {digits}\r".encode())) is None


@given(st.data())
def test_head_that_differs_in_any_byte_is_unknown(data: st.DataObject) -> None:
    assert PATTERN is not None
    index = data.draw(st.integers(0, len(HEAD) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != HEAD[index]))
    changed = HEAD[:index] + bytes([byte]) + HEAD[index + 1 :]
    match = PATTERN.match(changed)

    is_length = HEAD.index(b": 10\r") + 2 <= index < HEAD.index(b": 10\r") + 4
    assert match is None or (is_length and bytes([byte]).isdigit())
    assert PATTERN.match(HEAD[:index]) is None


@pytest.mark.parametrize(
    ("head", "body_bytes"),
    [
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", 0, id="no length"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 0, id="length 0"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 012\r\n\r\n", 12, id="a leading zero"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n", 13, id="other body length"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length:12\r\n\r\n", 12, id="no space"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12 \r\n\r\n", 12, id="trailing space"),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: 12\r\ncontent-length: 12\r\n\r\n", 12, id="repeated length"
        ),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n\r\n\r\n", 12, id="more than a head"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n", 12, id="less than a head"),
    ],
)
def test_ambiguous_head_is_not_remembered(head: bytes, body_bytes: int) -> None:
    pattern: HeadBytes | None = head_bytes(head, len(head) + body_bytes, body_bytes)

    assert pattern is None
