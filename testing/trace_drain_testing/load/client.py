"""OTLP client: sends one request at a time, and retries the same bytes until a final response.

Uses callbacks instead of coroutines: with 10 spans per request, a future per request would double the cost.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import NamedTuple

from receiver.backoff import backoff_s
from trace_drain_testing.load.answer import RETRYABLE, ParsedAnswer
from trace_drain_testing.load.connection import RESET, Connection
from trace_drain_testing.load.plan import tls_context
from trace_drain_testing.load.requests import LoadRequest
from trace_drain_testing.load.tally import Tally

NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""OpenSSL's errors for an answer in plain text, in all of its releases."""
EXPECTED_TLS = "the server expects TLS, and the URL has http; expected https://"
EXPECTED_PLAIN = "the server does not use TLS, and the URL has https; expected http://, or another port"


def failure_text(reason: OSError) -> str:
    match reason:
        case TimeoutError():
            return "time-out"
        case ConnectionRefusedError():
            return "connection refused"
        case ssl.SSLError():
            return f"TLS: {reason.reason or 'failed'}"
        case _:
            return "no connection"


def permanent_error(reason: OSError) -> str:
    """Return the change without which no connection can succeed; empty if a retry may succeed."""
    match reason:
        case ssl.SSLCertVerificationError():
            why = reason.verify_message.rstrip(".")
            return f"certificate is not trusted: {why}; expected one that --ca FILE trusts, or --insecure"
        case ssl.SSLError() if reason.reason in NOT_TLS:
            return EXPECTED_PLAIN
        case _:
            return ""


async def speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    # Whether the certificate is trusted does not matter: only the protocol is in question.
    context = tls_context(ca_file=None, is_insecure=True)
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError:
        return False
    # Without waiting for the server to close.
    writer.transport.abort()
    return True


BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 5.0
JITTER = 0.2


class Target(NamedTuple):
    """Address of the receiver, and timeouts of a client."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    timeout_s: float = 10.0
    """Timeout of one attempt; the default is that of SDKs."""
    patience_s: float = 60.0
    """Timeout of a request with all its retries."""


class ClientContext:
    """State that all clients share: source of requests and destination of results."""

    def __init__(
        self,
        target: Target,
        tally: Tally,
        next_request: Callable[[], LoadRequest | None],
        on_permanent_error: Callable[[str], None],
    ) -> None:
        """`next_request` returns the next request with its due time.

        `on_permanent_error` is called with an error that no retry can fix.
        """
        self.target = target
        self.tally = tally
        self.next_request = next_request
        self.on_permanent_error = on_permanent_error
        self._probe: asyncio.Task[None] | None = None
        self.known: dict[bytes, ParsedAnswer] = {}

    def failed(self, reason: str) -> None:
        """Count an attempt without a response; before the first response, probe for TLS."""
        self.tally.failed(reason)
        if (
            reason == RESET
            and self.target.tls is None
            # One probe per run is enough to detect a wrong scheme.
            and self._probe is None
            and not self.tally.was_answered
        ):
            self._probe = asyncio.get_running_loop().create_task(self._probe_tls())

    async def _probe_tls(self) -> None:
        target = self.target
        # Checked again after the handshake: a response in the meantime shows that the scheme is right.
        if await speaks_tls(target.host, target.port, target.timeout_s) and not self.tally.was_answered:
            self.on_permanent_error(EXPECTED_TLS)


class Client:
    """Client that sends one request after another, and reconnects when its connection closes."""

    def __init__(self, context: ClientContext, on_end: Callable[[], None]) -> None:
        self._context, self._on_end = context, on_end
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._request: LoadRequest | None = None
        self._deadline_s = 0.0
        """Time at which the current attempt times out; 0 if none is running."""
        self._has_ended = False
        self._delays_s: Iterator[float] = iter(())
        """Delays before the retries of the current request whose answer has no `Retry-After`."""

    def take_next(self) -> None:
        """Send the next request, or end."""
        self._request = request = self._context.next_request()
        if request is None:
            self.end()
            self._on_end()
            return
        ahead_s = request.intended_s - time.perf_counter()
        if ahead_s > 0:
            # Open loop: wait until the request is due, even if earlier requests failed.
            self._loop.call_later(ahead_s, self._try)
        else:
            self._try()

    def check(self, now_s: float) -> None:
        """Fail the current attempt if it has timed out."""
        if self._deadline_s and now_s > self._deadline_s:
            self.failed("time-out")

    def end(self) -> None:
        """Drop the request in flight and close the connection."""
        # A request that is not due yet was never sent, so it is not unfinished.
        self._context.tally.unfinished += self._request is not None and self._request.attempts > 0
        self._request, self._has_ended = None, True
        self._hang_up()

    def answered(self, answer: ParsedAnswer) -> None:
        request, tally, now_s = self._request, self._context.tally, time.perf_counter()
        # A server may send an error before it closes an idle connection, like 408.
        if request is None or not self._deadline_s:
            self.failed("an answer without a request")
            return
        # The attempt has ended: `check` must not time out a request that waits for its retry.
        self._deadline_s = 0.0
        tally.answered(answer)
        if answer.is_last:
            self._hang_up()
        if answer.status == HTTPStatus.OK:
            tally.accepted(request, answer, now_s - request.intended_s)
        elif answer.status in RETRYABLE:
            self._retry_later(request, answer.retry_after_s)
            return
        else:
            tally.refused += 1
        self.take_next()

    def failed(self, reason: str) -> None:
        # A server may close an idle connection at any time; this is not a failure.
        had_begun = bool(self._deadline_s)
        self._hang_up()
        if had_begun and self._request is not None:
            self._context.failed(reason)
            self._retry_later(self._request, None)

    def _try(self) -> None:
        request = self._request
        # The timer of a retry may fire after the run has ended.
        if request is None or self._has_ended:
            return
        now_s = time.perf_counter()
        self._deadline_s = now_s + self._context.target.timeout_s
        # A timer may fire early; latency must not be negative.
        request.intended_s = min(request.intended_s, now_s)
        request.attempts += 1
        self._context.tally.retries += request.attempts > 1
        if self._connection is None:
            # Keep a reference: the event loop holds tasks only weakly.
            self._connecting = self._loop.create_task(self._connect(request))
        else:
            self._send(request, self._connection)

    def _send(self, request: LoadRequest, connection: Connection) -> None:
        self._context.tally.bytes_sent += len(request.body)
        connection.send(request.head, request.body)

    async def _connect(self, request: LoadRequest) -> None:
        target = self._context.target
        connection = self._connection = Connection(self, self._context.known)
        try:
            async with asyncio.timeout(target.timeout_s):
                await self._loop.create_connection(
                    lambda: connection, target.host, target.port, ssl=target.tls
                )
        except OSError as error:
            if self._connection is connection:  # the attempt has not timed out in the meantime
                self.failed(failure_text(error))
            if advice := permanent_error(error):
                self._context.on_permanent_error(advice)
            return
        # Otherwise the attempt timed out while it was connecting, and another one may be running.
        if self._connection is connection:
            self._deadline_s = time.perf_counter() + target.timeout_s
            self._send(request, connection)

    def _retry_later(self, request: LoadRequest, retry_after_s: float | None) -> None:
        if request.attempts <= 1:
            self._delays_s = backoff_s(BACKOFF_FIRST_S, BACKOFF_MAX_S, jitter=JITTER)
        delay_s = next(self._delays_s) if retry_after_s is None else retry_after_s
        # Give up now if the retry would be too late.
        if time.perf_counter() + delay_s > request.intended_s + self._context.target.patience_s:
            self._context.tally.given_up += 1
            self.take_next()
        else:
            self._loop.call_later(delay_s, self._try)

    def _hang_up(self) -> None:
        self._deadline_s = 0.0
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.hang_up()
