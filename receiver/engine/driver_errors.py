"""Translation of driver exceptions into `StoreTrouble`, with an address and a cause from a fixed list.

Invariant: a cause contains no server text and no credentials. `advice` decides which server text is quoted.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPException

from urllib3.exceptions import ProtocolError, ProxyError
from urllib3.exceptions import TimeoutError as PoolTimeout

from receiver.engine.advice import NOT_CLICKHOUSE, Login, advice_on
from receiver.engine.driver_internals import FOREIGN_STATUS_TEXT, NO_VERSION_TEXT
from receiver.errors import StoreTrouble

_STATUS = re.compile(rf"{FOREIGN_STATUS_TEXT}(\d{{3}})")

_CAUSES: dict[type[BaseException], str] = {
    ProxyError: "proxy failed",
    socket.gaierror: "host name not found",
    ssl.SSLError: "TLS failed",
    # Before `ConnectionError`, its base.
    ConnectionRefusedError: "connection refused",
    TimeoutError: "timed out",
    PoolTimeout: "timed out",
    ConnectionError: "connection lost",
    HTTPException: "not HTTP",
    ProtocolError: "connection lost",
}
"""Cause by exception type. The first type that occurs anywhere in the exception chain decides."""


def trouble_of(error: Exception, place: str = "", login: Login | None = None) -> StoreTrouble:
    """Translate an exception that the driver raised for the server at `place` with this login."""
    code, name = getattr(error, "code", None), getattr(error, "name", None)
    chain = list(_chain(error))
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in chain):
        name = "CERTIFICATE_REFUSED"
    status_match = _STATUS.match(str(error))
    status = int(status_match[1]) if status_match else None
    if str(error).startswith(NO_VERSION_TEXT):
        name = NOT_CLICKHOUSE
    cause, text = _cause_in(chain), str(error)
    return StoreTrouble(
        text,
        code=code,
        name=name or "",
        status=status,
        place=place,
        cause=cause,
        advice=_tls_advice(chain) or advice_on(code, name or "", status, text, login or Login()),
    )


def _tls_advice(chain: list[BaseException]) -> str:
    """Return what is wrong with TLS, in OpenSSL's words; empty if something else failed."""
    for link in chain:
        if isinstance(link, ssl.SSLCertVerificationError):
            expected = "expected a certificate of a known authority for the host in store.url"
            return f"{link.verify_message}; {expected}"
        if isinstance(link, ssl.SSLError) and link.reason == "WRONG_VERSION_NUMBER":
            return "the port does not speak TLS; expected http:// in store.url, or its HTTPS port, like 8443"
    return ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception, then its cause, then the cause of that."""
    while error is not None:
        yield error
        # An exception raised without `from` has only a context.
        error = error.__cause__ or error.__context__


def _cause_in(chain: list[BaseException]) -> str:
    for kind, cause in _CAUSES.items():
        if any(isinstance(link, kind) for link in chain):
            return cause
    # The last in the chain is the first that occurred.
    numbers = [link.errno for link in chain if isinstance(link, OSError) and link.errno]
    return os.strerror(numbers[-1]).lower() if numbers else ""
