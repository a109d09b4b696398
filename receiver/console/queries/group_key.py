"""Group key: the field or attribute whose values group the spans of an answer.

Invariant: the expressions are made of constants of this module. The key of an attribute is a query parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from receiver.console.queries.filters.attribute_sql import Lookup, lookup
from receiver.console.queries.filters.filter import Scope
from receiver.console.queries.filters.filter_values import SCOPES, meant
from receiver.engine.promoted import promoted_columns
from receiver.engine.sql_text import compose, identifier
from receiver.engine.store import Store
from receiver.errors import MalformedBody

FIELDS: Final = {
    "service": "ServiceName",
    "operation": "SpanName",
    "name": "SpanName",
    "project": "ProjectId",
    "deployment": "DeploymentId",
    "kind": "SpanKind",
    "status": "StatusCode",
}
"""Field of every span → its column. All other keys are attributes."""
_MULTIPLE: Final = ("event", "link")
_SCOPES: Final[Mapping[str, Scope]] = {scope: scope for scope in SCOPES if scope not in _MULTIPLE}
_CHARACTERS_MAX = 200


class GroupKey(NamedTuple):
    """A field of every span, or an attribute."""

    column: str
    """Column of the field; empty for an attribute."""
    scope: Scope = ""
    key: str = ""
    parameter: str = "group_key"
    """Name of the query parameter that has the key of an attribute."""

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters of the expressions."""
        return {} if self.column else {self.parameter: self.key}

    def expressions(self, store: Store) -> Lookup:
        """Return how the value of a span is read as a text, and which spans have it."""
        if self.column:
            return Lookup(self.column, "1")
        promoted = promoted_columns(store)
        parameter = compose("{{name}:String}", name=identifier(self.parameter))
        if self.scope:
            found = lookup(promoted, self.scope, self.key, parameter)
            return Lookup(_text(found), found.is_present)
        on_span, on_resource = (
            lookup(promoted, scope, self.key, parameter) for scope in ("span", "resource")
        )
        return Lookup(
            f"if({on_span.is_present}, {_text(on_span)}, {_text(on_resource)})",
            f"({on_span.is_present} OR {on_resource.is_present})",
        )


def _text(found: Lookup) -> str:
    """Return the value as a `String`: both branches of an `if` need the same type."""
    return f"ifNull(toString({found.value}), '')"


def parse_group_key(text: str, parameter: str = "by", others: Collection[str] = ()) -> GroupKey:
    """Parse a field, or an attribute as filters name it: `http.route`, `span.KEY`, `resource.KEY`.

    `parameter`: name of the parameter with the text, and `others`: its other values, for errors.
    """
    return (
        GroupKey(FIELDS[text]) if text in FIELDS else parse_attribute_key(text, parameter, (*others, *FIELDS))
    )


def parse_attribute_key(text: str, field: str, fields: Collection[str] = ()) -> GroupKey:
    """Parse an attribute. `field`: the parameter in errors; `fields`: what it accepts beside attributes."""
    scope, _, key = text.partition(".")
    # A span has many events and links, so it would be in several groups.
    if not key or scope in _MULTIPLE or len(text) > _CHARACTERS_MAX or "\0" in text:
        hint = f"{meant(text.lower(), tuple(fields))} ".lstrip()
        expected = ", ".join([*fields, "an attribute with a dot such as http.route"])
        raise MalformedBody(
            f"{field}: {hint}expected {expected}, "
            f"span.KEY, resource.KEY or scope.KEY, of at most {_CHARACTERS_MAX} characters",
            field=field,
        )
    return GroupKey("", _SCOPES[scope], key) if scope in _SCOPES else GroupKey("", "", text)
