"""Tests of the listener of API and admin port: connection limits, timeouts and sizes, over raw sockets."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from receiver.http.listener import Listener
from receiver.http.parser import HEAD_BYTES_MAX
from receiver.http.protocol import Limits
from receiver.metrics import Metrics
from tests.support.cases import each_case

GET = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET_HELD = b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
LARGE_BYTES = 64 << 20
SENT_BYTES_MAX = 256 << 20
WAIT_S = 20.0


def padded(head: bytes, size: int) -> bytes:
    """Return a head with further lines, of about 1,000 bytes each, that is at least this long."""
    count, last = divmod(max(0, size - len(head)), 1_000)
    lengths = [1_000] * (count - 1) + [1_000 + last] if count else []
    return head[:-2] + b"".join(b"X: " + b"a" * (length - 5) + b"\r\n" for length in lengths) + b"\r\n"


class Port:
    """Server with five paths. `/held` is answered when `release` is set, and `/refused` before its body ends.

    The API, the admin port and the ClickHouse port have such a listener.
    """

    def __init__(self, limits: Limits) -> None:
        self.metrics = Metrics("test")
        self.listener = Listener(limits, self.metrics)
        self.server_socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address = self.server_socket.getsockname()
        self.release = asyncio.Event()
        self.held_count = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        application = web.Application()
        application.router.add_get("/small", self._small)
        application.router.add_get("/large", self._large)
        application.router.add_get("/held", self._held)
        application.router.add_post("/body", self._body)
        application.router.add_post("/refused", self._refused)
        await self.listener.open(application, self.server_socket)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        self.writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        self.release.set()
        for writer in self.writers:
            writer.close()
        await self.listener.close()

    async def send_request(self, request: bytes = GET, end: bytes = b"\r\n\r\n") -> bytes:
        """Send a request on a new connection, and return the answer up to `end`."""
        reader, writer = await self.connect()
        writer.write(request)
        answer = await asyncio.wait_for(reader.readuntil(end), WAIT_S)
        writer.close()
        return answer

    async def used_connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection on which a request was answered."""
        reader, writer = await self.connect()
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(b"ok\n"), WAIT_S)
        return reader, writer

    def closed_count(self, reason: str) -> float:
        return sum(
            series.value
            for series in self.metrics.snapshot().series
            if series.name == "connections_closed" and series.labels[1] == reason
        )

    async def _small(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _large(self, _request: web.Request) -> web.Response:
        return web.Response(body=bytes(LARGE_BYTES))

    async def _body(self, request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.read())}\n")

    async def _refused(self, _request: web.Request) -> web.Response:
        return web.Response(status=403, text="no\n")

    async def _held(self, _request: web.Request) -> web.Response:
        self.held_count += 1
        await self.release.wait()
        return web.Response(text="ok\n")


Serve = Callable[..., Awaitable[Port]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    ports: list[Port] = []

    async def open_port(
        connections_max: int = 8, header_timeout_s: float = 60.0, write_timeout_s: float = 60.0
    ) -> Port:
        port = Port(Limits("api", connections_max, header_timeout_s, write_timeout_s))
        ports.append(port)
        await port.open()
        return port

    yield open_port
    for port in ports:
        await port.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - sockets have no event to wait for
            await asyncio.sleep(0.01)


async def test_silent_connections_stay_below_the_limit_and_do_not_block_a_request(serve: Serve) -> None:
    port = await serve(connections_max=8)
    silent = [socket.create_connection(port.address) for _ in range(300)]
    await until(lambda: port.closed_count("evicted") == 300 - 8)

    head = await port.send_request()

    assert head.startswith(b"HTTP/1.1 200 ")
    assert port.listener.connection_count <= 8
    for connection in silent:
        connection.close()


async def test_log_names_the_reason_for_closing_a_connection(serve: Serve) -> None:
    port = await serve(connections_max=1)
    with capture_logs() as logs, closing(socket.create_connection(port.address)):
        await port.send_request()

    assert {"event": "connection closed", "error": "evicted", "port": "api", "log_level": "warning"} in logs


async def test_longest_idle_connection_is_evicted_first(serve: Serve) -> None:
    port = await serve(connections_max=2)
    first, _ = await port.used_connection()
    second, second_writer = await port.used_connection()

    assert (await port.send_request()).startswith(b"HTTP/1.1 200 ")

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(first.readexactly(1), WAIT_S)
    second_writer.write(GET)
    assert (await asyncio.wait_for(second.readuntil(b"\r\n\r\n"), WAIT_S)).startswith(b"HTTP/1.1 200 ")


async def test_new_connection_gets_503_while_all_connections_are_busy(serve: Serve) -> None:
    port = await serve(connections_max=2)
    busy = [asyncio.create_task(port.send_request(GET_HELD)) for _ in range(2)]
    await until(lambda: port.held_count == 2)

    reader, _ = await port.connect()
    answer = await asyncio.wait_for(reader.read(), WAIT_S)
    port.release.set()

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"status":503,' in answer
    assert [head.startswith(b"HTTP/1.1 200 ") for head in await asyncio.gather(*busy)] == [True, True]


@pytest.mark.parametrize(
    "partial_head", [b"", b"GET /small HTTP/1.1\r\nHost: loc"], ids=["empty", "half a head"]
)
async def test_incomplete_request_head_times_out(serve: Serve, partial_head: bytes) -> None:
    port = await serve(header_timeout_s=0.2)
    reader, writer = await port.connect()
    writer.write(partial_head)

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), WAIT_S)

    assert port.closed_count("head_timeout") == 1


async def test_second_request_head_has_its_own_timeout(serve: Serve) -> None:
    port = await serve(header_timeout_s=0.2)
    reader, writer = await port.used_connection()

    writer.write(GET[:10])
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), WAIT_S)

    assert port.closed_count("head_timeout") == 1


async def test_idle_connection_outlives_the_head_timeout(serve: Serve) -> None:
    port = await serve(header_timeout_s=0.1)
    reader, writer = await port.used_connection()
    late_reader, late_writer = await port.connect()
    late_writer.write(GET[:10])

    await asyncio.wait_for(late_reader.read(), WAIT_S)  # its head timeout has passed
    writer.write(GET)

    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)).startswith(b"HTTP/1.1 200 ")


@each_case(
    ("head", "status"),
    [
        pytest.param(b"GET /?" + b"a" * 8_300 + b" HTTP/1.1\r\n\r\n", b"414", id="long URL"),
        pytest.param(GET[:-2] + b"X: " + b"a" * 5_000 + b"\r\n\r\n", b"431", id="long header"),
        pytest.param(GET[:-2] + b"X: a\r\n" * 100 + b"\r\n", b"431", id="many headers"),
        pytest.param(GET[:-2] + (b"X: " + b"a" * 4_000 + b"\r\n") * 20, b"431", id="many long headers"),
        pytest.param(padded(GET, HEAD_BYTES_MAX + 1), b"431", id="too large although each header is short"),
        pytest.param(b"GET /secret\x00 HTTP/1.1\r\n\r\n", b"400", id="not HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00secret\r\n\r\n", b"400", id="TLS"),
    ],
)
async def test_malformed_or_oversize_head_is_refused_without_an_echo(
    serve: Serve, head: bytes, status: bytes
) -> None:
    answer = await (await serve()).send_request(head, end=b"}\n")

    assert answer.split()[1] == status
    assert b"secret" not in answer
    assert b"aaaa" not in answer


@each_case("head_bytes", [0, HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX])
async def test_body_that_arrives_together_with_its_head_does_not_count_as_head(
    serve: Serve, head_bytes: int
) -> None:
    port = await serve()
    reader, writer = await port.connect()
    body = b"a" * 3 * HEAD_BYTES_MAX

    for _ in range(2):
        writer.write(padded(POST % len(body), head_bytes) + body)
        answer = await asyncio.wait_for(reader.readuntil(b"\n%d\n" % len(body)), WAIT_S)

        assert answer.startswith(b"HTTP/1.1 200 ")


@each_case("line", [b"Content-Encoding: gzip", b"Content-Encoding: deflate"])
async def test_body_that_cannot_be_decoded_is_the_fault_of_the_client(serve: Serve, line: bytes) -> None:
    body = b"not compressed"
    request = (POST % len(body))[:-2] + line + b"\r\n\r\n" + body

    answer = await (await serve()).send_request(request, end=b"}\n")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the body is not valid" in answer


async def test_buffer_of_an_unfinished_head_is_limited(serve: Serve) -> None:
    port = await serve()

    answer = await port.send_request(padded(GET, HEAD_BYTES_MAX + 1_000)[:-2], end=b"}\n")

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert port.closed_count("head_too_large") == 1


async def test_client_that_does_not_read_is_disconnected_while_others_are_answered(serve: Serve) -> None:
    port = await serve(write_timeout_s=0.3)
    unread = [socket.create_connection(port.address) for _ in range(4)]
    for connection in unread:
        connection.sendall(GET_LARGE)

    assert (await port.send_request()).startswith(b"HTTP/1.1 200 ")

    await until(lambda: port.closed_count("write_timeout") == 4)
    await until(lambda: port.listener.connection_count == 0)
    for connection in unread:
        connection.close()


async def test_pipelined_requests_wait_in_the_kernel_during_an_answer(serve: Serve) -> None:
    port = await serve()
    with closing(socket.create_connection(port.address)) as connection:
        connection.sendall(GET_HELD)
        await until(lambda: port.held_count == 1)
        connection.settimeout(0)
        sent_bytes = 0
        with suppress(BlockingIOError):
            while sent_bytes < SENT_BYTES_MAX:
                sent_bytes += connection.send(GET * 1_000)
                await asyncio.sleep(0)

    assert sent_bytes < SENT_BYTES_MAX


async def test_listener_pauses_without_descriptors_and_recovers(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    port = await serve()
    await port.used_connection()
    loop, client_socket = asyncio.get_running_loop(), socket.socket()
    client_socket.settimeout(0)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, not paths
    fillers: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, limit[1]))
    try:
        with suppress(OSError):
            while True:
                fillers.append(os.dup(client_socket.fileno()))
        await loop.sock_connect(client_socket, port.address)
        await until(lambda: port.closed_count("evicted") == 1)
        await until(lambda: port.listener.connection_count == 1)
        await loop.sock_sendall(client_socket, GET)
        answer = await asyncio.wait_for(loop.sock_recv(client_socket, 1_000), WAIT_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for fd in fillers:
            os.close(fd)
        client_socket.close()

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(caplog.records) <= 1


REFUSED = b"POST /refused HTTP/1.1\r\nHost: localhost\r\n"
BODY_BYTES = 3 << 20


@pytest.mark.parametrize("expectation", [b"", b"Expect: 100-continue\r\n"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_rest_of_a_body_after_an_early_response_is_not_a_head(
    serve: Serve, expectation: bytes, *, is_chunked: bool
) -> None:
    port = await serve()
    reader, writer = await port.connect()
    framing = (
        b"Transfer-Encoding: chunked\r\n\r\n" if is_chunked else b"Content-Length: %d\r\n\r\n" % BODY_BYTES
    )
    writer.write(REFUSED + expectation + framing)
    head = await asyncio.wait_for(reader.readuntil(b"no\n"), WAIT_S)

    part = b"10000\r\n" + bytes(1 << 16) + b"\r\n" if is_chunked else bytes(1 << 16)
    for _ in range(BODY_BYTES >> 16):
        writer.write(part)
        await writer.drain()
    writer.write((b"0\r\n\r\n" if is_chunked else b"") + GET)

    rest = await asyncio.wait_for(reader.readuntil(b"ok\n"), WAIT_S)
    assert head.count(b"HTTP/1.1 403 ") == 1
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert port.closed_count("head_too_large") == 0
