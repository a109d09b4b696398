"""What the driver raised, in our words: `StoreTrouble`, with where it was and a cause out of a fixed list.

Keeps: nothing the other side said is part of a cause, and no credentials are.
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

_STATUS = re.compile(r"HTTP driver received HTTP status (\d{3})")
"""How the driver tells of an answer that is none of ClickHouse's."""

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


def trouble_of(error: Exception, place: str = "") -> StoreTrouble:
    """Translate what the driver raised when it asked a server at this place."""
    code, name = getattr(error, "code", None), getattr(error, "name", None)
    chain = list(_chain(error))
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in chain):
        name = "CERTIFICATE_REFUSED"
    found = _STATUS.match(str(error))
    status = int(found[1]) if found else None
    return StoreTrouble(
        str(error), code=code, name=name or "", status=status, place=place, cause=_cause_in(chain)
    )


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
