"""Translates what the driver raised into `StoreTrouble`, with the place and a cause out of a fixed list.

Invariant: a cause holds nothing that the server said, and no credentials. `advice` decides what is quoted.
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

from receiver.errors import StoreTrouble
from receiver.storage.advice import NOT_CLICKHOUSE, Login, advice_on

_STATUS = re.compile(r"HTTP driver received HTTP status (\d{3})")
"""How the driver reports an answer that is not ClickHouse's."""
_NO_VERSION = "Unexpected response to server version query"
"""How the driver reports a 200 of something that is not ClickHouse."""

_CAUSES: dict[type[BaseException], str] = {
    ProxyError: "proxy failed",
    socket.gaierror: "host name not found",
    ssl.SSLError: "TLS failed",
    ConnectionRefusedError: "connection refused",
    TimeoutError: "timed out",
    PoolTimeout: "timed out",
    ConnectionError: "connection broken off",
    HTTPException: "not HTTP",
    ProtocolError: "connection broken off",
}
"""The first that is anywhere in the chain of what was raised."""


def trouble_of(error: Exception, place: str = "", login: Login | None = None) -> StoreTrouble:
    """Translate what the driver raised when it asked a server at this place with this login."""
    code, name = getattr(error, "code", None), getattr(error, "name", None)
    chain = list(_chain(error))
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in chain):
        name = "CERTIFICATE_REFUSED"
    found = _STATUS.match(str(error))
    status = int(found[1]) if found else None
    if str(error).startswith(_NO_VERSION):
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
    """Name what is wrong with TLS, in OpenSSL's words; empty: something else failed."""
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            return (
                f"{one.verify_message}; expected a certificate of a known authority for the host in store.url"
            )
        if isinstance(one, ssl.SSLError) and one.reason == "WRONG_VERSION_NUMBER":
            return "no TLS is spoken there; expected http:// in store.url, or the HTTPS port, as 8443"
    return ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """What it came from, step by step."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _cause_in(chain: list[BaseException]) -> str:
    for kind, cause in _CAUSES.items():
        if any(isinstance(one, kind) for one in chain):
            return cause
    numbers = [one.errno for one in chain if isinstance(one, OSError) and one.errno]
    return os.strerror(numbers[-1]).lower() if numbers else ""
