"""Parser of HTTP/1.1 responses. Supports the parts of HTTP/1.1 that OTLP servers use."""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

RETRYABLE = frozenset({429, 502, 503, 504})
ANSWER_BYTES_MAX = 1 << 20


class NotHttp(ValueError):  # noqa: N818 - a verdict
    """The received bytes are not an HTTP/1.1 response."""


class ParsedAnswer(NamedTuple):
    """The parts of a response that a sender needs."""

    status: int
    body: bytes
    content_type: str = ""
    retry_after_s: float | None = None
    is_last: bool = False
    """Whether the server closes the connection after this response."""

    @property
    def rejected_count(self) -> int:
        """Number of rejected spans that the response reports."""
        # The usual responses of both encodings, which need no parser.
        if not self.body or self.body.rstrip() == b"{}":
            return 0
        try:
            if self.content_type == "application/json":
                partial = json.loads(self.body).get("partialSuccess") or {}
                return int(partial.get("rejectedSpans", 0))
            return int(ExportTraceServiceResponse.FromString(self.body).partial_success.rejected_spans)
        # A response that cannot be parsed reports nothing; the count of stored spans shows missing spans.
        except (ValueError, AttributeError, DecodeError):
            return 0

    @property
    def message(self) -> str:
        if self.content_type == "application/x-protobuf":
            with suppress(DecodeError):  # a google.rpc.Status has its text in the same field
                return ExportTracePartialSuccess.FromString(self.body).error_message
        return self.body.decode(errors="replace")


def answer_in(received: bytes) -> tuple[ParsedAnswer, int] | None:
    """Return the first response and its length; `None` if it is incomplete. Raises `NotHttp`."""
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        # A server that never ends its head must not fill the memory.
        _require(len(received) <= ANSWER_BYTES_MAX)
        return None
    status_line, *lines = received[:head_end].decode("latin-1").split("\r\n")
    status = _status_of(status_line)
    # An interim response, like 100, precedes the final one.
    if status < HTTPStatus.OK:
        final = answer_in(received[head_end + 4 :])
        return final and (final[0], final[1] + head_end + 4)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body_end = _body_in(received, head_end + 4, headers)
    if body_end is None:
        return None
    body, end = body_end
    return _answer(status, body, headers), end


def _answer(status: int, body: bytes, headers: dict[str, str]) -> ParsedAnswer:
    retry_after = headers.get("retry-after", "")
    return ParsedAnswer(
        status,
        body,
        headers.get("content-type", ""),
        float(retry_after) if retry_after.isdigit() else None,
        is_last=headers.get("connection", "").lower() == "close",
    )


def _status_of(line: str) -> int:
    version, _, rest = line.partition(" ")
    code = rest[:3]
    _require(version.startswith("HTTP/1.") and code.isdigit())
    return int(code)


def _body_in(received: bytes, start: int, headers: dict[str, str]) -> tuple[bytes, int] | None:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunks_in(received, start)
    length = headers.get("content-length", "0")
    # `isdigit` also excludes signs, which `int` would accept.
    _require(length.isdigit() and int(length) <= ANSWER_BYTES_MAX)
    end = start + int(length)
    return (received[start:end], end) if len(received) >= end else None


def _chunks_in(received: bytes, position: int) -> tuple[bytes, int] | None:
    chunks: list[bytes] = []
    while (line_end := received.find(b"\r\n", position)) >= 0:
        size = received[position:line_end].partition(b";")[0]
        try:
            length = int(size, 16)
        except ValueError as error:
            raise NotHttp("a chunk's size is not a number") from error
        # `int` accepts a sign, and a negative length could repeat a chunk without end.
        _require(0 <= length <= ANSWER_BYTES_MAX)
        end = line_end + 2 + length + 2
        if len(received) < end:
            return None
        if not length:
            return b"".join(chunks), end
        chunks.append(received[line_end + 2 : end - 2])
        position = end
    return None


def _require(is_valid: bool) -> None:  # noqa: FBT001 - reads like an assertion
    if not is_valid:
        raise NotHttp("the answer is not HTTP/1.1, or too long")
