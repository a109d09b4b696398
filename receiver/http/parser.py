"""Requirements for aiohttp's HTTP parser: the compiled parser, and the size limits of a request head.

Never: accepts aiohttp's parser in pure Python, which had four request smuggling bugs of its own.
"""

from __future__ import annotations

from aiohttp import http_parser

from receiver.errors import OperatorError

LINE_BYTES_MAX = 8_190
"""Maximum length of the request line."""
FIELD_BYTES_MAX = 4_096
"""Maximum length of one header."""
HEADERS_MAX = 64
HEAD_BYTES_MAX = 16 * 1024
"""Maximum length of request line and headers together."""


def require_c_parser() -> None:
    """Raise `OperatorError` if aiohttp runs without it."""
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise OperatorError(
            "aiohttp runs without its C parser, and its Python parser allows request smuggling; expected "
            "a wheel of aiohttp with extensions, and AIOHTTP_NO_EXTENSIONS unset"
        )
