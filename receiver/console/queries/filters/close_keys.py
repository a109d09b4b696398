"""Suggestions for misspelled attribute keys, for a search that matches nothing.

Invariant: the cost is bounded. An error of the store gives no suggestions; the search succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from receiver.console.queries.filters import filter as filters
from receiver.console.queries.filters.filter_values import attribute_text
from receiver.console.queries.group_key import GroupKey
from receiver.engine.sql_text import compose
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble
from receiver.time_range import TimeRange

SPANS_MAX = 100_000
"""Maximum number of spans whose attributes are read."""
# `get_close_matches` compares in Python, in time that grows with the product of both lengths.
KEYS_MAX = 2_000
"""Maximum number of keys that are compared with a key."""
KEY_CHARACTERS_MAX = 100
"""Maximum length of a key that is compared."""
ATTRIBUTES_MAX = 8
"""Maximum number of attributes of a filter that are checked."""
SIMILARITY_MIN = 0.7
"""Minimum similarity of two keys, from 0 to 1."""
_SCOPES: Final = ("span", "resource")
_KEYS = compose(
    """
SELECT found.1 AS scope, found.2 AS key
FROM
(
    SELECT arrayJoin(arrayConcat(
        arrayMap(key -> ('span', toString(key)), mapKeys(SpanAttributes)),
        arrayMap(key -> ('resource', toString(key)), mapKeys(ResourceAttributes))
    )) AS found
    FROM
    (
        SELECT SpanAttributes, ResourceAttributes
        FROM {table}
        WHERE {in_range}
        LIMIT {spans_max}
    )
)
WHERE lengthUTF8(key) <= {key_characters_max}
GROUP BY scope, key
ORDER BY count() DESC, scope, key
LIMIT {keys_max}
{settings}
""",
    spans_max=SPANS_MAX,
    key_characters_max=KEY_CHARACTERS_MAX,
    keys_max=KEYS_MAX,
)


def close_keys(store: Store, tree: filters.TraceFilter, range_parameters: Parameters) -> list[str]:
    """Return stored attributes whose keys are similar to those keys of the filter that no span has.

    `range_parameters`: `from_ns` and `to_ns`. Reads a part of the spans, so rare attributes may be missing.
    """
    wanted = {
        term.field: None
        # A dictionary and not a set, to keep the order of the filter.
        for spanset in filters.spansets(tree)
        for term in filters.terms(spanset.part)
        if isinstance(term.field, filters.Attribute)
        and term.field.scope in ("", *_SCOPES)
        and len(term.field.key) <= KEY_CHARACTERS_MAX
    }
    if not wanted:
        return []
    try:
        present = set(store.rows(_KEYS, range_parameters))
    # The search has its answer already, which is right without a suggestion.
    except StoreTrouble:
        return []
    found: dict[str, None] = {}
    for attribute in list(wanted)[:ATTRIBUTES_MAX]:
        found |= dict.fromkeys(_close(attribute, present))
    return list(found)


def close_group_keys(
    store: Store, groups: Iterable[GroupKey], time_range: TimeRange, now_s: float
) -> list[str]:
    """Return stored attributes with keys similar to those group keys that no span has."""
    keys = tuple(
        filters.Exists(filters.Attribute(group.scope, group.key)) for group in groups if not group.column
    )
    return close_keys(store, filters.HasSpan(filters.And(keys)), time_range.parameters(now_s)) if keys else []


def _close(attribute: filters.Attribute, present: set[tuple[str, str]]) -> list[str]:
    scopes = (attribute.scope,) if attribute.scope else _SCOPES
    if any((scope, attribute.key) in present for scope in scopes):
        return []
    keys = get_close_matches(attribute.key, sorted({key for _, key in present}), n=3, cutoff=SIMILARITY_MIN)
    # In the syntax of a filter, so that an operator can copy the suggestion.
    return [attribute_text(scope, key) for key in keys for scope in _SCOPES if (scope, key) in present]
