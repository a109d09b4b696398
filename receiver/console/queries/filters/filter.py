"""Filter tree: conditions on spans and on traces, independent of their text and of their SQL.

Invariant: a comparison never matches a span that lacks the attribute. Its negation by `Not` does.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, Literal, assert_never

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "=~", "!~"]
Scope = Literal["", "span", "resource", "event", "link", "scope", "instrumentation"]
"""Where an attribute is looked up; empty: on the span, or else on its resource.

`instrumentation` is TraceQL's word for `scope`.
"""
Kind = Literal["text", "content", "duration", "count", "status", "kind", "flag"]
"""Type of the values of an intrinsic field."""

INTRINSICS: Final[dict[str, Kind]] = {
    "service": "text",
    "operation": "text",
    "project": "text",
    "deployment": "text",
    "status": "status",
    "status-message": "text",
    "kind": "kind",
    "duration": "duration",
    "root": "flag",
    "has-error": "flag",
    "trace": "text",
    "span": "text",
    "text": "content",
    "text:all": "content",
    "event:name": "text",
    "scope:name": "text",
    "scope:version": "text",
    "trace:service": "text",
    "trace:name": "text",
    "trace:duration": "duration",
    "trace:spans": "count",
    "trace:errors": "count",
}
"""Field of every span, or of its trace → type of its values.

`text` is what a text without a field is searched in: see `Compiler` in `filter_sql.py`.
"""
TRACE_FIELDS: Final = frozenset(name for name in INTRINSICS if name.startswith("trace:"))
"""Fields whose value is computed from all spans of the trace."""
ALIASES: Final = {
    "name": "operation",
    "trace:id": "trace",
    "trace:rootService": "trace:service",
    "trace:rootName": "trace:name",
    "instrumentation:name": "scope:name",
    "instrumentation:version": "scope:version",
}
WORDS: Final[dict[Kind, dict[str, str]]] = {
    "status": {"unset": "Unset", "ok": "Ok", "error": "Error"},
    "kind": {
        "unspecified": "Unspecified",
        "internal": "Internal",
        "server": "Server",
        "client": "Client",
        "producer": "Producer",
        "consumer": "Consumer",
    },
    "flag": {"true": "1", "false": ""},
}
"""Word of a filter → stored value; a flag is empty if it is false."""
_USUAL_OPERATOR: Final[dict[Kind, str]] = {"flag": "", "duration": ">", "count": ">"}
FIELD_COMPLETIONS: Final = {
    name: name + _USUAL_OPERATOR.get(kind, "=")
    for name, kind in {**INTRINSICS, "name": INTRINSICS[ALIASES["name"]]}.items()
}
"""Field, or its usual alias → the same with the operator that usually follows."""


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A field that every span has."""

    name: str
    """A key of `INTRINSICS`."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that a span may have."""

    scope: Scope
    key: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A text with `*` between its parts, which stands for any text, even an empty one."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Anchored:
    """A regular expression that has to match the whole text."""

    regex: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field compared with a value.

    The value is a `str` for a text, a regular expression or a stored word, a `Wildcard` with `=` and `!=`,
    `Anchored` with `=~` and `!~`, an `int` for a number of nanoseconds or of spans, and a `float` for an
    attribute compared as a number.
    """

    field: Intrinsic | Attribute
    operator: Operator
    value: str | int | float | Wildcard | Anchored
    # Not compared: two conditions are equal wherever they stand in the text.
    column: int = dataclasses.field(default=1, compare=False)
    """Column of the value in the text, for messages."""
    path: str = dataclasses.field(default="", compare=False)
    """Place of the value in JSON, for messages; empty if the filter is not JSON."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The span has this attribute."""

    field: Attribute


@dataclass(frozen=True, slots=True)
class Not:
    """The span does not match the part."""

    part: Filter


@dataclass(frozen=True, slots=True)
class And:
    """The span matches every part; without parts, any span."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The span matches at least a single part."""

    parts: tuple[Filter, ...]


Filter = Comparison | Exists | Not | And | Or


@dataclass(frozen=True, slots=True)
class HasSpan:
    """The trace has a span in the time range that matches."""

    part: Filter


@dataclass(frozen=True, slots=True)
class TraceNot:
    """The trace does not match the part."""

    part: TraceFilter


@dataclass(frozen=True, slots=True)
class TraceAnd:
    """The trace matches every part."""

    parts: tuple[TraceFilter, ...]


@dataclass(frozen=True, slots=True)
class TraceOr:
    """The trace matches at least a single part."""

    parts: tuple[TraceFilter, ...]


TraceFilter = HasSpan | TraceNot | TraceAnd | TraceOr


def spansets(tree: TraceFilter) -> list[HasSpan]:
    """Return the conditions on single spans, in the order of the text."""
    match tree:
        case HasSpan():
            return [tree]
        case TraceNot(part):
            return spansets(part)
        case TraceAnd(parts) | TraceOr(parts):
            return [spanset for part in parts for spanset in spansets(part)]
        case _:
            assert_never(tree)


def terms(tree: Filter) -> list[Comparison | Exists]:
    """Return the comparisons of a filter, in the order of the text."""
    match tree:
        case Comparison() | Exists():
            return [tree]
        case Not(part):
            return terms(part)
        case And(parts) | Or(parts):
            return [term for part in parts for term in terms(part)]
        case _:
            assert_never(tree)


def reads_trace(term: Comparison | Exists) -> bool:
    """Return whether the comparison is of a field of the trace."""
    return isinstance(term.field, Intrinsic) and term.field.name in TRACE_FIELDS
