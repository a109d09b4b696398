"""Names and values of Tempo's tags, which are attributes and fields of spans.

Grafana suggests them while the user writes a query. The values are those of the spans that match the query;
a query that cannot be parsed yet does not restrict them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from receiver.console.queries.attributes import attributes
from receiver.console.queries.filters.filter import WORDS, And, Filter, HasSpan, Scope, reads_trace, terms
from receiver.console.queries.filters.filter_values import CHARACTERS_MAX, unusable_character
from receiver.console.queries.filters.traceql import FIELDS as INTRINSICS
from receiver.console.queries.filters.traceql import parse_traceql
from receiver.console.queries.group_key import FIELDS as COLUMNS
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.question import Asked
from receiver.console.queries.tag_values import WantedValues, tag_values
from receiver.console.queries.traces.traces import rows_of
from receiver.engine.store import Store
from receiver.errors import InvalidFilter, MalformedBody

SCOPES: Final = ("span", "resource")
_SCOPE_OF: Final[dict[str, Scope]] = {
    "": "",
    "span": "span",
    "resource": "resource",
    "instrumentation": "instrumentation",
}
_COLUMN_OF: Final = {
    "operation": "SpanName",
    "status-message": "StatusMessage",
    "scope:name": "ScopeName",
    "scope:version": "ScopeVersion",
}
_ROOT_FIELDS: Final = {"trace:service": "service", "trace:name": "operation"}
"""Field of the trace → field of its root."""
_WHOLE_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")


class Tag(NamedTuple):
    """A tag: its key, or the words that its values are."""

    key: GroupKey | None = None
    of_roots: bool = False
    words: tuple[str, ...] = ()


def parse_tag(text: str) -> Tag:
    """Return the tag of a name such as `status`, `.KEY` or `span.KEY`; without a key if it has no values."""
    if len(text) > CHARACTERS_MAX or unusable_character(text) is not None:
        raise MalformedBody("the name of the tag is too long or has a NUL character", field="tag")
    field = INTRINSICS.get(text, "")
    if field in ("status", "kind"):
        return Tag(words=tuple(WORDS["status" if field == "status" else "kind"]))
    if field in _ROOT_FIELDS:
        return Tag(GroupKey(COLUMNS[_ROOT_FIELDS[field]]), of_roots=True)
    if field:
        return Tag(GroupKey(_COLUMN_OF[field])) if field in _COLUMN_OF else Tag()
    scope, _, key = text.partition(".")
    if scope in _SCOPE_OF and key:
        return Tag(GroupKey("", _SCOPE_OF[scope], key))
    # Without a scope, as in the older API. Values of events and links are not listed.
    return Tag() if scope in ("event", "link", "parent") or not text else Tag(GroupKey("", "", text))


def tag_names(store: Store, asked: Asked[str | None], now_s: float, scope: str) -> dict[str, list[str]]:
    """Return the names of tags by scope, the most frequent first. An empty scope: all scopes."""
    found: dict[str, list[str]] = {name: [] for name in SCOPES}
    if scope != "intrinsic":
        for row in rows_of(attributes(store, asked, now_s).pieces()):
            found[row["scope"]].append(row["key"])
    found["intrinsic"] = list(INTRINSICS)
    return {name: keys for name, keys in found.items() if scope in ("", name)}


def tag_value_texts(
    store: Store, tag: Tag, asked: Asked[str | None], now_s: float, query: str
) -> Iterator[str]:
    """Yield the values of a tag, the most frequent first."""
    yield from tag.words
    if tag.key is not None:
        wanted = WantedValues(tag.key, condition_of(query), asked.range, asked.limit, tag.of_roots)
        for row in rows_of(tag_values(store, wanted, now_s=now_s).pieces()):
            yield row["value"]


def condition_of(query: str) -> Filter:
    """Return the condition on spans of a query; any span if it has none, or cannot be parsed yet."""
    try:
        tree = parse_traceql(query)
    except InvalidFilter:
        return And(())
    if not isinstance(tree, HasSpan) or any(map(reads_trace, terms(tree.part))):
        return And(())
    return tree.part


def typed_value(tag: Tag, value: str) -> dict[str, str]:
    """Return a value with the type by which Grafana decides whether to quote it."""
    if tag.words:
        return {"type": "keyword", "value": value}
    return {"type": "int" if _WHOLE_NUMBER.fullmatch(value) else "string", "value": value}
