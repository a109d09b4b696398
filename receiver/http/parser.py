"""aiohttp's compiled HTTP parser, which every port requires, and the sizes of a request head it accepts.

Never: the parser in pure Python. Four request smuggling bugs were in it alone.
"""

from __future__ import annotations

from aiohttp import http_parser

from receiver.errors import OperatorError

LINE_BYTES_MAX = 8_190
"""Request line."""
FIELD_BYTES_MAX = 4_096
"""One header."""
HEADERS_MAX = 64
HEAD_BYTES_MAX = 16 * 1024
"""Request line and headers together."""


def require_c_parser() -> None:
    """Raise `OperatorError` if aiohttp runs without it."""
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise OperatorError(
            "aiohttp runs without its C parser, and the one in Python takes some requests for two; expected "
            "a wheel of aiohttp with extensions, and AIOHTTP_NO_EXTENSIONS unset"
        )
