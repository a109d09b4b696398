"""A client that holds the wire itself: sends a part, stops, reads a part, resets, or just goes silent."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

TIMEOUT_S = 30.0
REFUSED = -1
"""Never seen while there is a supervisor: exporters lose data at a closed port."""


def post_head(body_bytes: int, *, path: str = "/v1/traces", headers: str = "") -> bytes:
    """The head of a delivery in JSON."""
    fixed = f"POST {path} HTTP/1.1\r\nhost: receiver\r\ncontent-type: application/json\r\n"
    return f"{fixed}{headers}content-length: {body_bytes}\r\n\r\n".encode()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    is_last: bool
    """The connection is not to be used again."""


class Wire:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def reset(self) -> None:
        """End with a reset, as a machine that is gone does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def answer(self) -> Answer:
        """Read one answer. Raises `ConnectionError` where there is none."""
        came = b""
        while b"\r\n\r\n" not in came:
            came += self._more()
        head, _, body = came.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        while len(body) < length:
            body += self._more()
        return Answer(int(lines[0].split()[1]), b"connection: close" in lines)

    def _more(self) -> bytes:
        piece = self.socket.recv(65_536)
        if not piece:
            raise ConnectionError("closed before the answer")
        return piece


def post(address: tuple[str, int], body: bytes, *, headers: str = "") -> int:
    """Post once on a connection of its own. The status; 0: none came, `REFUSED`: nobody listened."""
    try:
        with Wire(address) as wire:
            wire.socket.sendall(post_head(len(body), headers=headers) + body)
            return wire.answer().status
    except ConnectionRefusedError:
        return REFUSED
    except OSError:
        return 0
