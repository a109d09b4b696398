"""ClickHouse's HTTP interface: a statement in, its answer out in the format of the client.

    GET  /ping                                  whether the endpoint answers; without a token
    GET  /?query=SELECT …                       a statement in the URL
    POST /?param_name=value&default_format=CSV  a statement in the body

The token is the password of any user: in X-ClickHouse-Key, in Basic authentication, in the parameter
`password`, or as bearer token.

Invariant: a statement passes the guard of SQL, with the limits, the queue and the log line of the API. An
    answer that fails after its first bytes ends with the error, and lacks its last chunk.
Never: logs a URL, which may hold the token.
"""

from __future__ import annotations

import hmac
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from typing import Final

from aiohttp import hdrs, web

from receiver.console.api.access import CALLER, Caller
from receiver.console.api.lines import StreamedAnswer
from receiver.console.api.responses import Handler, add_security_headers, read_whole, send
from receiver.console.api.source import ApiSourceFor
from receiver.console.queries.raw_sql.client_statement import answer
from receiver.console.queries.raw_sql.statement import QUERY_CHARS_MAX
from receiver.console.tools.clickhouse_http.errors import (
    BAD_ARGUMENTS,
    NOT_AUTHENTICATED,
    NOT_IMPLEMENTED,
    READONLY,
    TOO_LARGE,
    ClientError,
    answer_to,
    exception_block,
)
from receiver.console.tools.clickhouse_http.formats import CONTENT_TYPES
from receiver.console.tools.clickhouse_http.parameters import READ_ONLY, check_read_only, statement_of
from receiver.errors import ReceiverError
from receiver.http.origin import OriginCheck

BODY_BYTES_MAX: Final = 256 * 1024
"""Maximum size of a body; a statement has to be shorter still."""
NO_SUCH_PATH: Final = "the endpoint has no such path or method; expected GET or POST of /, or GET of /ping"
OK: Final = "Ok.\n"
DISPLAY_NAME: Final = "trace-drain"
_ID_CHARS_MAX: Final = 128
_OWNER: Final = Caller("(clickhouse_token)", "operator", "token")
_BASIC: Final = b"basic"
_BEARER: Final = b"bearer"


class ClickHouseEndpoint:
    """The routes, over the source of the API."""

    def __init__(
        self, source_for: ApiSourceFor, token: Callable[[], str], database: str, hosts: Collection[str] = ()
    ) -> None:
        """`token`: called for each request, because a reload may change it. `database`: of our tables.

        `hosts`: DNS names that clients may use.
        """
        self._source_for = source_for
        self._token = token
        self._database = database
        self._hosts = hosts

    def application(self) -> web.Application:
        """Return the application of the port."""
        origin = OriginCheck("clickhouse", self._hosts)
        application = web.Application(
            middlewares=[origin.middleware, _map_errors], client_max_size=BODY_BYTES_MAX
        )
        application.router.add_get("/ping", _ping)
        application.router.add_get("/", self._query, allow_head=False)
        application.router.add_post("/", self._query)
        application.on_response_prepare.append(add_security_headers)
        return application

    async def _query(self, request: web.Request) -> web.StreamResponse:
        self._check_token(request)
        # The token belongs to no user: its statements read the spans of all projects.
        request[CALLER] = _OWNER
        check_read_only(request.query.get("query", ""))
        body = await _body_of(request)
        if request.method == hdrs.METH_GET and "query" not in request.query:
            return await _ping(request)
        if len(set(request.query)) != len(request.query):
            raise ClientError("a parameter of the URL is repeated; expected each once", BAD_ARGUMENTS)
        default_format = request.headers.get("X-ClickHouse-Format", "")
        asked = statement_of(request.query, body, default_format, self._database)
        headers = {
            "X-ClickHouse-Format": asked.form,
            "X-ClickHouse-Query-Id": _query_id_of(request),
            "X-ClickHouse-Server-Display-Name": DISPLAY_NAME,
            "X-ClickHouse-Timezone": "UTC",
            "X-ClickHouse-Exception-Tag": (tag := token_hex(8)),
        }
        source = self._source_for(request)
        streamed = StreamedAnswer(
            CONTENT_TYPES[asked.form],
            lambda store: answer(store, asked),
            headers=headers,
            failure=partial(exception_block, tag),
        )
        began_ns = time.monotonic_ns()
        async with source.stream_sql(source.queues.clickhouse, asked.digest, streamed.pieces) as pieces:
            first = await anext(pieces, b"")
            headers["X-ClickHouse-Summary"] = f'{{"elapsed_ns":"{time.monotonic_ns() - began_ns}"}}'
            # A failure up to `WHOLE_BYTES_MAX` has a status of its own, and the client reads the error.
            first, whole = await read_whole(first, pieces, streamed)
            return whole or await send(request, first, pieces, streamed)

    def _check_token(self, request: web.Request) -> None:
        """Raise `ClientError` if a token is configured and the request does not have it."""
        token = self._token().encode()
        passwords = [text for text in _passwords_of(request) if text]
        # Every value is compared, so that the time does not depend on the position of the right value.
        is_known = any([hmac.compare_digest(token, text) for text in passwords])  # noqa: C419 - as above
        if token and (not is_known or _has_repeated_credentials(request)):
            status = HTTPStatus.FORBIDDEN if passwords else HTTPStatus.UNAUTHORIZED
            raise ClientError(
                "the password is missing or wrong; expected api.clickhouse_token", NOT_AUTHENTICATED, status
            )


@web.middleware
async def _map_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error in ClickHouse's form."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        error = ClientError(NO_SUCH_PATH, BAD_ARGUMENTS, refusal.status)
    except ReceiverError as refused:
        return answer_to(refused)
    return answer_to(error)


async def _ping(_request: web.Request) -> web.Response:
    return web.Response(text=OK, content_type="text/html", charset="UTF-8")


async def _body_of(request: web.Request) -> str:
    if request.content_type.startswith("multipart/"):
        raise ClientError(
            "external tables are not supported; expected a statement in the body", NOT_IMPLEMENTED
        )
    content = bytearray()
    async for piece in request.content.iter_any():
        content += piece
        if len(content) > BODY_BYTES_MAX:
            _check_rows(request, content)
            raise ClientError(f"the body is over {BODY_BYTES_MAX} bytes; expected a statement", TOO_LARGE)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        _check_rows(request, content)
        raise ClientError("the body is not UTF-8; expected a statement", BAD_ARGUMENTS) from error


def _check_rows(request: web.Request, content: bytearray) -> None:
    """Raise `ClientError` if a body that is no statement is an INSERT with its rows."""
    # Clients compress rows only.
    if hdrs.CONTENT_ENCODING in request.headers:
        raise ClientError(READ_ONLY, READONLY)
    # Without the rows, which may have any bytes.
    check_read_only(content[:QUERY_CHARS_MAX].decode(errors="replace"))


def _query_id_of(request: web.Request) -> str:
    """Return the query id of the client if it is valid in a header; otherwise a new id."""
    query_id = request.query.get("query_id", "")
    is_valid = query_id.isascii() and query_id.isprintable() and len(query_id) <= _ID_CHARS_MAX
    return query_id if query_id and is_valid else token_hex(16)


def _has_repeated_credentials(request: web.Request) -> bool:
    """Return whether a password is repeated. A proxy in front may check a different value."""
    headers = (request.headers.getall(name, ()) for name in (hdrs.AUTHORIZATION, "X-ClickHouse-Key"))
    return any(len(values) > 1 for values in (*headers, request.query.getall("password", ())))


def _passwords_of(request: web.Request) -> Iterator[bytes]:
    """Yield the values of the request in which clients send a password."""
    # aiohttp decodes headers with surrogates.
    authorization = request.headers.get(hdrs.AUTHORIZATION, "").encode(errors="surrogateescape")
    yield request.headers.get("X-ClickHouse-Key", "").encode(errors="surrogateescape")
    yield request.query.get("password", "").encode(errors="surrogateescape")
    scheme, _, credentials = authorization.partition(b" ")
    if scheme.lower() == _BEARER:
        yield credentials
    if scheme.lower() == _BASIC:
        with suppress(Base64Error):
            yield b64decode(credentials).partition(b":")[2]
