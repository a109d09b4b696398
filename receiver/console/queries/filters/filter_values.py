"""Limits of filters, and the check of a field, an operator and a value, for the parsers of all forms.

Never: repeats a key or a value in a message.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal
from difflib import get_close_matches
from typing import Final, NamedTuple, get_args

from receiver.console.queries.filters.filter import (
    INTRINSICS,
    WORDS,
    Anchored,
    Attribute,
    Comparison,
    Filter,
    Intrinsic,
    Operator,
    Scope,
    TraceFilter,
    Wildcard,
    reads_trace,
    spansets,
    terms,
)
from receiver.errors import InvalidFilter

CHARACTERS_MAX = 2_000
"""Maximum length of a filter; fits a URL whose parameters are escaped."""
JSON_CHARACTERS_MAX = 4_000
"""Maximum length of a filter in JSON, which needs about twice the characters."""
TERMS_MAX = 64
"""Maximum number of comparisons in a filter: each costs a pass over a column."""
TRACE_TERMS_MAX = 4
"""Maximum number of comparisons with fields of the trace: each reads the whole traces."""
DEPTH_MAX = 16
"""Maximum nesting of parentheses and negations."""
REGEX_CHARACTERS_MAX = 500
PLAIN_KEY: Final = re.compile(r"[A-Za-z_][\w.:/-]*")
"""Key of an attribute that needs no quotation marks."""

SCOPES: Final[tuple[Scope, ...]] = tuple(scope for scope in get_args(Scope) if scope)
OPERATORS: Final[tuple[Operator, ...]] = get_args(Operator)
BY_SIZE: Final = ("<", "<=", ">", ">=")
REGEX: Final = ("=~", "!~")

# The numbers of digits are limited, because converting very long numbers is slow.
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
# 15 digits always fit the type of the parameter.
_WHOLE_NUMBER = re.compile(r"[0-9]{1,15}")
_DURATION_PART = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)(ns|us|µs|ms|s|m|h|d)")
_NS_OF: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3_600 * 10**9,
    "d": 86_400 * 10**9,
}
_DURATION_PARTS_MAX = 8
_DURATION_NS_MAX = 2**64 - 1


class Place(NamedTuple):
    """Place in a filter: a column of its text, or a path in its JSON."""

    column: int = 0
    path: str = ""

    def invalid(self, problem: str) -> InvalidFilter:
        """Return the error about this place."""
        return InvalidFilter(problem, column=self.column, path=self.path)


class Value(NamedTuple):
    """Value of a comparison."""

    text: str
    """Text without its quotation marks. Escapes and wildcards are not replaced yet, unless `is_exact`."""
    place: Place
    is_quoted: bool = False
    is_exact: bool = False
    """Whether the text is literal, without escapes and wildcards."""
    is_number: bool = False
    """Whether `=` and `!=` also compare numbers."""


def check_text(text: str, characters_max: int = CHARACTERS_MAX) -> None:
    """Raise for a filter that is too long, or that has characters which the engine cannot compare."""
    if len(text) > characters_max:
        raise InvalidFilter(f"the filter has over {characters_max} characters", column=characters_max + 1)
    place = unusable_character(text)
    if place is not None:
        raise InvalidFilter("the filter has a NUL character or is not UTF-8", column=place + 1)


def unusable_character(text: str) -> int | None:
    """Return the index of the first character that the engine cannot compare."""
    # Surrogates stand for bytes of a command line that are not UTF-8, and JSON can escape them.
    found = re.search("[\0\ud800-\udfff]", text)
    return found.start() if found else None


def check_trace_terms(tree: TraceFilter) -> None:
    """Raise for a filter with too many comparisons with fields of the trace."""
    found = [term for spanset in spansets(tree) for term in terms(spanset.part) if reads_trace(term)]
    for term in found[TRACE_TERMS_MAX:]:
        raise _place_of(term).invalid(
            f"the filter has over {TRACE_TERMS_MAX} comparisons with fields of the trace"
        )


def reject_trace_fields(tree: Filter) -> None:
    """Raise for a comparison with a field of the trace, where only spans are filtered."""
    for term in terms(tree):
        if reads_trace(term):
            raise _place_of(term).invalid(
                "this is a field of the trace; only a search compares it, other queries filter spans"
            )


def _place_of(term: object) -> Place:
    return Place(term.column, term.path) if isinstance(term, Comparison) else Place()


def comparison(
    field: Intrinsic | Attribute, operator: Operator, value: Value, operator_place: Place
) -> Comparison:
    """Return the comparison. Raises if the field has no such operator or no such value."""
    found = _converted(field, operator, value, operator_place)
    return Comparison(field, operator, found, value.place.column, value.place.path)


def has_text(text: str) -> Comparison:
    """Return whether a text of the span, in any of its attributes, contains this text."""
    check_text(text)
    return Comparison(Intrinsic("text:all"), "=", text)


def _converted(
    field: Intrinsic | Attribute, operator: Operator, value: Value, operator_place: Place
) -> str | int | float | Wildcard:
    kind = INTRINSICS[field.name] if isinstance(field, Intrinsic) else "text"
    if kind in ("duration", "count"):
        if operator in REGEX:
            raise operator_place.invalid(f"a {kind} takes = != < <= > or >=")
        return nanoseconds(value) if kind == "duration" else _whole_number(value)
    if (kind in WORDS or kind == "content") and operator not in ("=", "!="):
        raise operator_place.invalid("this field takes = or !=")
    if kind in WORDS:
        return stored_word(value, WORDS[kind])
    if operator in REGEX:
        return regex(value)
    if operator in BY_SIZE or value.is_number:
        if isinstance(field, Intrinsic):
            raise operator_place.invalid("this field takes = != =~ or !~ and a text")
        return number(value)
    return value.text if value.is_exact else text_or_wildcard(value.text)


def nanoseconds(value: Value) -> int:
    """Return the duration in nanoseconds. The text may have several parts, such as `1h30m`."""
    parts = _DURATION_PART.findall(value.text)
    # `findall` skips what does not match, so the parts have to add up to the whole text.
    if len(parts) > _DURATION_PARTS_MAX or not parts or value.text != "".join(map("".join, parts)):
        raise value.place.invalid(
            "the value is not a duration; expected a number and ns, us, ms, s, m, h or d, like 250ms"
        )
    # Not in floats, which have too few digits for nanoseconds above 104 days.
    duration_ns = sum(Decimal(count) * _NS_OF[unit] for count, unit in parts)
    if duration_ns != int(duration_ns) or duration_ns > _DURATION_NS_MAX:
        raise value.place.invalid("the duration is not a whole number of nanoseconds below 2^64")
    return int(duration_ns)


def stored_word(value: Value, words: dict[str, str]) -> str:
    """Return the stored value for a word."""
    word = value.text.lower()
    if word not in words:
        hint = meant(word, words) or "expected a word that this field has."
        known = ", ".join(words)
        raise value.place.invalid(f"unknown value; {hint} Known are: {known}")
    return words[word]


def number(value: Value) -> float:
    """Return the number."""
    if not _NUMBER.fullmatch(value.text):
        raise value.place.invalid("the value is not a number; < <= > >= compare numbers")
    return float(value.text)


def _whole_number(value: Value) -> int:
    if not _WHOLE_NUMBER.fullmatch(value.text):
        raise value.place.invalid("the value is not a whole number; expected a number of spans, like 100")
    return int(value.text)


def regex(value: Value) -> str:
    """Return a regular expression. Only backslashes before quotation marks are removed."""
    if len(value.text) > REGEX_CHARACTERS_MAX:
        raise value.place.invalid(f"the regular expression has over {REGEX_CHARACTERS_MAX} characters")
    return value.text.replace('\\"', '"') if value.is_quoted and not value.is_exact else value.text


def anchored(found: Comparison) -> Comparison:
    """Return the comparison with its regular expression anchored at both ends."""
    value = Anchored(str(found.value))
    return Comparison(found.field, found.operator, value, found.column, found.path)


def text_or_wildcard(text: str) -> str | Wildcard:
    """Return the unescaped text, or a wildcard if the text has a `*` that is not escaped."""
    parts = [""]
    for character in re.findall(r'\\[\\"*]|.', text, re.DOTALL):
        if character == "*":
            parts.append("")
        else:
            parts[-1] += character[-1]
    return parts[0] if len(parts) == 1 else Wildcard(tuple(parts))


def quoted(text: str) -> str:
    """Return a value or key in quotation marks, with escapes for any character."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def attribute_text(scope: str, key: str) -> str:
    """Return an attribute as filters name it: `span.http.route`, `resource."my key"`."""
    return f"{scope}.{key}" if PLAIN_KEY.fullmatch(key) else f"{scope}.{quoted(key)}"


def unquoted(key: str) -> str:
    r"""Return a quoted key without the backslash of `\"` and `\\`."""
    return re.sub(r'\\([\\"])', r"\1", key)


def meant(word: str, known: Collection[str]) -> str:
    """Return `did you mean 'x'?` for the most similar known word; empty if none is similar."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else ""
