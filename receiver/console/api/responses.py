"""Responses: streamed or whole, compressed, with security headers, and 304 for an unchanged answer.

Invariant: HEAD runs no query. An incomplete streamed response lacks its end and its last chunk.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import ETag, hdrs, web

from receiver.console.api.coding import Encoder, encoder_of, preferred_coding
from receiver.console.api.description.page import STYLE_SOURCE
from receiver.console.api.lines import StreamedAnswer, end_line
from receiver.errors import ReceiverError, StoreTrouble
from receiver.http.media_types import JSON, JSON_LINES
from receiver.logs import limited

HEADERS: Final = {
    "Cache-Control": "no-store",  # answers contain data of customers
    "Content-Security-Policy": f"default-src 'none'; style-src {STYLE_SOURCE}",  # /docs has no scripts
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept, Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
WHOLE_BYTES_MAX = 256 * 1024
"""Maximum size of a trace that is sent as a whole, with an entity tag."""
COMPRESSED_BYTES_MIN = 1_024
"""Size below which an answer that is sent as a whole is not compressed."""
INLINE_BYTES_MAX = 4_096
"""Size up to which a piece is compressed in the event loop; a longer piece is compressed in a thread."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def add_security_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every response, unless it sets other values."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


@web.middleware
async def finish_whole_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Add an entity tag to each answer that is sent as a whole, and compress it; or answer 304."""
    response = await handler(request)
    is_read = request.method in {hdrs.METH_GET, hdrs.METH_HEAD}
    if not is_read or not isinstance(response, web.Response) or response.status != HTTPStatus.OK:
        return response
    body = response.body
    # Without a body it is the answer to HEAD, for which no query ran.
    if not isinstance(body, bytes):
        return response
    # Weak, because it is the same in every coding.
    tag = ETag(hashlib.sha256(body).hexdigest()[:32], is_weak=True)
    if any(known.value in {tag.value, "*"} for known in request.if_none_match or ()):
        unchanged = web.Response(status=HTTPStatus.NOT_MODIFIED)
        unchanged.headers.update(
            {name: value for name, value in response.headers.items() if name == "Cache-Control"}
        )
        unchanged.etag = tag
        return unchanged
    response.etag = tag
    if len(body) >= COMPRESSED_BYTES_MIN:
        encoder = _encoder_for(request, response)
        response.body = await _encoded(encoder, body) + encoder.end()
    return response


def whole_json(status: int, body: Any, more: Mapping[str, str] | None = None) -> web.Response:  # noqa: ANN401 - any JSON
    """Return a JSON document."""
    return web.Response(
        status=status, body=msgspec.json.encode(body) + b"\n", headers={**(more or {}), "Content-Type": JSON}
    )


def whole_lines(rows: Sequence[object]) -> web.Response:
    """Return an object for each row, then the line with their number."""
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows) + end_line(len(rows))
    return web.Response(body=lines, headers={"Content-Type": JSON_LINES})


def head_of(answer: StreamedAnswer) -> web.Response:
    """Return the answer to HEAD: the headers that are known without the query."""
    return web.Response(headers={"Content-Type": answer.content_type, **answer.headers})


async def read_whole(
    first: bytes, pieces: AsyncIterator[bytes], answer: StreamedAnswer
) -> tuple[bytes, web.Response | None]:
    """Read an answer up to `WHOLE_BYTES_MAX`. Return the bytes, and the response if complete."""
    read = [first]
    size_bytes = len(first)
    while size_bytes <= WHOLE_BYTES_MAX:
        piece = await anext(pieces, None)
        if piece is None:
            body = b"".join(read)
            whole = body + answer.end(body.count(b"\n"))
            return body, web.Response(body=whole, headers=head_of(answer).headers)
        read.append(piece)
        size_bytes += len(piece)
    return b"".join(read), None


async def send(
    request: web.Request, first: bytes, pieces: AsyncIterator[bytes], answer: StreamedAnswer
) -> web.StreamResponse:
    """Send pieces as they arrive, then the end of the answer.

    A failure after the first byte aborts the response.
    """
    response = web.StreamResponse(headers=head_of(answer).headers)
    encoder = _encoder_for(request, response)
    await response.prepare(request)
    count = first.count(b"\n")
    try:
        await response.write(await _encoded(encoder, first))
        async for piece in pieces:
            await response.write(await _encoded(encoder, piece))
            count += piece.count(b"\n")
    except ConnectionError:
        raise  # the client has disconnected, or the receiver closed the connection and counted that
    except Exception as error:  # noqa: BLE001 - after any failure the answer is incomplete
        text = error.label if isinstance(error, StoreTrouble) else _safe_text(error)
        limited.warning(f"api: {text}", "response aborted", error=text, lines=count)
        if answer.failure is not None:
            await response.write(await _encoded(encoder, answer.failure(error)) + encoder.end())
        if request.transport is not None:
            # Sends the written bytes without the last chunk.
            request.transport.close()
        return response
    await response.write_eof(await _encoded(encoder, answer.end(count)) + encoder.end())
    return response


def _encoder_for(request: web.Request, response: web.StreamResponse) -> Encoder:
    """Return the encoder that the client prefers, and set its name in the response."""
    coding = preferred_coding(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
    if coding is not None:
        response.headers[hdrs.CONTENT_ENCODING] = coding
    return encoder_of(coding)


async def _encoded(encoder: Encoder, piece: bytes) -> bytes:
    # An empty piece would flush an empty block.
    if not piece:
        return b""
    if len(piece) <= INLINE_BYTES_MAX:
        return encoder.encode(piece)
    return await asyncio.to_thread(encoder.encode, piece)


def _safe_text(reason: Exception) -> str:
    """Return the text of an error of the receiver. Other texts may contain values of rows."""
    return str(reason) if isinstance(reason, ReceiverError) else type(reason).__name__
