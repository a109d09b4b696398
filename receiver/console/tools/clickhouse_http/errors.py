r"""Errors in ClickHouse's form: a code, its name and its status, which clients read from headers and text.

    X-ClickHouse-Exception-Code: 62
    Code: 62. DB::Exception: the statement … (SYNTAX_ERROR)

After the first bytes of an answer, its stream ends with the text in a block. The client knows the tag of the
block from a header:

    X-ClickHouse-Exception-Tag: TAG
    \r\n__exception__\r\nTAG\r\nCode: 396. DB::Exception: …\nBYTES TAG\r\n__exception__\r\n

Never: copies the text of a statement, a value of a row or a token to an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp import web

from receiver.console.api.problems import problem_of
from receiver.errors import InvalidStatement, ReceiverError, StoreTrouble


class Code(NamedTuple):
    """An error code of ClickHouse."""

    number: int
    name: str


BAD_ARGUMENTS: Final = Code(36, "BAD_ARGUMENTS")
NOT_IMPLEMENTED: Final = Code(48, "NOT_IMPLEMENTED")
SYNTAX_ERROR: Final = Code(62, "SYNTAX_ERROR")
UNKNOWN_FORMAT: Final = Code(73, "UNKNOWN_FORMAT")
UNKNOWN_DATABASE: Final = Code(81, "UNKNOWN_DATABASE")
UNKNOWN_SETTING: Final = Code(115, "UNKNOWN_SETTING")
READONLY: Final = Code(164, "READONLY")
BUSY: Final = Code(202, "TOO_MANY_SIMULTANEOUS_QUERIES")
TOO_LARGE: Final = Code(229, "QUERY_IS_TOO_LARGE")
DENIED: Final = Code(497, "ACCESS_DENIED")
NOT_AUTHENTICATED: Final = Code(516, "AUTHENTICATION_FAILED")
OTHER: Final = Code(1002, "UNKNOWN_EXCEPTION")
FAILED: Final = "the receiver failed to answer; its log says why"

_STATUS_OF: Final[Mapping[int, int]] = {
    **dict.fromkeys((6, 16, 26, 27, 36, 38, 41, 44, 53, 62, 72, 117), HTTPStatus.BAD_REQUEST),
    **dict.fromkeys((427, 168, 167, 223, 69), HTTPStatus.BAD_REQUEST),
    **dict.fromkeys((46, 47, 50, 60, 63, 73, 81, 115), HTTPStatus.NOT_FOUND),
    48: HTTPStatus.NOT_IMPLEMENTED,
    159: HTTPStatus.REQUEST_TIMEOUT,
    229: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    497: HTTPStatus.FORBIDDEN,
    516: HTTPStatus.FORBIDDEN,
}
"""Status of each code, as ClickHouse answers; 500 for other codes."""
_LIMIT_OF: Final = {
    158: "max_rows_to_read",
    159: "max_execution_time",
    241: "max_memory_usage, or the memory that the store has left",
    307: "max_bytes_to_read",
    396: "max_result_rows or max_result_bytes",
}
_LATER: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_AUTHENTICATE: Final = {"WWW-Authenticate": 'Basic realm="ClickHouse server HTTP API"'}


class ClientError(ReceiverError):
    """A request that is refused with a code of ClickHouse."""

    def __init__(self, text: str, code: Code, status: int | None = None) -> None:
        """`status`: if it is not that of the code."""
        super().__init__(text)
        self.code = code
        self.status = status or _STATUS_OF.get(code.number, HTTPStatus.INTERNAL_SERVER_ERROR)


def answer_to(error: ReceiverError) -> web.Response:
    """Return the answer to an error."""
    code, status, text, headers = _parts_of(error)
    return web.Response(
        status=status,
        text=_text_of(code, text),
        headers={**headers, "X-ClickHouse-Exception-Code": str(code.number)},
    )


def exception_block(tag: str, error: Exception) -> bytes:
    """Return the end of a stream that failed. The text of errors that are not ours may contain values."""
    code, text = OTHER, FAILED
    if isinstance(error, ReceiverError):
        code, _, text, _ = _parts_of(error)
    message = _text_of(code, text).encode()
    return b"\r\n__exception__\r\n%b\r\n%b%d %b\r\n__exception__\r\n" % (
        *(tag.encode(), message, len(message)),
        tag.encode(),
    )


def _text_of(code: Code, text: str) -> str:
    return f"Code: {code.number}. DB::Exception: {text}. ({code.name})\n"


def _parts_of(error: ReceiverError) -> tuple[Code, int, str, Mapping[str, str]]:
    if isinstance(error, ClientError):
        headers = _AUTHENTICATE if error.status == HTTPStatus.UNAUTHORIZED else {}
        return error.code, error.status, str(error), headers
    if isinstance(error, InvalidStatement):
        # With a cause, the engine has rejected the statement; otherwise the guard has.
        code = _code_of(error.__cause__) if error.__cause__ else DENIED
        return code, _STATUS_OF.get(code.number, HTTPStatus.BAD_REQUEST), str(error), {}
    problem = problem_of(error, "query")
    if isinstance(error, StoreTrouble):
        code = _code_of(error)
        if limit := _LIMIT_OF.get(code.number):
            # Without its value: it may be that of the client.
            return _parts_of(
                ClientError(f"the statement exceeds {limit}; expected a shorter time range or a filter", code)
            )
        return (
            code,
            _STATUS_OF.get(code.number, HTTPStatus.INTERNAL_SERVER_ERROR),
            problem.message,
            problem.headers,
        )
    code = BUSY if problem.status in _LATER else OTHER
    return code, problem.status, problem.message, problem.headers


def _code_of(cause: BaseException | None) -> Code:
    if isinstance(cause, StoreTrouble) and cause.code is not None:
        return Code(cause.code, cause.name or "ERROR")
    return OTHER
