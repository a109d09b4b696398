"""Fault-injecting proxy in front of a ClickHouse server, in the test's own process.

The server behind it, fake or real, never has to misbehave. A failure is a function of one exchange, see
`failures.py`. `inject` selects the requests that fail; all others are forwarded.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Literal, NoReturn, Self
from urllib.parse import parse_qsl, urlsplit

WAIT_S = 60.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}

Kind = Literal["insert", "count", "running", "kill", "other"]


@dataclass(frozen=True)
class Request:
    """One whole request."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def kind(self) -> Kind:
        """The purpose of this request in the writer."""
        url = dict(parse_qsl(urlsplit(self.target).query))
        sql = url.get("query", "") or self.body.decode(errors="replace")
        if sql.startswith("INSERT INTO otel_traces FORMAT Native"):
            return "insert"
        if "_partition_id" in sql:
            return "count"
        if sql.startswith("KILL QUERY"):
            return "kill"
        return "running" if "system.processes" in sql else "other"

    @property
    def query_id(self) -> str:
        """The query id that the client chose."""
        return dict(parse_qsl(urlsplit(self.target).query)).get("query_id", "")


@dataclass(frozen=True)
class Answer:
    """A response to the client."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def head(self) -> bytes:
        """Status line and headers."""
        lines = [f"HTTP/1.1 {self.status} Injected", *(f"{k}: {v}" for k, v in self.headers.items())]
        lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


class CloseConnection(Exception):  # noqa: N818 - control flow, not an error
    """The proxy closes the client's connection now."""


@dataclass(frozen=True)
class Exchange:
    """A request selected to fail, and the operations a failure can use."""

    proxy: Proxy
    request: Request
    client: socket.socket

    def forward(self) -> Answer:
        """Forward the request to the server and return its response."""
        return self.proxy.ask(self.request)

    def send(self, *parts: bytes) -> None:
        """Send bytes to the client unchanged."""
        self.client.sendall(b"".join(parts))

    def answer(self, answer: Answer) -> None:
        """Send a whole response."""
        self.send(answer.head, answer.body)

    def reset(self) -> NoReturn:
        """Reset the connection without a response."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise CloseConnection

    def end(self) -> NoReturn:
        """Close the connection in the middle of the response."""
        raise CloseConnection

    def hang(self) -> NoReturn:
        """Send nothing more until the faults are healed, then reset the connection."""
        self.proxy.healed.wait(WAIT_S)
        self.reset()


Failure = Callable[[Exchange], None]
"""Handles a selected exchange in place of the proxy."""


@dataclass
class Rule:
    """Selection of requests that fail, and their failure."""

    failure: Failure
    on: frozenset[str]
    every: int
    times: int
    seen: int = 0

    def matches(self, kind: Kind) -> bool:
        """Return whether this request is to fail, and count it."""
        if not self.times or not self.on & {kind, "any"}:
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.times -= 1
        return True


class Proxy:
    """A proxy that listens on its own port during a `with` block."""

    def __init__(self, upstream: tuple[str, int], *, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = upstream
        self.tls = tls
        self.healed = threading.Event()
        self.requests: Counter[str] = Counter()
        """Requests by kind, failed ones included."""
        self.failed_count = 0
        self.inserts: list[str] = []
        """Query ids of all INSERTs, in order of arrival."""
        self._changed = threading.Condition()
        self._rules: list[Rule] = []
        self._clients: set[socket.socket] = set()
        self._listening: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self.down()

    def up(self) -> None:
        """Listen on the same port as before; no effect if already listening."""
        if self._listening is not None:
            return
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def down(self) -> None:
        """Stop listening: close every connection and refuse new ones."""
        with self._changed:
            listening, self._listening = self._listening, None
            clients = list(self._clients)
        assert listening
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def inject(
        self, failure: Failure, *, on: str | tuple[str, ...] = "insert", every: int = 1, times: int = -1
    ) -> None:
        """From now on, fail every `every`-th matching request, `times` times or until `heal`."""
        self.healed.clear()
        kinds = frozenset([on] if isinstance(on, str) else on)
        with self._changed:
            self._rules.append(Rule(failure, kinds, every, times))

    def heal(self) -> None:
        """Forward all requests again; reset hanging connections."""
        with self._changed:
            self._rules.clear()
        self.healed.set()

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until handled requests have made the condition true."""
        with self._changed:
            assert self._changed.wait_for(is_true, WAIT_S), f"after {WAIT_S} s: {dict(self.requests)}"

    def wait_until_failed(self, count: int) -> None:
        """Wait until `count` requests in total have failed."""
        self.wait_until(lambda: self.failed_count >= count)

    def ask(self, request: Request) -> Answer:
        """Send the request to the server and return its response."""
        upstream = http.client.HTTPConnection(*self.upstream, timeout=WAIT_S)
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        try:
            upstream.request(request.method, request.target, request.body, headers)
            response = upstream.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
            return Answer(response.status, kept, response.read())
        finally:
            upstream.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with self._changed:
                if listening is not self._listening:
                    client.close()
                    return
                self._clients.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with suppress(CloseConnection, OSError, ValueError, http.client.HTTPException):
                client = self._with_tls(client)
                with client.makefile("rb") as stream:
                    while request := read_request(stream):
                        self._handle(Exchange(self, request, client))
        finally:
            self._clients.discard(client)
            client.close()

    def _with_tls(self, client: socket.socket) -> socket.socket:
        if self.tls is None:
            return client
        self._clients.discard(client)
        wrapped = self.tls.wrap_socket(client, server_side=True)
        self._clients.add(wrapped)
        return wrapped

    def _handle(self, exchange: Exchange) -> None:
        kind = exchange.request.kind
        with self._changed:
            self.requests[kind] += 1
            if kind == "insert":
                self.inserts.append(exchange.request.query_id)
            matching = [rule for rule in self._rules if rule.matches(kind)]
        try:
            if matching:
                matching[0].failure(exchange)
            else:
                exchange.answer(exchange.forward())
        finally:
            with self._changed:
                self.failed_count += bool(matching)
                self._changed.notify_all()


def read_request(stream: IO[bytes]) -> Request | None:
    """Read one request, or return None at the end of the stream."""
    lines: list[str] = []
    while (line := stream.readline()) not in {b"\r\n", b""}:
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    if not lines:
        return None
    method, target, _ = lines[0].split(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
    }
    if "chunked" in headers.get("transfer-encoding", ""):
        return Request(method, target, headers, read_chunks(stream))
    body = stream.read(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


def read_chunks(stream: IO[bytes]) -> bytes:
    """Read a chunked body."""
    parts = []
    while length := int(stream.readline().split(b";")[0], 16):
        parts.append(stream.read(length))
        stream.readline()
    stream.readline()
    return b"".join(parts)
