"""Guard of SQL statements: accepts a single harmless SELECT, refuses everything else.

A statement has to pass three checks, each with the lists of `allowed`:

    tokens           the names, keywords and signs of the statement in the engine's spelling
    parsed tree      the functions and tables in the query tree that the engine makes of it: see `query_tree`
    resolved tree    the functions and tables that the engine finds under the names in the tree

Invariant: only the engine's own spelling of a statement is checked and executed, never the client's text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from receiver.console.queries.raw_sql import allowed
from receiver.console.queries.raw_sql.catalog import Catalog
from receiver.console.queries.raw_sql.patterns import PATTERN_CHARS_MAX, is_linear
from receiver.console.queries.raw_sql.tokens import Kind, Token, literal_text
from receiver.errors import InvalidStatement

_BEFORE: Final = Token(Kind.SIGN, "")
"""Stands for the missing neighbour of the first and of the last token."""
_END_KEY: Final = "end"
_INTERNAL: Final = "__"
"""Beginning of the names of functions that the engine has for itself."""
SYSTEM: Final = "system"
BEFORE_TABLE: Final = ("FROM", "JOIN")
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
            if token.text.lower() in allowed.TYPED and after.text == "(":
                _check_type(tokens, place + 1)
            if token.text.lower() in allowed.PATTERN_ARGUMENT:
                _check_pattern(tokens, place)
            if token.text.lower() in allowed.SEARCH_ARGUMENT:
                _check_search(tokens, place)
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
    elif name == SYSTEM and before.text in BEFORE_TABLE and after.text == "." and catalog.extras.tables:
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
    if token.text in allowed.KEYWORDS and (after.text != "(" or token.text in allowed.BEFORE_PARENTHESIS):
        return True
    if after.text == "(" and catalog.allows(token.text):
        return False
    raise InvalidStatement(f"the keyword {token.text} is not allowed")


def _check_call(name: str, before: Token, catalog: Catalog) -> None:
    # The list of columns of a table alias looks like a call.
    if before.text == "AS":
        raise InvalidStatement("an alias has a list of columns; expected aliases in the SELECT")
    is_allowed = catalog.allows(name) or name.lower() in allowed.TABLE_FUNCTIONS
    if not is_allowed or name.lower() in catalog.user_functions:
        raise InvalidStatement(f"the function {name} is not allowed")


def _check_applied(name: str, after: Token, catalog: Catalog) -> None:
    """Check what follows APPLY: the name of a function without an argument, or the parameter of a lambda."""
    if after.text == "->":
        return
    if name.lower() in allowed.TYPED:
        raise InvalidStatement(f"the function {name} is not allowed in APPLY; expected APPLY(x -> …)")
    _check_call(name, _BEFORE, catalog)


def _check_type(tokens: list[Token], opening: int) -> None:
    """Raise unless the last argument of a call is a literal text that names a plain type."""
    *_, (place, _) = _depths(tokens, opening)
    last, before_last = tokens[place - 1], tokens[place - 2]
    is_literal = last.kind is Kind.TEXT and before_last.text == ","
    if not is_literal or any(part in last.text.lower() for part in _TYPES_REFUSED):
        raise InvalidStatement("the type of a conversion is not allowed; expected the name of a plain type")


def _check_pattern(tokens: list[Token], name: int) -> None:
    """Raise unless a name begins a call whose pattern is a literal that `is_linear` accepts."""
    function = tokens[name].text
    pattern = _argument(tokens, name + 1, allowed.PATTERN_ARGUMENT[function.lower()])
    if len(pattern) != 1 or pattern[0].kind is not Kind.TEXT:
        raise InvalidStatement(
            f"the pattern of {function} is not a literal; expected a call with a text in quotes"
        )
    if not is_linear(literal_text(pattern[0])):
        raise InvalidStatement(
            f"the pattern of {function} may take too long; expected at most {PATTERN_CHARS_MAX} characters, "
            "with * and + outside of repeated and optional groups, and at the end of an alternative"
        )


def _check_search(tokens: list[Token], name: int) -> None:
    """Raise unless the text that a function searches for is short: literals or parameters."""
    function, after = tokens[name].text, tokens[name + 1 : name + 2]
    if function == "ILIKE" and after and after[0].text != "(":
        search = after
    else:
        search = _argument(tokens, name + 1, allowed.SEARCH_ARGUMENT[function.lower()])
    if not search or not all(map(_is_short, search)):
        raise InvalidStatement(
            f"the text that {function} searches for is not a literal of at most {allowed.SEARCH_CHARS_MAX} "
            "characters; expected lower() of both texts and the function for equal case"
        )


def _is_short(token: Token) -> bool:
    """Return whether a token is a short literal, a parameter, or a part of a list of them."""
    is_literal = token.kind is Kind.TEXT and len(token.text) <= allowed.SEARCH_CHARS_MAX
    return is_literal or token.kind is Kind.PLACEHOLDER or token.text in ("[", "]", ",")


def _argument(tokens: list[Token], opening: int, index: int) -> list[Token]:
    """Return the tokens of an argument; none if there is no call or no such argument."""
    arguments: list[list[Token]] = [[]]
    for place, depth in _depths(tokens, opening):
        if depth == 1 and tokens[place].text == "," and tokens[place].kind is Kind.SIGN:
            arguments.append([])
        elif depth and place > opening:
            arguments[-1].append(tokens[place])
    return arguments[index] if index < len(arguments) else []


def _depths(tokens: list[Token], opening: int) -> Iterator[tuple[int, int]]:
    """Yield the index and the depth of each token from an opening parenthesis to its closing one."""
    depth = 0
    for place in range(opening, len(tokens)):
        token = tokens[place]
        if token.kind is Kind.SIGN:
            depth += (token.text in "([") - (token.text in ")]")
        yield place, depth
        if not depth:
            return
