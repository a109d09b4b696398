"""Parse errors: limits on a request head, and the answer to each error of aiohttp's parser.

Never: copies the text of a parse error, which contains input, to an answer or a log line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from aiohttp.http_exceptions import BadHttpMethod, BadStatusLine, HttpProcessingError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD

from receiver.http.aiohttp_internals import Message, ParseFailure
from receiver.http.parser import FIELD_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX
from receiver.intake.connections import wrong_protocol
from receiver.logs import limited
from receiver.refusals import refused

UNKNOWN_METHOD = re.compile(rb"[A-Za-z][A-Za-z-]{0,31} (/[!-~]*) HTTP/1\.[01]\r\n")
"""A request line whose method the parser does not know; captures the path."""
WAITING_HEADS_BYTES_MAX = 4 * HEAD_BYTES_MAX
"""Limit on the heads of pipelined requests that wait on one connection."""
OVERSIZED = HttpProcessingError(code=431, message="request head too large")
BAD_FRAMING = "the rest of the body is not valid HTTP; expected the declared framing"
HEAD_TOO_LARGE = (ParseFailure(status=431, exc=OVERSIZED, message=OVERSIZED.message), EMPTY_PAYLOAD)
"""Entry that replaces a message whose head is too large."""
H2_PREFACE_MESSAGE = "Pause on PRI"
TOO_MANY_HEADERS_MESSAGE = "Too many headers received"
"""Messages by which errors of aiohttp's parser are recognised, because their type is not specific."""


def oversized_at(messages: Iterable[Message]) -> int | None:
    """Return the index of the first message whose head, alone or with those before it, is too large."""
    waiting_bytes = 0
    for index, (message, _) in enumerate(messages):
        if isinstance(message, ParseFailure):
            return None
        head_bytes = len(message.path) + sum(len(name) + len(value) for name, value in message.raw_headers)
        waiting_bytes += head_bytes
        if head_bytes > HEAD_BYTES_MAX or waiting_bytes > WAITING_HEADS_BYTES_MAX:
            return index
    return None


def logged_refusal(error: HttpProcessingError, first: bytes, peer: str) -> tuple[int, str]:
    """Log a parse error and return its status and text. `first`: first bytes of the connection, if known."""
    status, text = refusal_of(error)
    # Only the first bytes of a connection show which protocol the peer speaks.
    if first and (isinstance(error, BadHttpMethod) or error.message.startswith(H2_PREFACE_MESSAGE)):
        wrong_protocol.warn("connection refused", wrong_protocol.protocol_of(first), peer, status)
    else:
        refused.note(f"http_{status}", status=status, peer=peer, error=text)
        limited.warning(f"http_{status}", "request refused", cause=f"http_{status}", peer=peer, error=text)
    return status, text


def refusal_of(error: HttpProcessingError) -> tuple[int, str]:
    """Return the status and fixed text for a parse error. The error's own text holds input."""
    if isinstance(error, LineTooLong) or error is OVERSIZED or error.message == TOO_MANY_HEADERS_MESSAGE:
        return _too_large(error)
    if isinstance(error, BadHttpMethod):
        return 400, "not an HTTP request; expected HTTP/1.1, and HTTPS only where it is configured"
    is_version = isinstance(error, BadStatusLine) and "Invalid HTTP version" in error.message
    if is_version or error.message.startswith(H2_PREFACE_MESSAGE):
        return 505, "HTTP version is not supported; expected HTTP/1.1"
    return 400, "not a well-formed HTTP request; expected HTTP/1.1"


def _too_large(error: HttpProcessingError) -> tuple[int, str]:
    if error is OVERSIZED:
        return 431, f"request line and headers exceed the limit of {HEAD_BYTES_MAX} bytes"
    if error.message == TOO_MANY_HEADERS_MESSAGE:
        return 431, f"the request has more than {HEADERS_MAX} headers"
    # The exceeded limit is the only sign of what was too long.
    if error.args[1] == LINE_BYTES_MAX:
        return 414, f"request target exceeds the limit of {LINE_BYTES_MAX} bytes; expected a path of a drain"
    return 431, f"a header exceeds the limit of {FIELD_BYTES_MAX} bytes"
