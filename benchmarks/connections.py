"""CPU time of a request on a connection of its own, as short-lived functions send it.

connect ─▶ TLS handshake (full, or resumed by a ticket) ─▶ one POST ─▶ close
"""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import sink as sinks
from benchmarks.peers import Environment, MeasurementError, Peer, make_certificate
from benchmarks.processes import Cores, Usage, usage_of
from trace_drain_testing.load.requests import LoadRequest, Recipe, RequestStream
from trace_drain_testing.load.traffic import Shape

CLIENTS = 16
REQUESTS_OF_A_CLIENT = 100
WARM_UP = 5
SPANS = 10
GOALS_MS = {"TLS, full handshake": 1.5, "TLS, resumed": 0.5}


@dataclass(frozen=True)
class Kind:
    """A way in which each request gets its connection."""

    name: str
    uses_tls: bool = False
    is_resumed: bool = False


KINDS = (
    Kind("plain"),
    Kind("TLS, full handshake", uses_tls=True),
    Kind("TLS, resumed", uses_tls=True, is_resumed=True),
)


def cpu_ms_per_request(peer: Peer, cores: Cores, kind: Kind) -> float:
    """Return the CPU time of all processes of a receiver for one request, in milliseconds."""
    with (
        tempfile.TemporaryDirectory(prefix="trace-drain-bench-") as name,
        sinks.running(cores.others) as sink,
    ):
        directory = Path(name)
        certificate = make_certificate(directory) if kind.uses_tls else None
        environment = Environment(directory, sink, cores.receiver, certificate=certificate)
        with peer.running(environment) as running:
            address = urlsplit(running.url)
            tls = ssl.create_default_context(cafile=certificate.ca_file) if certificate else None
            clients = [
                _client(address.port or 0, address.path, tls, number, is_resumed=kind.is_resumed)
                for number in range(CLIENTS)
            ]
            _run(clients, WARM_UP)
            before = [usage_of(pid) for pid in running.roles]
            _run(clients, REQUESTS_OF_A_CLIENT)
            used = sum(
                (usage_of(pid) - start for pid, start in zip(running.roles, before, strict=True)), Usage()
            )
            return used.cpu_s / (CLIENTS * REQUESTS_OF_A_CLIENT) * 1e3


def _run(clients: list[Iterator[bool]], count: int) -> None:
    """Let every client send `count` requests, each client in a thread of its own."""
    answered: list[bool] = []
    threads = [
        threading.Thread(target=lambda client=client: answered.extend(islice(client, count)))
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(answered) != len(clients) * count or not all(answered):
        raise MeasurementError("a request on a connection of its own was not answered with 200 as expected")


def _client(
    port: int, path: str, tls: ssl.SSLContext | None, number: int, *, is_resumed: bool
) -> Iterator[bool]:
    """Yield, for each request on a new connection, whether it was answered and resumed as required."""
    recipe = Recipe(Shape(spans=SPANS), number.to_bytes(3), "127.0.0.1", path or "/v1/traces")
    requests, session = RequestStream(recipe), None
    while request := requests.next():
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            if tls is None:
                yield _is_accepted(plain, request)
                continue
            with tls.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as stream:
                # The first handshake has no ticket yet.
                is_as_required = session is None or bool(stream.session_reused)
                yield _is_accepted(stream, request) and is_as_required
                # A server sends its tickets after the handshake, so they arrive with the answer.
                session = stream.session if is_resumed else None


def _is_accepted(stream: socket.socket, request: LoadRequest) -> bool:
    stream.sendall(request.head + request.body)
    return stream.recv(4_096).startswith(b"HTTP/1.1 200 ")
