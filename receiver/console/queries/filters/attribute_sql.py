"""Expressions for attributes: from the column of a promoted attribute, otherwise from a map.

Invariant: the column of an attribute without older spellings gives the same values as the map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from receiver.console.queries.filters.filter import Scope
from receiver.engine.promoted import ELSEWHERE, PromotedColumns
from receiver.engine.sql_text import Sql

_MAPS_OF: Final[Mapping[Scope, str]] = {
    "span": "SpanAttributes",
    "resource": "ResourceAttributes",
    "scope": "ScopeAttributes",
    "instrumentation": "ScopeAttributes",
}


class Lookup(NamedTuple):
    """Expressions for an attribute of a row."""

    value: str
    """Value of the attribute; empty or NULL if the row lacks it."""
    is_present: str
    """Whether the row has the attribute: 0 or 1."""
    is_nullable: bool = False
    """Whether the value of an absent attribute is NULL."""

    @property
    def value_sql(self) -> Sql:
        """Return the value as a piece of a statement."""
        return Sql(self.value)

    @property
    def is_present_sql(self) -> Sql:
        """Return the test as a piece of a statement."""
        return Sql(self.is_present)


def lookup(promoted: PromotedColumns, scope: Scope, key: str, parameter: str) -> Lookup:
    """Return the expressions for an attribute of the span, its resource or its scope.

    `parameter`: placeholder of the query parameter that contains the key.
    """
    if column := promoted.column_of.get((scope, key)):
        return Lookup(column, f"({column} IS NOT NULL)", is_nullable=True)
    # A small column that has the entries of these keys: reading it instead of the map is nearly free.
    attributes = ELSEWHERE if (scope, key) in promoted.elsewhere else _MAPS_OF[scope]
    return Lookup(f"{attributes}[{parameter}]", f"mapContains({attributes}, {parameter})")
