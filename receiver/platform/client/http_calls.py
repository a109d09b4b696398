"""One HTTP call to the platform or its gateway: address, limits, retries, and an error for each failure.

Invariant: only a GET is repeated. Redirects are not followed, so that the token goes to no other address.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from receiver.config.platform import is_address
from receiver.http.media_types import JSON
from receiver.platform.client import retries
from receiver.platform.client.answers import Remote, error_of
from receiver.platform.client.core_dumps import forbid_core_dumps
from receiver.platform.client.errors import (
    AddressMissing,
    AnswerCut,
    AnswerTooLarge,
    PlatformError,
    RateLimited,
    TimedOut,
    TryLater,
    Unreachable,
    WrongAnswer,
)
from receiver.settings import MIB
from receiver.sizes import size_text

ANSWER_BYTES_MAX = 64 * MIB
"""Maximum size of an answer that is read as a whole."""
CONNECTIONS_MAX = 16
REPEATED_STATUSES: Final = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""Statuses of a proxy or an overloaded server, after which another attempt often succeeds."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Its representation has no body, which may hold a secret."""

    method: str
    path: Sequence[str]
    """Segments, not yet encoded."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    content_type: str = JSON
    accept: str = JSON


class HttpCaller:
    """Sends requests to one server with one secret."""

    def __init__(
        self,
        remote: Remote,
        base_url: str,
        secret: str = "",
        *,
        timeout_s: float = 30.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Raise `AddressMissing` for an unusable address or secret. `secret`: empty if none is needed."""
        if secret:
            forbid_core_dumps()
        self.remote = remote
        self._base = _checked_base(base_url, remote)
        self._headers = _authorization(secret, remote)
        self._secret = secret
        self.timeout_s = timeout_s
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None
        self._behind_s = 0.0
        """Time by which the server's clock is behind that of this machine, from its last response."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A compressed answer is refused as not JSON: a small one could expand without limit.
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def now_ms(self) -> int:
        """Return the server's time from its last response, or that of this machine if it is earlier."""
        return int((time.time() - self._behind_s) * 1_000)

    async def call(self, request: Request, secrets: Sequence[str] = ()) -> bytes:
        """Return the body of a successful answer. Repeats a GET. `secrets`: more texts to hide in errors."""
        for attempt, delay_s in enumerate(retries.delays_s(), 1):
            try:
                return await self._called_once(request, secrets)
            except (TryLater, AnswerCut) as failure:
                wait_s = _wait_s(failure, delay_s)
                if request.method != "GET" or attempt >= retries.ATTEMPTS_MAX or wait_s is None:
                    raise
            await self._sleep(wait_s)
        raise AssertionError  # the delays have no end

    async def _called_once(self, request: Request, secrets: Sequence[str]) -> bytes:
        # The time limit is for the whole call; the one of the session for each wait.
        try:
            async with asyncio.timeout(self.timeout_s), self.opened(request, secrets) as pieces:
                return await _whole(pieces, self.remote)
        except TimeoutError:
            raise timed_out(self.remote, self.timeout_s) from None

    @asynccontextmanager
    async def opened(
        self, request: Request, secrets: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send the request once, and yield the pieces of a successful answer's body.

        Raises `PlatformError`, also inside the block when the connection fails.
        """
        if self._session is None:
            raise RuntimeError("the client is not open; use it in `async with`")
        url = self._url(request)
        with failures_converted(self.remote, self._base.netloc, self.timeout_s):
            # A time limit for the head, which may arrive slowly too.
            async with asyncio.timeout(self.timeout_s):
                answer = await self._session.request(
                    request.method,
                    url,
                    data=request.body,
                    headers=self._headers_of(request),
                    allow_redirects=False,
                    proxy=_proxy_of(url),
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=self.timeout_s, sock_read=self.timeout_s
                    ),
                )
            sent_s, now_s = retries.parse_date(answer.headers.get("Date", "")), time.time()
            self._behind_s = 0.0 if sent_s is None else max(0.0, now_s - sent_s)
            async with answer:
                if answer.status != HTTPStatus.OK:
                    async with asyncio.timeout(self.timeout_s):
                        raise await error_of(answer, self.remote, [self._secret, *secrets], time.time())
                yield answer.content.iter_any()

    def _url(self, request: Request) -> URL:
        # Encoded here, because a library may resolve `..` in a path that is not encoded.
        path = "/".join([self._base.path.rstrip("/"), *(quote(part, safe="") for part in request.path)])
        return URL(self._base._replace(path=path, query=urlencode(request.query)).geturl(), encoded=True)

    def _headers_of(self, request: Request) -> dict[str, str]:
        headers = {**self._headers, "Accept": request.accept, "Accept-Encoding": "identity"}
        return headers if request.body is None else {**headers, "Content-Type": request.content_type}


def _wait_s(failure: TryLater | AnswerCut, delay_s: float) -> float | None:
    """Return the time until the next attempt; `None` if another attempt is not allowed."""
    requested_s = failure.retry_after_s if isinstance(failure, TryLater) else None
    if isinstance(failure, RateLimited) and requested_s is None:
        return None
    if requested_s is not None and requested_s > retries.RETRY_AFTER_S_MAX:
        return None
    if isinstance(failure, TimedOut) or (failure.status and failure.status not in REPEATED_STATUSES):
        return None
    return (requested_s or 0.0) + delay_s


async def _whole(pieces: AsyncIterator[bytes], remote: Remote) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            raise AnswerTooLarge(
                f"{remote.name} answered more than {size_text(ANSWER_BYTES_MAX)}; ask for less"
            )
    return bytes(body)


def _checked_base(base_url: str, remote: Remote) -> SplitResult:
    """Return the address. Raises `AddressMissing` without quoting it: it may hold a password."""
    if not base_url:
        raise AddressMissing(f"no address of {remote.name}; set {remote.address_from}")
    if not is_address(base_url):
        raise AddressMissing(
            f"the address of {remote.name} is not usable; expected {remote.address_from} like "
            "https://api.example.com, without user and password"
        )
    parts = urlsplit(base_url)
    if parts.query or parts.fragment:
        raise AddressMissing(
            f"the address of {remote.name} has a query; expected {remote.address_from} without"
        )
    return parts


def _authorization(secret: str, remote: Remote) -> dict[str, str]:
    if not secret:
        return {}
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise AddressMissing(
            f"the secret from {remote.secret_from} has characters that no header may have; expected ASCII "
            "letters, digits and punctuation"
        )
    return {"Authorization": f"Bearer {secret}"}


def _proxy_of(url: URL) -> str | None:
    """Return the proxy that the environment names for this address, if any.

    Not aiohttp's `trust_env`, which also reads ~/.netrc and then refuses a request that has a token.
    """
    proxies = urllib.request.getproxies_environment()
    host = f"{url.host}:{url.port}"
    if urllib.request.proxy_bypass_environment(host, proxies):  # type: ignore[attr-defined]  # not in typeshed
        return None
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy.startswith(("http://", "https://")):
        raise AddressMissing(
            f"the proxy in the environment variable {url.scheme}_proxy or all_proxy is not usable; expected "
            "http://HOST:PORT"
        )
    return proxy


@contextmanager
def failures_converted(remote: Remote, netloc: str, timeout_s: float) -> Iterator[None]:
    """Convert errors of the HTTP library to `PlatformError`.

    Without the cause: its representation has the headers of the request, and so the token.
    """
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise _converted(error, remote, f"{remote.name} at {netloc}", timeout_s) from None


def timed_out(remote: Remote, timeout_s: float) -> TimedOut:
    """Return the error of a call that took too long."""
    return TimedOut(
        f"{remote.name} did not answer within {timeout_s:g} s",
        advice="try again, or raise platform.timeout_s",
    )


def _converted(error: Exception, remote: Remote, where: str, timeout_s: float) -> PlatformError:
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
        return timed_out(remote, timeout_s)
    kind, text = next((kind, text) for cause, kind, text in _FAILURES if isinstance(error, cause))
    reason = text.format(where=where, reason=_reason(error), check=f"check {remote.address_from}")
    return kind(reason, advice="try again" if text == _CLOSED else "")


def _reason(error: Exception) -> str:
    """Return the reason in the words of the system, or the name of the error. Never a text with input."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.strerror:
        return error.os_error.strerror
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"HTTP {error.status}"
    return type(error).__name__


_CLOSED: Final = "{where} closed the connection without an answer"
_FAILURES: Final[tuple[tuple[type[Exception], type[PlatformError], str], ...]] = (
    (aiohttp.ConnectionTimeoutError, Unreachable, "{where} cannot be reached in time; {check}"),
    (aiohttp.ClientPayloadError, AnswerCut, "the connection to {where} closed before the end of the answer"),
    (aiohttp.ClientHttpProxyError, Unreachable, "the proxy refuses a connection to {where}: {reason}"),
    (
        aiohttp.ClientSSLError,
        Unreachable,
        "{where} has no trusted certificate; {check} and the CAs of this machine",
    ),
    (aiohttp.ClientConnectorError, Unreachable, "{where} cannot be reached: {reason}; {check}"),
    (aiohttp.ClientConnectionError, Unreachable, _CLOSED),
    (OSError, Unreachable, "{where} cannot be reached: {reason}; {check}"),
    (Exception, WrongAnswer, "{where} does not answer in HTTP ({reason}); {check}"),
)
"""Error and message of each failure; the first entry that fits is used."""
