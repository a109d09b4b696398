"""Limits of the intake: size, speed, memory, connections, and a journal that is full."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket

import pytest

from receiver.settings import KIB, MIB, Drain, Limits
from tests.intake_support import SPAN_BODY, AppenderDouble, CoreDouble, on_uvloop, request, running, until

SLOW = Limits(body_grace_s=0.2, body_bytes_per_s_min=1000)


def chunked(**headers: str) -> bytes:
    return request(b"", content_length="", transfer_encoding="chunked", **headers)


@on_uvloop
async def test_a_declared_size_over_the_limit_is_413_at_once_and_closes() -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", content_length=str(10**12)))
        answer = await connection.answer()
        await connection.closed()

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_chunks_without_an_end_are_413_at_the_limit() -> None:
    async with running(limits=Limits(body_bytes_max=64 * KIB)) as intake:
        connection = await intake.connect()
        connection.writer.write(chunked() + b"10001\r\n" + bytes(0x10001) + b"\r\n")
        answer = await connection.answer()
        await connection.closed()

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_a_drain_has_its_own_limit() -> None:
    small = Drain(name="small", tokens=("s",), body_bytes_max=4)
    async with running(small, Drain(name="big", tokens=("b",))) as intake:
        refused = await intake.post(authorization="Bearer s")
        taken = await intake.post(authorization="Bearer b")

    assert (refused.status, taken.status) == (413, 200)


@on_uvloop
async def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    async with running(limits=Limits(body_bytes_max=len(SPAN_BODY))) as intake:
        assert (await intake.post()).status == 200
        assert (await intake.post(SPAN_BODY + b".")).status == 413


@on_uvloop
async def test_a_body_that_does_not_fit_into_memory_is_told_to_come_again() -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with running(limits=Limits(inflight_bytes_max=10), core=core) as intake:
        first = asyncio.create_task(intake.post())
        await asyncio.to_thread(core.running.wait)
        second = await intake.post()
        third = await intake.exchange(chunked() + b"4\r\n\nabc\r\n0\r\n\r\n")
        core.may_go_on.set()

        assert (await first).status == 200
        assert [one.status for one in (second, third)] == [503, 503]
        assert second.headers["retry-after"] == "2"
        assert intake.admission.bytes_in_flight == 0
        assert (await intake.post()).status == 200


@on_uvloop
async def test_a_body_in_the_committers_hands_counts_though_its_sender_was_told_to_come_again() -> None:
    core, appender = CoreDouble(), AppenderDouble()
    appender.may_go_on.clear()
    limits = Limits(answer_deadline_s=0.1, inflight_bytes_max=2 * len(SPAN_BODY))
    async with running(limits=limits, core=core, appender=appender) as intake:
        stalled = [await intake.post(), await intake.post()]
        refused = await intake.post()
        held_bytes = intake.admission.bytes_in_flight
        appender.may_go_on.set()
        await until(lambda: not intake.admission.bytes_in_flight)
        taken = await intake.post()

    assert [one.status for one in (*stalled, refused)] == [503, 503, 503]
    assert b"bodies in flight" in refused.body
    assert held_bytes == 2 * len(SPAN_BODY)
    assert taken.status == 200


@on_uvloop
async def test_a_body_that_expires_in_line_is_let_go() -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with running(limits=Limits(answer_deadline_s=0.1), core=core) as intake:
        in_hand = asyncio.create_task(intake.post())
        await asyncio.to_thread(core.running.wait)
        in_line = [await intake.post() for _ in range(5)]
        held_bytes = intake.admission.bytes_in_flight

        assert [one.status for one in (await in_hand, *in_line)] == [503] * 6
        assert held_bytes == len(SPAN_BODY)


@on_uvloop
async def test_what_is_announced_claims_a_mebibyte_until_more_arrives() -> None:
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
async def test_senders_nobody_knows_yet_cannot_take_the_room_of_those_who_show_a_token() -> None:
    signed = Drain(name="signed", path="/signed", signature_header="x-s", signature_secrets=("s",))
    known = Drain(name="known", path="/known", tokens=("t",))
    limits = Limits(inflight_bytes_max=16 * MIB, body_bytes_max=MIB)
    async with running(signed, known, limits=limits) as intake:
        starving = [await intake.connect() for _ in range(6)]
        for connection in starving:
            connection.writer.write(request(bytes(MIB - 1), "/signed", content_length=str(MIB), x_s="00"))
        await until(lambda: intake.counted("refusals", "memory_budget_spent") == 2)
        taken = await intake.post(path="/known", authorization="Bearer t")
        refused = await intake.post(path="/signed", x_s="00")
        for connection in starving:
            await connection.close()

    assert (taken.status, refused.status) == (200, 503)
    assert b"unknown senders" in refused.body


@on_uvloop
async def test_what_a_stranger_announces_and_does_not_send_holds_next_to_nothing() -> None:
    signed = Drain(name="d", signature_header="x-s", signature_secrets=("s",))
    signature = hmac.digest(b"s", SPAN_BODY, "sha1").hex()
    limits = Limits(inflight_bytes_max=16 * MIB, body_bytes_max=MIB)
    async with running(signed, limits=limits) as intake:
        announcing = [await intake.connect() for _ in range(50)]
        for connection in announcing:
            connection.writer.write(request(b"", content_length=str(MIB), x_s="00"))
        await until(lambda: intake.admission.unknown_bytes == 50 * 64 * KIB)
        taken = await intake.post(x_s=signature)
        for connection in announcing:
            await connection.close()

    assert taken.status == 200


@on_uvloop
async def test_a_body_that_is_whole_and_signed_is_in_nobodys_way() -> None:
    signed = Drain(name="d", signature_header="x-s", signature_secrets=("s",))
    signature = hmac.digest(b"s", SPAN_BODY, "sha1").hex()
    core = CoreDouble()
    core.may_go_on.clear()
    limits = Limits(inflight_bytes_max=100, body_bytes_max=len(SPAN_BODY))
    async with running(signed, limits=limits, core=core) as intake:
        tasks = [asyncio.create_task(intake.post(x_s=signature)) for _ in range(10)]
        await until(lambda: intake.admission.bytes_in_flight == 10 * len(SPAN_BODY))
        core.may_go_on.set()

        assert {(await task).status for task in tasks} == {200}
        assert (intake.admission.bytes_in_flight, intake.admission.unknown_bytes) == (0, 0)


@on_uvloop
async def test_a_body_over_the_floor_that_takes_too_long_closes_the_connection() -> None:
    limits = Limits(body_grace_s=5, body_bytes_per_s_min=1, body_timeout_s=0.2)
    async with running(limits=limits) as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", content_length="100000"))
        closing = asyncio.create_task(connection.reader.read())
        while not closing.done():
            connection.writer.write(bytes(100))
            await asyncio.wait([closing], timeout=0.02)
        closing.exception()
        await connection.close()

    assert intake.counted("refusals", "body_too_slow") == 1


@on_uvloop
async def test_a_chunked_body_claims_memory_as_it_grows() -> None:
    async with running(limits=Limits(inflight_bytes_max=10)) as intake:
        connection = await intake.connect()
        connection.writer.write(chunked() + b"4\r\n\nabc\r\n")
        await until(lambda: intake.admission.bytes_in_flight == 4)
        connection.writer.write(b"7\r\nabcdefg\r\n")
        answer = await connection.answer()
        await connection.close()

    assert (answer.status, answer.headers["connection"]) == (503, "close")
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_a_refused_sender_of_a_long_body_sees_its_answer_and_an_orderly_end() -> None:
    async with running(limits=Limits(body_bytes_max=1)) as intake:
        connection = await intake.connect()
        connection.writer.write(request(bytes(1 * MIB)))
        answer = await connection.answer()
        end = await connection.closed()

    assert (answer.status, end) == (413, b"")


@on_uvloop
async def test_a_full_journal_is_503_before_the_body_is_read() -> None:
    async with running(
        appender=AppenderDouble(full="journal holds 9 bytes; the ceiling is 9 bytes")
    ) as intake:
        answer = await intake.exchange(
            request(b"", content_length="500000", expect="100-continue", content_type="application/json")
        )

    assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "2", "close")
    assert json.loads(answer.body)["message"] == "journal holds 9 bytes; the ceiling is 9 bytes"
    assert b"100 Continue" not in answer.raw


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"POST /v1/tra", id="half a request line"),
        pytest.param(request()[:-9], id="half the headers"),
        pytest.param(request(), id="a whole delivery, then nothing"),
    ],
)
@on_uvloop
async def test_a_head_that_does_not_come_in_time_closes_the_connection(sent: bytes) -> None:
    async with running(limits=Limits(header_timeout_s=0.2)) as intake:
        connection = await intake.connect()
        connection.writer.write(sent)
        said = await connection.closed()

    assert b"HTTP/1.1 4" not in said
    assert said.startswith(b"HTTP/1.1 200") == (sent == request())


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(request(b"", content_length="100000") + b"ab", id="2 of 100,000 bytes, then silence"),
        pytest.param(chunked() + b"1\r\na\r\n", id="one chunk, then silence"),
        pytest.param(request(b"", content_length="10") + b"abc", id="3 of 10 bytes, then silence"),
    ],
)
@on_uvloop
async def test_a_body_that_stops_closes_the_connection_without_an_answer(sent: bytes) -> None:
    async with running(limits=SLOW) as intake:
        connection = await intake.connect()
        connection.writer.write(sent)
        said = await connection.closed()

    assert said in {b"", b"reset"}
    assert intake.core.groups == []
    assert intake.counted("refusals", "body_too_slow") == 1
    assert intake.admission.bytes_in_flight == 0


@on_uvloop
async def test_a_body_that_dribbles_under_the_floor_closes_the_connection() -> None:
    async with running(limits=SLOW) as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", content_length="100000"))
        closing = asyncio.create_task(connection.reader.read())
        while not closing.done():
            connection.writer.write(b"a")
            await asyncio.wait([closing], timeout=0.02)
        closing.exception()
        await connection.close()

    assert intake.counted("refusals", "body_too_slow") == 1


@on_uvloop
async def test_a_slow_body_over_the_floor_is_taken() -> None:
    async with running(limits=SLOW) as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", content_length="1001") + b"\n")
        for _ in range(10):
            await asyncio.sleep(0.03)
            connection.writer.write(bytes(100))
        answer = await connection.answer()
        await connection.close()

    assert answer.status == 200


@pytest.mark.parametrize("cut", range(1, len(SPAN_BODY)))
@on_uvloop
async def test_a_body_cut_anywhere_stores_nothing(cut: int) -> None:
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
async def test_one_connection_too_many_is_told_so_and_closed() -> None:
    async with running(limits=Limits(connections_max=2)) as intake:
        kept = [await intake.connect(), await intake.connect()]
        for connection in kept:
            connection.writer.write(request())
            assert (await connection.answer()).status == 200
        refused = await intake.connect()
        said = await refused.closed()
        for connection in kept:
            await connection.close()
        await until(lambda: not intake.server.connection_count)
        after = await intake.post()

    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 2\r\n" in said
    assert after.status == 200


@on_uvloop
async def test_a_peer_that_never_reads_its_answers_is_closed_before_they_pile_up() -> None:
    plug, own = socket.create_server(("127.0.0.1", 0)), socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    own.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
    unsent_bytes = [0]
    async with running(limits=Limits(answer_deadline_s=0.3), listening=plug) as intake:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(own, plug.getsockname())
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
async def test_many_pipelined_requests_are_held_back_not_piled_up() -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with running(core=core) as intake:
        connection = await intake.connect()
        connection.writer.write(request() * 10_000)
        await asyncio.to_thread(core.running.wait)
        await asyncio.sleep(0.1)
        (protocol,) = intake.server.connections
        queued = len(protocol._messages)  # noqa: SLF001 - what is claimed
        connection.writer.transport.abort()

    assert queued <= 32


@on_uvloop
async def test_refusals_of_one_reason_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(Drain(name="d", tokens=("t",))) as intake:
        connection = await intake.connect()
        for _ in range(500):
            connection.writer.write(request(authorization="Bearer canary"))
            await connection.answer()
        await connection.close()

    logged = "".join(capsys.readouterr())
    assert logged.count("delivery not taken") <= 1
    assert "canary" not in logged
    assert intake.counted("refusals", "unauthenticated") == 500


@on_uvloop
async def test_a_large_body_is_read_whole() -> None:
    body = b"\n" + bytes(16 * MIB)
    async with running() as intake:
        answer = await intake.post(body)

    assert answer.status == 200
    assert intake.core.deliveries[0].body == body
