"""aiohttp's compiled HTTP parser, without which nothing is served.

Never: the one in pure Python. Four request smuggling bugs were in it alone.
"""

from __future__ import annotations

from aiohttp import http_parser

from receiver.errors import OperatorError


def require_c_parser() -> None:
    """Raise `OperatorError` if aiohttp runs without it."""
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise OperatorError(
            "aiohttp runs without its C parser, and the one in Python takes some requests for two; expected "
            "a wheel of aiohttp with extensions, and AIOHTTP_NO_EXTENSIONS unset"
        )
