"""HTTP client with control of its socket: sends a part, stops, reads a part, resets, or goes silent."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

TIMEOUT_S = 30.0
NO_ANSWER = 0
REFUSED = -1
"""The port was closed, which must not happen while a supervisor runs: exporters then lose data."""


def post_head(body_bytes: int, *, path: str = "/v1/traces", headers: str = "") -> bytes:
    """Return the request line and headers of a JSON delivery."""
    fixed = f"POST {path} HTTP/1.1\r\nhost: receiver\r\ncontent-type: application/json\r\n"
    return f"{fixed}{headers}content-length: {body_bytes}\r\n\r\n".encode()


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int
    is_last: bool
    """The response announces that the connection will be closed."""


class Wire:
    """One client connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with a reset, as a machine that lost power does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def answer(self) -> Answer:
        """Read one response. Raises `ConnectionError` if there is none."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        while len(body) < length:
            body += self._more()
        return Answer(int(lines[0].split()[1]), b"connection: close" in lines)

    def _more(self) -> bytes:
        piece = self.socket.recv(65_536)
        if not piece:
            raise ConnectionError("the receiver closed the connection before it answered")
        return piece


def post(address: tuple[str, int], body: bytes, *, headers: str = "") -> int:
    """Post once on a new connection. Returns the status, `NO_ANSWER` or `REFUSED`."""
    try:
        with Wire(address) as wire:
            wire.socket.sendall(post_head(len(body), headers=headers) + body)
            return wire.answer().status
    except ConnectionRefusedError:
        return REFUSED
    except OSError:
        return NO_ANSWER
