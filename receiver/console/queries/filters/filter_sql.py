"""Compiler of filters to conditions in ClickHouse's SQL.

Invariant: the condition is made of constants and of names of promoted columns. Every key and every value is
a query parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, NamedTuple

from receiver.console.queries.filters.attribute_sql import Lookup, lookup
from receiver.console.queries.filters.filter import (
    INTRINSICS,
    Anchored,
    And,
    Attribute,
    Comparison,
    Exists,
    Filter,
    Intrinsic,
    Not,
    Operator,
    Or,
    Scope,
    Wildcard,
    terms,
)
from receiver.console.queries.filters.regex_size import REGEX_SIZE_MAX, regex_size
from receiver.engine.promoted import PromotedColumns, promoted_columns
from receiver.engine.store import Store
from receiver.errors import InvalidFilter, StoreTrouble

_COLUMN_OF: Final[Mapping[str, str]] = {
    "service": "ServiceName",
    "operation": "SpanName",
    "project": "ProjectId",
    "deployment": "DeploymentId",
    "status": "StatusCode",
    "status-message": "StatusMessage",
    "kind": "SpanKind",
    "duration": "Duration",
    "root": "if(ParentSpanId = '', '1', '')",
    "has-error": "if(StatusCode = 'Error' OR has(Events.Name, 'exception'), '1', '')",
    "trace": "TraceId",
    "span": "SpanId",
    "scope:name": "ScopeName",
    "scope:version": "ScopeVersion",
}
"""Field → expression; `event:name` has a value for each event."""
_EVERY_TEXT: Final = (
    "Events.Name",
    "mapValues(SpanAttributes)",
    "mapValues(ResourceAttributes)",
    "mapValues(ScopeAttributes)",
    "arrayFlatten(arrayMap(item -> mapValues(item), Events.Attributes))",
)
"""Arrays with the texts in which `text:all` searches, besides operation and status message."""
_EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("event", key): f"arrayMap(item -> item['{key}'], Events.Attributes)"
    for key in ("exception.message", "exception.type")
}
"""Texts of exceptions, which `text` searches although they are not promoted."""
_ARRAYS_OF: Final[Mapping[Scope, str]] = {"event": "Events.Attributes", "link": "Links.Attributes"}
_SQL_OF: Final[Mapping[Operator, str]] = {"=": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TRY_REGEX = "SELECT match('', {regex:String}), replaceRegexpAll('', {regex:String}, '')"
"""`match` alone accepts `a)|(b`, of which it reads only the beginning."""
_BAD_REGEX: Final = (36, 427)
"""ClickHouse's BAD_ARGUMENTS and CANNOT_COMPILE_REGEXP."""


class Condition(NamedTuple):
    """A condition on a row of the table, and its parameters."""

    sql: str
    parameters: dict[str, str | int]


def compiled(store: Store, tree: Filter, prefix: str = "filter") -> Condition:
    """Compile a filter for the table of the store. Every part of the condition is 0 or 1, never NULL.

    `prefix`: begins the names of the parameters, so that a statement can contain several filters.
    """
    compiler = Compiler(store, prefix)
    return Condition(compiler.condition(tree), compiler.parameters)


def check_regexes(store: Store, tree: Filter) -> None:
    """Raise `InvalidFilter` for a regular expression that the engine refuses, or that would cost too much."""
    size = 0
    for term in terms(tree):
        if isinstance(term, Comparison) and term.operator in ("=~", "!~"):
            size += regex_size(_regex(term.value))
            if size > REGEX_SIZE_MAX:
                raise InvalidFilter(
                    f"the regular expressions of the filter have over {REGEX_SIZE_MAX} characters once their "
                    "repetitions are written out; expected smaller counts in braces",
                    column=term.column,
                    path=term.path,
                )
            try:
                # Also try an anchored expression alone: `a)|(b` is valid only inside the added parentheses.
                if isinstance(term.value, Anchored):
                    store.rows(_TRY_REGEX, {"regex": term.value.regex})
                store.rows(_TRY_REGEX, {"regex": _regex(term.value)})
            except StoreTrouble as trouble:
                # An outage of the store is not an error of the filter.
                if trouble.code not in _BAD_REGEX:
                    raise
                raise InvalidFilter(
                    "the regular expression is not valid; expected RE2 syntax, without look-around",
                    column=term.column,
                    path=term.path,
                ) from trouble


class Compiler:
    """Compiles conditions and collects their parameters."""

    def __init__(self, store: Store, prefix: str = "filter") -> None:
        self._store = store
        self._prefix = prefix
        self.parameters: dict[str, str | int] = {}

    @cached_property
    def _promoted(self) -> PromotedColumns:
        """Promoted attributes. Read on first use, because only filters with an attribute need them."""
        return promoted_columns(self._store)

    def condition(self, tree: Filter) -> str:
        """Return the condition of a tree."""
        match tree:
            case Comparison(Intrinsic(name)):
                return self._of_intrinsic(name, tree)
            case Comparison(Attribute() as attribute):
                return self._of_attribute(attribute, tree)
            case Exists(attribute):
                return self._of_attribute(attribute, None)
            case Not(part):
                return f"NOT ({self.condition(part)})"
            case And(parts):
                # An empty filter matches every span.
                return self._joined(" AND ", parts) if parts else "1"
            case Or(parts):
                return self._joined(" OR ", parts)
            case _:
                raise TypeError(f"{type(tree).__name__} is no part of a filter")

    def _joined(self, word: str, parts: tuple[Filter, ...]) -> str:
        return word.join(f"({self.condition(part)})" for part in parts)

    def _of_intrinsic(self, name: str, comparison: Comparison) -> str:
        if name == "event:name":
            return f"arrayExists(item -> {self._test('item', comparison)}, Events.Name)"
        if INTRINSICS[name] == "content":
            return self._contains(comparison, in_all=name == "text:all")
        return self._test(_COLUMN_OF[name], comparison)

    def _contains(self, comparison: Comparison, *, in_all: bool) -> str:
        """Return whether a text of the span contains the value, whatever the case of its letters.

        `in_all`: also search the attributes without a column, which reads the maps of every span.
        """
        value = comparison.value
        parts = value.parts if isinstance(value, Wildcard) else (str(value),)
        pattern = self._bound(_like_pattern(Wildcard(("", *parts, ""))), "String")
        columns, arrays = ["SpanName", "StatusMessage"], [*(_EVERY_TEXT if in_all else ())]
        if not in_all:
            for (scope, _), column in {**_EXCEPTIONS, **self._promoted.column_of}.items():
                (arrays if scope in _ARRAYS_OF else columns).append(column)
        tests = [f"ifNull(ilike({column}, {pattern}), 0)" for column in columns]
        tests += [f"arrayExists(item -> ilike(item, {pattern}), {array})" for array in arrays]
        return f"{'NOT ' if comparison.operator == '!=' else ''}({' OR '.join(tests)})"

    def _of_attribute(self, attribute: Attribute, comparison: Comparison | None) -> str:
        key, scope = self._bound(attribute.key, "String"), attribute.scope
        if scope in _ARRAYS_OF:
            column, item = _ARRAYS_OF[scope], Lookup(f"item[{key}]", f"mapContains(item, {key})")
            # The column has the values of only those events that have the attribute.
            if promoted := self._promoted.column_of.get((scope, attribute.key)):
                column, item = promoted, Lookup("item", "1")
            return f"arrayExists(item -> {self._matches(item, comparison)}, {column})"
        if scope:
            return self._matches(lookup(self._promoted, scope, attribute.key, key), comparison)
        on_span, on_resource = (
            lookup(self._promoted, place, attribute.key, key) for place in ("span", "resource")
        )
        return (
            f"({self._matches(on_span, comparison)}) "
            f"OR (NOT {on_span.is_present} AND {self._matches(on_resource, comparison)})"
        )

    def _matches(self, found: Lookup, comparison: Comparison | None) -> str:
        if comparison is None:
            return found.is_present
        test = self._test(found.value, comparison)
        # A map returns an empty text for an absent key, which equals no other text: reading the keys for the
        # test of presence would be in vain. An absent key of a column is NULL, which has to become 0.
        is_exact = comparison.operator == "=" and isinstance(comparison.value, str) and comparison.value
        return test if is_exact and not found.is_nullable else f"{found.is_present} AND {test}"

    def _test(self, value: str, comparison: Comparison) -> str:
        operator, wanted = comparison.operator, comparison.value
        negation = "NOT " if operator in ("!=", "!~") else ""
        if isinstance(wanted, Wildcard):
            return f"{negation}like({value}, {self._bound(_like_pattern(wanted), 'String')})"
        if operator in ("=~", "!~"):
            return f"{negation}match({value}, {self._bound(_regex(wanted), 'String')})"
        if isinstance(wanted, Anchored):
            raise TypeError("an anchored regular expression needs =~ or !~")
        if isinstance(wanted, float):
            # A value that is no number is NULL, which must match neither the comparison nor its opposite.
            number = self._bound(repr(wanted), "Float64")
            if operator == "!=":  # unlike `!=`, does not match NaN
                return f"ifNull(abs(toFloat64OrNull({value}) - {number}) > 0, 0)"
            return f"ifNull(toFloat64OrNull({value}) {_SQL_OF[operator]} {number}, 0)"
        kind = "UInt64" if isinstance(wanted, int) else "String"
        return f"{value} {_SQL_OF[operator]} {self._bound(wanted, kind)}"

    def _bound(self, value: str | int, kind: str) -> str:
        # Numbered by all parameters so far, so the candidates and the conditions of a search never share a
        # name.
        name = f"{self._prefix}_{len(self.parameters)}"
        self.parameters[name] = value
        return f"{{{name}:{kind}}}"


def _regex(value: str | float | Wildcard | Anchored) -> str:
    # The group keeps the anchors from binding to only the first and the last of alternatives.
    return f"^(?:{value.regex})$" if isinstance(value, Anchored) else str(value)


def _like_pattern(wildcard: Wildcard) -> str:
    escape = str.maketrans({"\\": r"\\", "%": r"\%", "_": r"\_"})
    return "%".join(part.translate(escape) for part in wildcard.parts)
