"""Guard of SQL statements: accepts a single harmless SELECT, refuses everything else.

A statement has to pass three checks, each with the lists of `allowed`:

    tokens           the names, keywords and signs of the statement in the engine's spelling
    parsed tree      the functions and tables in the query tree that the engine makes of it: see `query_tree`
    resolved tree    the functions and tables that the engine finds under the names in the tree

Invariant: only the engine's own spelling of a statement is checked and executed, never the client's text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from receiver.errors import InvalidStatement
from receiver.query.raw_sql.allowed import (
    BEFORE_PARENTHESIS,
    KEYWORDS,
    TABLE_FUNCTIONS,
    TYPED,
)
from receiver.query.raw_sql.catalog import Catalog
from receiver.query.raw_sql.tokens import Kind, Token

_BEFORE: Final = Token(Kind.SIGN, "")
"""Stands for the missing neighbour of the first and of the last token."""
_END_KEY: Final = "end"
_INTERNAL: Final = "__"
"""Beginning of the names of functions that the engine has for itself."""
_SYSTEM: Final = "system"
_BEFORE_TABLE: Final = ("FROM", "JOIN")
_TYPES_REFUSED: Final = ("function", "json", "object", "dynamic", "variant")
"""Parts of names of types whose values the engine parses with code that was not written for hostile input."""


def check_placeholders(tokens: list[Token], names: Collection[str]) -> list[str]:
    """Return the names of the placeholders. Raise `InvalidStatement` unless each has a value and plain type.

    The types of `_TYPES_REFUSED` are parsed by the engine; `Identifier` would be a name that is not checked.
    """
    found = []
    for token in tokens:
        if token.kind is Kind.PLACEHOLDER:
            name, _, kind = token.text.strip("{}").partition(":")
            if any(part in kind.lower() for part in (*_TYPES_REFUSED, "identifier")):
                raise InvalidStatement(
                    "the type of a parameter is not allowed; expected that of a plain value"
                )
            if name not in names:
                raise InvalidStatement(f"the parameter {name} has no value")
            found.append(name)
    return found


def name_parts(name: str) -> list[str]:
    """Return a name and its parts, as the catalog spells them: the engine might split a quoted name."""
    return [name.lower(), *name.lower().split(".")]


def check_tokens(tokens: list[Token], catalog: Catalog) -> None:
    """Raise `InvalidStatement` unless every name of a statement is allowed at its place."""
    if not tokens or (tokens[0].text not in ("SELECT", "WITH", "(") or tokens[0].is_quoted):
        raise InvalidStatement("expected a single statement that begins with SELECT or WITH")
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else _BEFORE
        after = tokens[place + 1] if place + 1 < len(tokens) else _BEFORE
        if token.kind is Kind.NAME:
            _check_name(token, before, after, catalog)
            if token.text.lower() in TYPED and after.text == "(":
                _check_type(tokens, place + 1)
        if before.text == "COLUMNS" and token.text == "(" and after.kind is Kind.TEXT and "\\" in after.text:
            raise InvalidStatement("the pattern of COLUMNS contains a backslash; expected one without")


def _check_name(token: Token, before: Token, after: Token, catalog: Catalog) -> None:
    name = token.text
    if _is_keyword(token, after, catalog):
        return
    if after.text == "(" and after.kind is Kind.SIGN:
        _check_call(name, before, catalog)
    elif before.text == "APPLY":
        _check_applied(name, after, catalog)
    elif name == _END_KEY:
        raise InvalidStatement("the name end is the key of the answer's last line; expected another alias")
    elif name == _SYSTEM and before.text in _BEFORE_TABLE and after.text == "." and catalog.extras.tables:
        # The checks of the trees decide which of its tables may be read.
        return
    elif name.startswith(_INTERNAL) or not catalog.reserved.isdisjoint(name_parts(name)):
        raise InvalidStatement(
            f"the name {name} is that of a function, table or database that is not allowed; "
            "expected another alias"
        )


def _is_keyword(token: Token, after: Token, catalog: Catalog) -> bool:
    """Return whether a token is an allowed keyword. Raises for another keyword."""
    # The engine writes keywords in upper case, and may write a name like a keyword in lower case.
    if token.is_quoted or token.text != token.text.upper() or token.text.lower() not in catalog.keywords:
        return False
    if token.text in KEYWORDS and (after.text != "(" or token.text in BEFORE_PARENTHESIS):
        return True
    if after.text == "(" and catalog.allows(token.text):
        return False
    raise InvalidStatement(f"the keyword {token.text} is not allowed")


def _check_call(name: str, before: Token, catalog: Catalog) -> None:
    # The list of columns of a table alias looks like a call.
    if before.text == "AS":
        raise InvalidStatement("an alias has a list of columns; expected aliases in the SELECT")
    is_allowed = catalog.allows(name) or name.lower() in TABLE_FUNCTIONS
    if not is_allowed or name.lower() in catalog.user_functions:
        raise InvalidStatement(f"the function {name} is not allowed")


def _check_applied(name: str, after: Token, catalog: Catalog) -> None:
    """Check what follows APPLY: the name of a function without an argument, or the parameter of a lambda."""
    if after.text == "->":
        return
    if name.lower() in TYPED:
        raise InvalidStatement(f"the function {name} is not allowed in APPLY; expected APPLY(x -> …)")
    _check_call(name, _BEFORE, catalog)


def _check_type(tokens: list[Token], opening: int) -> None:
    """Raise unless the last argument of a call is a literal text that names a plain type."""
    depth = 0
    for place in range(opening, len(tokens)):
        token = tokens[place]
        if token.kind is Kind.SIGN:
            depth += (token.text in "([") - (token.text in ")]")
        if not depth:
            break
    last, before_last = tokens[place - 1], tokens[place - 2]
    is_literal = last.kind is Kind.TEXT and before_last.text == ","
    if not is_literal or any(part in last.text.lower() for part in _TYPES_REFUSED):
        raise InvalidStatement("the type of a conversion is not allowed; expected the name of a plain type")
