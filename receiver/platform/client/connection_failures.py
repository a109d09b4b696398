"""Errors of the HTTP library, as errors of the platform's tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import aiohttp

from receiver.platform.client.errors import AnswerCut, PlatformError, TimedOut, Unreachable, WrongAnswer
from receiver.platform.client.remotes import Remote


@contextmanager
def failures_converted(remote: Remote, netloc: str, timeout_s: float) -> Iterator[None]:
    """Raise a `PlatformError` in place of each error of the HTTP library.

    Without its cause, whose representation has the headers of the request, and so the token.
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
