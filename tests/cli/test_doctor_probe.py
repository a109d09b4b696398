"""Requests of the doctor end at their time-out, whatever a server sends, and its dates may be anything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from receiver.doctor.probe import Target
from receiver.doctor.step import StepFailed

TIMEOUT_S = 0.4


@pytest.fixture
def trickling_port() -> Iterator[int]:
    """Yield the port of a server that sends a byte of its answer every 50 ms until the client closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as connection:
            while True:
                connection.sendall(b"H")
                threading.Event().wait(0.05)

    server = threading.Thread(target=serve)
    server.start()
    with listener:
        yield listener.getsockname()[1]
        server.join()


def test_request_to_a_trickling_server_ends_although_another_address_does_not_answer(
    trickling_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.create_connection

    def unanswered(address: tuple[str, int], timeout_s: float) -> socket.socket:
        if address[0] == "192.0.2.1":
            threading.Event().wait(timeout_s)
            raise TimeoutError
        return connect(address, timeout_s)

    monkeypatch.setattr(socket, "create_connection", unanswered)
    addresses = ["192.0.2.1", "127.0.0.1"]
    target = Target("traces.example", trickling_port, "/", False, TIMEOUT_S, addresses=addresses)  # noqa: FBT003

    # Without a deadline for the whole exchange, it would never end.
    with pytest.raises(StepFailed, match="is not answered"):
        target.request("GET", {})
