"""Tokenizer of statements in the engine's own spelling: without comments, each quoted name in backticks.

Invariant: the tokens and the spaces between them are the whole text. A character that the engine's spelling
    of an allowed statement cannot contain is refused, so no part of a statement is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from receiver.errors import InvalidStatement

# `--`, `/*` and `*/` are not signs: they could begin or end a comment.
_TOKEN: Final = re.compile(
    r"""
      (?P<space>[ ])
    | (?P<text>'(?:[^'\\]|\\.)*')
    | (?P<number>[0-9][0-9A-Za-z_]*(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?)?(?:(?<=[eE])[-+]?[0-9]+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | `(?P<quoted>(?:[^`\\]|\\.)*)`
    | (?P<placeholder>\{[A-Za-z_][A-Za-z0-9_]*:[A-Za-z0-9_]+(?:\([A-Za-z0-9_(), ']*\))?\})
    | (?P<sign><=>|->|<=|>=|!=|-(?!-)|/(?!\*)|\*(?!/)|[+%=<>()\[\],.])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS: Final = {"0": "\0", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
"""Characters for which the engine writes a backslash and a letter."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_ .:%-]+")
"""Other names in backticks are refused: no stored column has one."""


class Kind(Enum):
    """Kind of a token."""

    NAME = "name"
    """A name or a keyword."""
    TEXT = "text"
    NUMBER = "number"
    SIGN = "sign"
    PLACEHOLDER = "placeholder"
    """A parameter with its type, like `{name:String}`."""


class Token(NamedTuple):
    """A token; `text` is a name without its backticks, or a text with its quotes."""

    kind: Kind
    text: str
    is_quoted: bool = False
    end: int = 0
    """Index of the character behind the token in the statement."""


def literal_text(token: Token) -> str:
    """Return the text that a literal stands for."""
    return _ESCAPE.sub(lambda match: _CONTROLS.get(match[1], match[1]), token.text[1:-1])


def tokens_of(statement: str) -> list[Token]:
    """Return the tokens of a statement. Raises `InvalidStatement` at an unexpected character."""
    return list(_tokens(statement))


def _tokens(statement: str) -> Iterator[Token]:
    place = 0
    while place < len(statement):
        match = _TOKEN.match(statement, place)
        if match is None:
            raise InvalidStatement(
                f"the statement contains {statement[place]!a} outside of a text; "
                "expected neither placeholders nor such signs"
            )
        place = match.end()
        if match.lastgroup != "space":
            yield _token(match)


def _token(match: re.Match[str]) -> Token:
    if match.lastgroup != "quoted":
        return Token(Kind(match.lastgroup), match[0], end=match.end())
    if not _PLAIN_NAME.fullmatch(match["quoted"]):
        raise InvalidStatement("a name contains a sign; expected letters, digits, spaces and . : % _ - only")
    return Token(Kind.NAME, match["quoted"], is_quoted=True, end=match.end())
