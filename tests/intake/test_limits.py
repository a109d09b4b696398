"""Tests of the intake's limits: size, speed, connections, and a full journal."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from receiver.settings import KIB, MIB, Drain, Limits
from tests.support.cases import each_case
from tests.support.intake import SPAN_BODY, AppenderDouble, CoreDouble, on_uvloop, request, running, until

SLOW = Limits(body_grace_s=0.2, body_bytes_per_s_min=1000)


def chunked(**headers: str) -> bytes:
    return request(b"", content_length="", transfer_encoding="chunked", **headers)


@on_uvloop
async def test_declared_size_over_the_limit_is_413_at_once_and_closes() -> None:
    async with running() as intake:
        connection = await intake.connect()
        answer = await connection.exchange(request(b"", content_length=str(10**12)))
        await connection.closed()

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_endless_chunked_body_is_413_at_the_limit() -> None:
    async with running(limits=Limits(body_bytes_max=64 * KIB)) as intake:
        connection = await intake.connect()
        answer = await connection.exchange(chunked() + b"10001\r\n" + bytes(0x10001) + b"\r\n")
        await connection.closed()

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_body_limit_of_a_drain_applies() -> None:
    small = Drain(name="small", tokens=("s",), body_bytes_max=4)
    async with running(small, Drain(name="big", tokens=("b",))) as intake:
        refused = await intake.post(authorization="Bearer s")
        accepted = await intake.post(authorization="Bearer b")

    assert (refused.status, accepted.status) == (413, 200)


@on_uvloop
async def test_body_at_the_limit_is_accepted_and_a_larger_one_is_not() -> None:
    async with running(limits=Limits(body_bytes_max=len(SPAN_BODY))) as intake:
        assert (await intake.post()).status == 200
        assert (await intake.post(SPAN_BODY + b".")).status == 413


@on_uvloop
async def test_refused_sender_of_a_long_body_gets_its_answer_without_a_reset() -> None:
    async with running(limits=Limits(body_bytes_max=1)) as intake:
        connection = await intake.connect()
        answer = await connection.exchange(request(bytes(1 * MIB)))
        end = await connection.closed()

    assert (answer.status, end) == (413, b"")


@on_uvloop
async def test_full_journal_answers_503_at_the_deadline_and_keeps_the_connection() -> None:
    appender = AppenderDouble(full="journal holds 9 bytes; the ceiling is 9 bytes")
    async with running(appender=appender, limits=Limits(answer_deadline_s=0.2)) as intake:
        answer = await intake.post(b"{}", content_type="application/json")

        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert "connection" not in answer.headers
        assert json.loads(answer.body)["message"] == "journal holds 9 bytes; the ceiling is 9 bytes"
        assert intake.counted("refusals", "journal_full") == 1
        assert intake.admission.bytes_in_flight == 0


@each_case(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"POST /v1/tra", id="half a request line"),
        pytest.param(request()[:-9], id="half the headers"),
        pytest.param(request() + request()[:-9], id="a complete delivery and part of the next"),
    ],
)
@on_uvloop
async def test_connection_is_closed_after_the_header_timeout(sent: bytes) -> None:
    async with running(limits=Limits(header_timeout_s=0.2, keepalive_timeout_s=600)) as intake:
        received = await intake.received_after(sent)

    assert b"HTTP/1.1 4" not in received
    assert received.count(b"HTTP/1.1 200") == sent.startswith(request())


CHUNKED = chunked() + b"1\r\n\n\r\n0\r\n\r\n"


@each_case(
    "sent",
    [
        pytest.param(request(), id="a body of known length"),
        pytest.param(CHUNKED, id="chunks"),
        pytest.param(request(x_filler="x" * 3_000, x_more="y" * 3_000), id="a long head"),
        pytest.param(request(b"", path="/nowhere"), id="refused"),
        pytest.param(request(b"", method="OPTIONS", content_length="", content_type=""), id="no body"),
    ],
)
@each_case("piece_bytes", [1, 100, 1 << 20])
@on_uvloop
async def test_idle_connection_waits_for_the_keepalive_timeout(sent: bytes, piece_bytes: int) -> None:
    async with running(limits=Limits(header_timeout_s=600, keepalive_timeout_s=3_000)) as intake:
        connection = await intake.connect()
        for start in range(0, len(sent), piece_bytes):
            connection.writer.write(sent[start : start + piece_bytes])
            await asyncio.sleep(0)
        answer = await connection.answer()
        (protocol,) = intake.server.connections
        left_s = protocol._closes_at - asyncio.get_running_loop().time()  # noqa: SLF001
        second = await connection.exchange(request())

    assert answer.status in {200, 204, 404}
    assert left_s > 2_000
    assert second.status == 200


@on_uvloop
async def test_idle_connection_is_closed_after_the_keepalive_timeout() -> None:
    async with running(limits=Limits(header_timeout_s=600, keepalive_timeout_s=0.2)) as intake:
        received = await intake.received_after(request())

    assert received.startswith(b"HTTP/1.1 200 ")


@on_uvloop
async def test_unfinished_next_request_is_closed_after_the_header_timeout() -> None:
    async with running(limits=Limits(header_timeout_s=0.2, keepalive_timeout_s=600)) as intake:
        connection = await intake.connect()
        for sent in (request(), CHUNKED, request()):
            assert (await connection.exchange(sent)).status == 200
        connection.writer.write(request()[:9])
        received = await connection.closed()

    assert received == b""


@each_case(
    "sent",
    [
        pytest.param(request(b"", content_length="100000") + b"ab", id="2 of 100,000 bytes, then silence"),
        pytest.param(chunked() + b"1\r\na\r\n", id="a chunk, then silence"),
        pytest.param(request(b"", content_length="10") + b"abc", id="3 of 10 bytes, then silence"),
    ],
)
@on_uvloop
async def test_stalled_body_closes_the_connection_without_an_answer(sent: bytes) -> None:
    async with running(limits=SLOW) as intake:
        received = await intake.received_after(sent)

    assert received in {b"", b"reset"}
    assert intake.core.groups == []
    assert intake.counted("refusals", "body_too_slow") == 1
    assert intake.admission.bytes_in_flight == 0


@each_case(
    ("limits", "piece"),
    [
        pytest.param(SLOW, b"a", id="below the minimum speed"),
        pytest.param(
            Limits(body_grace_s=5, body_bytes_per_s_min=1, body_timeout_s=0.2),
            bytes(100),
            id="longer than the total timeout",
        ),
    ],
)
@on_uvloop
async def test_slow_body_closes_the_connection(limits: Limits, piece: bytes) -> None:
    async with running(limits=limits) as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", content_length="100000"))
        closing = asyncio.create_task(connection.reader.read())
        while not closing.done():
            connection.writer.write(piece)
            await asyncio.wait([closing], timeout=0.02)
        closing.exception()

    assert intake.counted("refusals", "body_too_slow") == 1


@on_uvloop
async def test_slow_body_above_the_minimum_speed_is_accepted() -> None:
    async with running(limits=SLOW) as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", content_length="1001") + b"\n")
        for _ in range(10):
            await asyncio.sleep(0.03)
            connection.writer.write(bytes(100))
        answer = await connection.answer()

    assert answer.status == 200


@each_case("cut", range(1, len(SPAN_BODY)))
@on_uvloop
async def test_truncated_body_stores_nothing(cut: int) -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(request()[:-cut])
        await connection.writer.drain()
        await asyncio.sleep(0)
        await connection.close()
        await until(lambda: not intake.server.connection_count)

        assert intake.core.groups == []
        assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_client_that_never_reads_is_disconnected_before_answers_accumulate() -> None:
    sock, own = socket.create_server(("127.0.0.1", 0)), socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    own.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
    unsent_bytes = [0]
    async with running(limits=Limits(answer_deadline_s=0.3), listening=sock) as intake:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(own, sock.getsockname())
        sending = asyncio.create_task(loop.sock_sendall(own, request(b"", path="/nowhere") * 20_000))
        await until(lambda: intake.server.connections)
        (connection,) = intake.server.connections

        def is_closed() -> bool:
            unsent_bytes.append(connection.transport.get_write_buffer_size() if connection.transport else 0)
            return connection.transport is None

        await until(is_closed)
        sending.cancel()
        own.close()

    assert 0 < max(unsent_bytes) < 128 * KIB


@on_uvloop
async def test_pipelined_requests_do_not_accumulate() -> None:
    core = CoreDouble.paused()
    async with running(core=core) as intake:
        connection = await intake.connect()
        connection.writer.write(request() * 10_000)
        await asyncio.to_thread(core.running.wait)
        await asyncio.sleep(0.1)
        (protocol,) = intake.server.connections
        queued = len(protocol.messages)
        connection.writer.transport.abort()

    assert queued <= 32


@on_uvloop
async def test_repeated_refusals_are_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(Drain(name="d", tokens=("t",))) as intake:
        connection = await intake.connect()
        for _ in range(500):
            await connection.exchange(request(authorization="Bearer canary"))

    logged = "".join(capsys.readouterr())
    assert logged.count("request refused") == 1
    assert "canary" not in logged
    assert intake.counted("refusals", "unauthenticated") == 500


@on_uvloop
async def test_large_body_is_read_completely() -> None:
    body = b"\n" + bytes(16 * MIB)
    async with running() as intake:
        answer = await intake.post(body)

    assert answer.status == 200
    assert intake.core.deliveries[0].body == body
