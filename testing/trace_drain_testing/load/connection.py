"""Client connection: sends requests and parses responses, without interpreting them."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from trace_drain_testing.load.answer import NotHttp, ParsedAnswer, answer_in

KNOWN_ANSWERS_MAX = 1_000
RESET = "reset"


class Owner(Protocol):
    """Receiver of a connection's events."""

    def answered(self, answer: ParsedAnswer) -> None:
        """Handle a complete response."""

    def failed(self, reason: str) -> None:
        """Handle a connection that closed or could not be used."""


class Connection(asyncio.Protocol):
    """Connection that reports to its owner until the owner hangs up."""

    def __init__(self, owner: Owner, known: dict[bytes, ParsedAnswer]) -> None:
        """`known`: cache of parsed responses by their bytes, because most are identical."""
        self._owner: Owner | None = owner
        self._known = known
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def send(self, head: bytes, body: bytes) -> None:
        """Send a request."""
        if self._transport is not None:
            # Two parts, because joining them would copy the body.
            self._transport.writelines((head, body))

    def hang_up(self) -> None:
        """Close the connection without reporting it."""
        # First, because `abort` calls `connection_lost`, which must not be reported.
        self._owner = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, unless the owner has hung up."""
        self._transport = cast("asyncio.Transport", transport)
        # The attempt timed out while the connection was being made.
        if self._owner is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse received data and report a complete response."""
        if self._owner is None:
            return
        known = self._known.get(data)
        # Only at the start of a response: the same bytes could be the end of another one.
        if known is not None and not self._received:
            self._owner.answered(known)
            return
        self._received += data
        try:
            parsed = answer_in(self._received)
        except NotHttp:
            self._owner.failed("no HTTP")
            return
        if parsed is not None:
            answer, length = parsed
            self._remember(self._received[:length], answer)
            self._received = b""
            self._owner.answered(answer)

    def _remember(self, raw: bytes, answer: ParsedAnswer) -> None:
        # Responses with a varying part would otherwise fill the memory; clearing the cache is cheap and rare.
        if len(self._known) >= KNOWN_ANSWERS_MAX:
            self._known.clear()
        self._known[raw] = answer

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Report the loss, unless the owner has hung up."""
        if self._owner is not None:
            self._owner.failed(RESET)
