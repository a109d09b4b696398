"""A proxy before a ClickHouse server, in the test's own process: what goes wrong, goes wrong here.

Whatever stands behind it, the suite's own server or a real one, is never asked to misbehave. A fault is a
function of one exchange, see `wrongs.py`. `meet` says which requests meet it; all others pass unharmed.
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
    """One request, whole."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def kind(self) -> Kind:
        """What the writer wants by it."""
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
        """As the client chose it."""
        return dict(parse_qsl(urlsplit(self.target).query)).get("query_id", "")


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def head(self) -> bytes:
        """Everything before the body."""
        lines = [f"HTTP/1.1 {self.status} Whatever", *(f"{k}: {v}" for k, v in self.headers.items())]
        lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


class Cut(Exception):  # noqa: N818 - an order, not an error
    """The connection is closed now."""


@dataclass(frozen=True)
class Exchange:
    """A request that met a fault, and everything the fault may do about it."""

    proxy: Proxy
    request: Request
    client: socket.socket

    def forward(self) -> Answer:
        """Let the server have it."""
        return self.proxy.ask(self.request)

    def send(self, *parts: bytes) -> None:
        """Send bytes as they are."""
        self.client.sendall(b"".join(parts))

    def answer(self, answer: Answer) -> None:
        """Send a whole answer."""
        self.send(answer.head, answer.body)

    def reset(self) -> NoReturn:
        """Cut the connection without a word."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Cut

    def end(self) -> NoReturn:
        """Close the connection in the middle of the answer."""
        raise Cut

    def hang(self) -> NoReturn:
        """Say nothing more until all is mended."""
        self.proxy.mended.wait(WAIT_S)
        self.reset()


Wrong = Callable[[Exchange], None]
"""What happens to an exchange."""


@dataclass
class Rule:
    """Which requests meet what."""

    wrong: Wrong
    on: frozenset[str]
    every: int
    times: int
    seen: int = 0

    def takes(self, kind: Kind) -> bool:
        """Whether this request is one of them; counts it."""
        if not self.times or not self.on & {kind, "any"}:
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.times -= 1
        return True


class Proxy:
    """Listens on a port of its own for as long as the `with` block lasts."""

    def __init__(self, upstream: tuple[str, int], *, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = upstream
        self.tls = tls
        self.mended = threading.Event()
        self.passed: Counter[str] = Counter()
        """Requests by kind, harmed or not."""
        self.harmed = 0
        self.inserts: list[str] = []
        """Query ids of all INSERTs that came, in order."""
        self._changed = threading.Condition()
        self._rules: list[Rule] = []
        self._clients: set[socket.socket] = set()
        self._listening: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.mend()
        self.down()

    def up(self) -> None:
        """Listen, on the same port as before; if it does already, nothing changes."""
        if self._listening is not None:
            return
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def down(self) -> None:
        """Be gone: cut every connection, refuse new ones."""
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

    def meet(
        self, wrong: Wrong, *, on: str | tuple[str, ...] = "insert", every: int = 1, times: int = -1
    ) -> None:
        """From now on every `every`-th such request goes wrong, so many times, or until it is mended."""
        self.mended.clear()
        kinds = frozenset([on] if isinstance(on, str) else on)
        with self._changed:
            self._rules.append(Rule(wrong, kinds, every, times))

    def mend(self) -> None:
        """Let everything pass again; what hangs is cut."""
        with self._changed:
            self._rules.clear()
        self.mended.set()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Until requests have made it so."""
        with self._changed:
            assert self._changed.wait_for(is_so, WAIT_S), f"after {WAIT_S} s: {dict(self.passed)}"

    def wait_until_harmed(self, count: int) -> None:
        """Until so many requests, all in all, met a fault."""
        self.wait_until(lambda: self.harmed >= count)

    def ask(self, request: Request) -> Answer:
        """Ask the server itself."""
        upstream = http.client.HTTPConnection(*self.upstream, timeout=WAIT_S)
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        try:
            upstream.request(request.method, request.target, request.body, headers)
            found = upstream.getresponse()
            kept = {name: value for name, value in found.getheaders() if name.lower() not in HOP_BY_HOP}
            return Answer(found.status, kept, found.read())
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
            with suppress(Cut, OSError, ValueError, http.client.HTTPException):
                client = self._wrapped(client)
                with client.makefile("rb") as stream:
                    while request := read_request(stream):
                        self._handle(Exchange(self, request, client))
        finally:
            self._clients.discard(client)
            client.close()

    def _wrapped(self, client: socket.socket) -> socket.socket:
        if self.tls is None:
            return client
        self._clients.discard(client)
        wrapped = self.tls.wrap_socket(client, server_side=True)
        self._clients.add(wrapped)
        return wrapped

    def _handle(self, exchange: Exchange) -> None:
        kind = exchange.request.kind
        with self._changed:
            self.passed[kind] += 1
            if kind == "insert":
                self.inserts.append(exchange.request.query_id)
            taken = [rule for rule in self._rules if rule.takes(kind)]
        try:
            if taken:
                taken[0].wrong(exchange)
            else:
                exchange.answer(exchange.forward())
        finally:
            with self._changed:
                self.harmed += bool(taken)
                self._changed.notify_all()


def read_request(stream: IO[bytes]) -> Request | None:
    """Read one request; none: the client has no more."""
    lines: list[str] = []
    while (line := stream.readline()) not in {b"\r\n", b""}:
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    if not lines:
        return None
    method, target, _ = lines[0].split(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in lines[1:])
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
