"""Answers: converts outcomes and errors to the exact bytes of an HTTP response.

Invariant: every error is a `google.rpc.Status` in the request's encoding. The Content-Type is exact, because
    exporters compare it as a string.
Never: contains a byte of the request or a secret, has a status that no table lists, or exceeds 16 KiB.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import cache
from http import HTTPStatus

from receiver.errors import ANSWER_OF, RETRY_AFTER_S, MalformedBody, ReceiverError
from receiver.intake.media import SUPPORTED_CODINGS
from receiver.model import ContentKind

ALLOW = "POST, OPTIONS"
LINGER_S = 1.0
"""Time for the peer to read an answer that closes its connection."""
TEXT_BYTES_MAX = 7 * 1024
"""Limit of a message. With escapes and headers, the whole answer stays below 16 KiB."""
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
MEDIA_TYPE_OF = {
    ContentKind.PROTOBUF: "application/x-protobuf",
    ContentKind.JSON: "application/json",
    ContentKind.NDJSON: "application/json",
}
HEADERS_OF = {
    401: {"WWW-Authenticate": "Bearer"},
    405: {"Allow": ALLOW},
    415: {"Accept-Encoding": SUPPORTED_CODINGS},
    503: {"Retry-After": str(RETRY_AFTER_S)},
}
"""Extra headers of a status."""
HTTP_GRPC_CODE_OF = {400: 3, 405: 12, 414: 3, 417: 3, 431: 3, 505: 12}
"""gRPC codes of errors in HTTP itself, which are detected before any delivery and close the connection."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP response without the headers that the connection adds: Date and Connection."""

    status: int
    head: bytes
    """Status line and headers, each with its line end."""
    body: bytes = b""
    keep_alive: bool = True

    def wire(self, *, close: bool, bodyless: bool) -> bytes:
        """Return the bytes to send; `bodyless` for the answer to a HEAD request."""
        connection = b"Connection: close\r\n\r\n" if close else b"\r\n"
        return self.head + date_line(int(time.time())) + connection + (b"" if bodyless else self.body)

    def with_header(self, line: bytes) -> Reply:
        """Return a copy with another header line, or the same reply if the line or the reply is empty."""
        return replace(self, head=self.head + line) if line and self.status else self


HANG_UP = Reply(0, b"", keep_alive=False)
"""Closes the connection without an answer, because the sender was too slow or disconnected."""

_date: tuple[int, bytes] = (-1, b"")


def date_line(now_s: int) -> bytes:
    """Return the Date header, formatted once a second."""
    global _date  # noqa: PLW0603 - a cache of one line: the same for all connections
    if _date[0] != now_s:
        _date = (now_s, f"Date: {formatdate(now_s, usegmt=True)}\r\n".encode())
    return _date[1]


def _reply(
    status: int, kind: ContentKind, body: bytes, headers: dict[str, str], *, keep_alive: bool = True
) -> Reply:
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {MEDIA_TYPE_OF[kind]}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return Reply(status, "".join(f"{line}\r\n" for line in lines).encode(), body, keep_alive)


ACCEPTED = {
    kind: _reply(200, kind, b"" if kind is ContentKind.PROTOBUF else b"{}\n", {}) for kind in ContentKind
}
OPTIONS = Reply(204, f"HTTP/1.1 204 No Content\r\nAllow: {ALLOW}\r\n".encode())

_PROBE_TEXT = b"trace-drain-receiver: this drain endpoint works. Send OTLP traces here with POST.\n"
PROBE = Reply(
    200,
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n" % len(_PROBE_TEXT),
    _PROBE_TEXT,
)
"""Answer to a GET or HEAD. These need no credentials, so it names neither the drain nor the version."""


def accepted(kind: ContentKind, *, rejected_span_count: int, message: str) -> Reply:
    """Return the answer for a delivery that was accepted completely, partly or with a warning."""
    if not rejected_span_count and not message:
        return ACCEPTED[kind]
    text = printable(message)
    if kind is ContentKind.PROTOBUF:
        partial = (_number(1, rejected_span_count) if rejected_span_count else b"") + _bytes(2, text.encode())
        return _reply(200, kind, _bytes(1, partial), {})
    # A string: the JSON encoding of protobuf writes 64-bit integers as strings.
    counted = {"rejectedSpans": str(rejected_span_count)} if rejected_span_count else {}
    partial_success = {"partialSuccess": {**counted, "errorMessage": text}}
    return _reply(200, kind, _json_line(partial_success), {})


def verdict(reason: ReceiverError, kind: ContentKind) -> Reply:
    """Return the answer for an error, with the status and gRPC code from `ANSWER_OF`."""
    answer = ANSWER_OF[type(reason)]
    field = reason.field if isinstance(reason, MalformedBody) else ""
    body = status_body(answer.grpc_code, str(reason), kind, field=field)
    return _reply(answer.status, kind, body, HEADERS_OF.get(answer.status, {}))


def http_refusal(status: int, message: str, kind: ContentKind = ContentKind.JSON) -> Reply:
    """Return the answer for a request that is not supported HTTP. It closes the connection."""
    body = status_body(HTTP_GRPC_CODE_OF[status], message, kind)
    return _reply(status, kind, body, HEADERS_OF.get(status, {}), keep_alive=False)


def status_body(grpc_code: int, message: str, kind: ContentKind, *, field: str = "") -> bytes:
    """Encode a `google.rpc.Status`; with a field, its details are a `BadRequest`."""
    text, field = printable(message), printable(field)
    if kind is not ContentKind.PROTOBUF:
        violation = {"field": field, "description": text}
        details = [{"@type": BAD_REQUEST, "fieldViolations": [violation]}] if field else []
        return _json_line({"code": grpc_code, "message": text, "details": details})
    status = _number(1, grpc_code) + _bytes(2, text.encode())
    if not field:
        return status
    violation_bytes = _bytes(1, _bytes(1, field.encode()) + _bytes(2, text.encode()))
    return status + _bytes(3, _bytes(1, BAD_REQUEST.encode()) + _bytes(2, violation_bytes))


def _json_line(document: Mapping[str, object]) -> bytes:
    """Return a JSON document with a newline, so that a terminal's prompt starts on its own line."""
    return json.dumps(document).encode() + b"\n"


def printable(text: str) -> str:
    """Truncate a message, and replace every character that is not printable ASCII."""
    cut = text if len(text) <= TEXT_BYTES_MAX else text[: TEXT_BYTES_MAX - 3] + "..."
    # ASCII also makes the limit on characters a limit on bytes.
    return "".join(char if " " <= char <= "~" else "?" for char in cut)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


@cache
def reason_of(error_type: str) -> str:
    """Return the name of a type of error for metrics and logs: `malformed_body`, `journal_full`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in error_type).lstrip("_")
