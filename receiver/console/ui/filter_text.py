"""Text of a filter on a page: joined and shortened filters, and the position of an error."""

from __future__ import annotations

import re
from typing import Final

from receiver.console.queries.filters.filter import FIELD_COMPLETIONS, INTRINSICS, WORDS
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.filters.filter_json import is_json
from receiver.console.queries.filters.filter_text import (
    bare_texts,
    has_spansets,
    parse_filter,
    with_text_field,
)
from receiver.console.queries.filters.plain_text import is_plain
from receiver.errors import InvalidFilter

_OR: Final = re.compile(r"\bOR\b", re.IGNORECASE)
_OR_NOT: Final = re.compile(r"\b(OR|NOT)\b", re.IGNORECASE)


def known_terms() -> str:
    """Return each field with its operator, and the values of fields with few values, for completion."""
    values = [f"{name}={word}" for name in ("status", "kind") for word in WORDS[INTRINSICS[name]]]
    return " ".join([*FIELD_COMPLETIONS.values(), *values])


def all_of(*parts: str) -> str:
    """Return the conjunction of these filters. Empty filters match everything."""
    filters = [part for part in parts if part]
    if len(filters) == 1:
        return filters[0]
    # Beside a comparison, words such as `not` and parentheses would have another meaning.
    filters = [with_text_field(part, "text") if is_plain(part) else part for part in filters]
    if any(_has_spansets(part) for part in filters):
        return " && ".join(f"({part})" if _has_spansets(part) else f"{{{part}}}" for part in filters)
    # Terms side by side bind more tightly than OR.
    return " ".join(f"({part})" if _OR.search(part) else part for part in filters)


def _has_spansets(text: str) -> bool:
    return has_spansets(text) and not is_json(text)


def without_term(text: str, removed: str) -> str | None:
    """Return the filter without a term; `None` if it lacks this term, or has OR or NOT."""
    if _OR_NOT.search(text):
        return None
    # Users type most values without quotation marks.
    for spelled in (removed, removed.replace('"', "")):
        before, separator, after = f" {text} ".partition(f" {spelled} ")
        if separator:
            return f"{before.strip()} {after.strip()}".strip()
    return None


def is_of_spans(text: str) -> bool:
    """Return whether the filter is a condition on spans, not on traces. Raises `InvalidFilter`."""
    parse_any_form(text)
    try:
        parse_filter(text)
    except InvalidFilter:
        return False
    return True


def widened(text: str) -> str:
    """Return the filter with its texts searched in every attribute; empty if every text has a field."""
    return "" if is_json(text) or not bare_texts(text) else with_text_field(text, "text:all")


def error_column(text: str) -> int:
    """Return the column of the error in a filter, from 1; 0 if it has no error or its error has no column."""
    try:
        parse_any_form(text)
    except InvalidFilter as error:
        return error.column
    return 0
