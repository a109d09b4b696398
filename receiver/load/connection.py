"""One connection: requests out, answers in. Knows bytes, not what they mean for a request."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from receiver.load.answer import Answer, NotHttp, answer_in

KNOWN_ANSWERS_MAX = 1_000
RESET = "reset"


class Owner(Protocol):
    """Who is told."""

    def answered(self, answer: Answer) -> None:
        """Take a whole answer."""

    def failed(self, how: str) -> None:
        """The connection is gone, or was of no use."""


class Connection(asyncio.Protocol):
    """A connection that tells its owner, until it hangs up."""

    def __init__(self, owner: Owner, known: dict[bytes, Answer]) -> None:
        """`known`: whole answers that were read before. Most are the same to the byte."""
        self._owner: Owner | None = owner
        self._known = known
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def send(self, head: bytes, body: bytes) -> None:
        """Send a request."""
        if self._transport is not None:
            self._transport.writelines((head, body))

    def hang_up(self) -> None:
        """Tell nobody anything any more."""
        self._owner = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it, if it is still wanted."""
        self._transport = cast("asyncio.Transport", transport)
        if self._owner is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read an answer."""
        if self._owner is None:
            return
        known = self._known.get(data)
        if known is not None and not self._received:
            self._owner.answered(known)
            return
        self._received += data
        try:
            found = answer_in(self._received)
        except NotHttp:
            self._owner.failed("no HTTP")
            return
        if found is not None:
            answer, length = found
            self._remember(self._received[:length], answer)
            self._received = b""
            self._owner.answered(answer)

    def _remember(self, whole: bytes, answer: Answer) -> None:
        if len(self._known) >= KNOWN_ANSWERS_MAX:
            self._known.clear()
        self._known[whole] = answer

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Tell the owner, if it did not hang up itself."""
        if self._owner is not None:
            self._owner.failed(RESET)
