"""Attribute shifts: which values are more or less frequent in a selection of spans than in other spans.

Invariant: shares are of a sample by span id that is complete up to `SAMPLE_SPANS` spans and unbiased above.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from receiver.console.queries.filters.filter import (
    And,
    Attribute,
    Comparison,
    Exists,
    Filter,
    Intrinsic,
    Not,
    Or,
)
from receiver.console.queries.filters.filter_forms import parse_span_filter
from receiver.console.queries.group_key import FIELDS
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.question import Asked
from receiver.console.queries.selection import selection
from receiver.engine.promoted import promoted_columns
from receiver.engine.sql_text import Sql, compose, identifier, joined
from receiver.engine.store import Store
from receiver.errors import InvalidFilter, MalformedBody
from receiver.time_range import TimeRange

SHIFTS_DEFAULT = 20
SHIFTS_MAX = 1_000
"""Maximum number of values in an answer."""
SAMPLE_SPANS = 10_000
"""Approximate number of spans that are sampled on each side: bounds time and memory."""
COUNT_MIN = 5
"""A value in fewer spans of the sample is left out: such a small count is no evidence."""

Z_MIN = 4.0
"""Minimum evidence, in standard errors: about one false alarm in 16,000 values."""

_MAPS: Final = {"span": "SpanAttributes", "resource": "ResourceAttributes"}

_COUNTS = """
SELECT countIf({selection}), countIf(NOT ({selection}) AND ({rest}))
FROM {table}
WHERE {in_range}
{settings}
"""
_ITEMS = """arrayMap(
    (key, value) -> ('{scope}', toString(key), value),
    arrayFilter(key -> NOT has({{scope}_spellings:Array(String)}, key), mapKeys({map})),
    arrayFilter(
        (value, key) -> NOT has({{scope}_spellings:Array(String)}, key), mapValues({map}), mapKeys({map}))
)"""
# The column has the value of the first spelling that the span has, as in filters.
_SPELLED = "if({column} IS NULL, [], [('{scope}', '{key}', toString(assumeNotNull({column})))])"
# `name` is another word for `operation`.
_FIELDS = joined(
    ", ",
    (
        compose(
            "('intrinsic', '{name}', toString({column}))", name=identifier(name), column=identifier(column)
        )
        for name, column in FIELDS.items()
        if name != "name"
    ),
)
_SHIFTS = """
SELECT
    scope, key, value, selection, selection_spans, rest, rest_spans,
    selection / selection_spans AS selection_share,
    rest / rest_spans AS rest_share,
    selection_share - rest_share AS difference,
    {selection_every:UInt64} AS selection_every,
    {rest_every:UInt64} AS rest_every,
    (selection + rest) / (selection_spans + rest_spans) AS pooled,
    if(pooled < 1, difference / sqrt(pooled * (1 - pooled) * (1 / selection_spans + 1 / rest_spans)), 0) AS z
FROM
(
    SELECT
        item.1 AS scope, item.2 AS key, item.3 AS value,
        countIf(is_selected) AS selection,
        countIf(NOT is_selected) AS rest,
        -- the item without a scope is in every span
        max(selection) OVER () AS selection_spans,
        max(rest) OVER () AS rest_spans
    FROM
    (
        SELECT
            ({selection}) AS is_selected,
            arrayJoin(arrayConcat([('', '', '')], [{fields}], {items})) AS item
        FROM {table}
        WHERE {in_range}
          AND ({common})
          AND (({selection}) OR ({rest}))
          AND cityHash64(SpanId) % if({selection}, {selection_every:UInt64}, {rest_every:UInt64}) = 0
    )
    WHERE item.1 = ''
      OR (item.2 NOT IN {excluded_keys:Array(String)} AND item.3 NOT IN {excluded_values:Array(String)})
    GROUP BY scope, key, value
    HAVING selection + rest >= {count_min:UInt64} OR scope = ''
)
WHERE scope != '' AND abs(z) >= {z_min:Float64}
ORDER BY round(abs(z), 6) DESC, difference < 0, scope, key, value
LIMIT {limit:UInt64}
{settings}
"""


class ShiftRow(TypedDict):
    """A value of an attribute, with its share in the selected spans and in the others."""

    scope: str
    """`span`, `resource`, or `intrinsic` for a field of every span."""
    key: str
    value: str
    selection: int
    selection_spans: int
    """Spans of the sample, of which `selection` have this value."""
    selection_share: float
    rest: int
    rest_spans: int
    rest_share: float
    difference: float
    selection_every: int
    """Sampling interval of the selection: one of this many spans is in the sample; 1 means every span."""
    rest_every: int
    z: float
    """Evidence: how many standard errors the difference is from 0."""


class Sides(NamedTuple):
    """The compared spans: the selection, and the spans of the rest that are not selected."""

    selection: Sql
    rest: Sql
    parameters: dict[str, str | int]
    """Parameters of both conditions, and the time range."""
    selection_count: int
    rest_count: int
    common: Sql = Sql("1")
    """Condition that both sides imply. The engine tests it first, which is faster."""
    excluded_keys: frozenset[str] = frozenset()
    excluded_values: Collection[str] = ()


def shifts(store: Store, asked: Asked[Filter], now_s: float) -> LimitedLines:
    """Return the values whose shares differ, strongest evidence first, one JSON object a line.

    The own parameter is the filter for the spans to compare with.
    """
    selected = selection(store, asked, now_s, "selection")
    with _errors_of_against():
        rest = selection(store, asked._replace(filter=asked.own), now_s, "rest")
    parameters = {**selected.parameters, **rest.parameters}
    statement = compose(_COUNTS, selection=selected.condition, rest=rest.condition)
    # Counted first: the rates of the samples depend on both counts.
    selection_count, rest_count = store.rows(statement, parameters)[0]
    if not selection_count:
        raise MalformedBody(
            "no span in the time range matches the filter; an earlier since reads further back",
            field="filter",
        )
    if not rest_count:
        raise MalformedBody(
            "no other span in the time range to compare with; an earlier since reads further back",
            field="against",
        )
    sides = Sides(
        selected.condition,
        rest.condition,
        parameters,
        selection_count,
        rest_count,
        excluded_keys=frozenset({*_keys_of(asked.filter), *_keys_of(asked.own)}),
    )
    rows = shift_rows(store, sides, asked.limit + 1)
    return LimitedLines(within_time(msgspec.json.encode(row) + b"\n" for row in rows), asked.limit)


def shift_rows(
    store: Store, sides: Sides, limit: int, *, sample_spans: int = SAMPLE_SPANS
) -> Iterator[ShiftRow]:
    """Yield the values whose shares differ, strongest evidence first."""
    spelled = [
        attribute
        for attribute in promoted_columns(store).attributes
        if attribute.scope in _MAPS and len(attribute.keys) > 1
    ]
    items = [compose(_ITEMS, scope=identifier(scope), map=identifier(name)) for scope, name in _MAPS.items()]
    items += [
        compose(
            _SPELLED, scope=identifier(each.scope), key=identifier(each.key), column=identifier(each.column)
        )
        for each in spelled
    ]
    statement = compose(
        _SHIFTS,
        selection=sides.selection,
        rest=sides.rest,
        common=sides.common,
        fields=_FIELDS,
        items=joined(", ", items),
    )
    lines = store.lines(
        statement,
        {
            **sides.parameters,
            **{
                f"{scope}_spellings": [key for each in spelled if each.scope == scope for key in each.keys]
                for scope in _MAPS
            },
            # Rounded up, so that the sample is not larger than intended. By a hash of the id, so that the
            # same question samples the same spans.
            "selection_every": -(-sides.selection_count // sample_spans),
            "rest_every": -(-sides.rest_count // sample_spans),
            "excluded_keys": [
                *sides.excluded_keys,
                *(each.key for each in spelled if not sides.excluded_keys.isdisjoint(each.keys)),
            ],
            "excluded_values": [*sides.excluded_values],
            "count_min": COUNT_MIN,
            # Parameters are whole numbers or texts; the engine parses the text.
            "z_min": repr(Z_MIN),
            "limit": limit,
        },
    )
    for line in b"".join(lines).splitlines():
        row: dict[str, Any] = msgspec.json.decode(line)
        del row["pooled"]
        yield msgspec.convert(row, ShiftRow)


def sample_text(row: Mapping[str, Any], selection: str, rest: str) -> str:
    """Return how many spans of each side were sampled; empty if all were read. Both sides have names."""
    sides = (("selection", selection), ("rest", rest))
    sampled = [f"{row[f'{side}_spans']:,} of the {name}" for side, name in sides if row[f"{side}_every"] > 1]
    return f"Compared by a random sample of {' and '.join(sampled)}." if sampled else ""


def parse_against(query: Mapping[str, str], _: TimeRange) -> Filter:
    """Parse the filter for the spans to compare with; all other spans if it is omitted."""
    with _errors_of_against():
        return parse_span_filter(query.get("against", ""))


@contextmanager
def _errors_of_against() -> Iterator[None]:
    try:
        yield
    except InvalidFilter as error:
        # Not as an error of the filter: a client would mark the column in the wrong text.
        raise MalformedBody(f"against, {error.place}: {error.problem}", field="against") from error


def _keys_of(tree: Filter) -> Iterator[str]:
    """Yield the keys that a filter compares: their shares differ by definition."""
    match tree:
        case Comparison(Intrinsic(name)):
            yield name
        case Comparison(Attribute(_, key)) | Exists(Attribute(_, key)):
            yield key
        case Not(part):
            yield from _keys_of(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _keys_of(part)
