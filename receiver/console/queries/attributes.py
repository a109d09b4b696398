"""Attributes of spans and resources, and the values of an attribute, with counts of spans.

The rollups of attributes answer for the hours that they provably cover. The spans are read for the rest:
hours that are not closed, late spans, hours with too many values of the attribute, and, for attributes of
spans that are not promoted, hours that have the attribute. Filters by other fields than the project read the
spans, because the rollups have no other field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, NotRequired, TypedDict

from receiver.console.queries.aggregates.proven_hours import ProvenHours, proven_hours
from receiver.console.queries.aggregates.rollup_lines import Reading, is_short, lines_of_reading
from receiver.console.queries.filters.attribute_sql import lookup
from receiver.console.queries.filters.filter import Intrinsic, Scope, terms
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.attributes import RESOURCE_MAP, SPAN_MAP
from receiver.console.queries.rollup.proof import Checked
from receiver.console.queries.rollup.ranges import Values, condition
from receiver.console.queries.rollup.tables import ATTRIBUTE_KEYS, ATTRIBUTE_TABLES, ATTRIBUTE_VALUES, HOUR_S
from receiver.console.queries.selection import Selection, selection
from receiver.engine.promoted import PromotedColumns, promoted_columns
from receiver.engine.sql_text import Sql, compose, identifier, joined
from receiver.engine.store import Store

_MAP_OF: Final[Mapping[Scope, Sql]] = {"span": SPAN_MAP, "resource": RESOURCE_MAP}
_ATTRIBUTES = """
SELECT {columns}, sum(counted) AS spans
FROM ({sources})
GROUP BY {columns}
ORDER BY spans DESC, {columns}
LIMIT {limit:UInt64}
{settings}
"""
# The subcolumn, because the engine reads the values, too, for arrayJoin(mapKeys(…)).
_KEYS = """
SELECT '{scope}' AS scope, arrayJoin({attributes}.keys) AS key, count() AS counted
FROM {table}
WHERE {rows}
GROUP BY key
"""
_LISTED_KEYS = """
SELECT if(Source = '{span_map}', 'span', 'resource') AS scope, Key AS key, sum(Spans) AS counted
FROM {keys}
WHERE {rows} AND Source != ''
GROUP BY Source, Key
"""
_VALUES = """
SELECT '{scope}' AS scope, {key:String} AS key, {value} AS value, count() AS counted
FROM {table}
WHERE {rows} AND {is_present}
GROUP BY value
"""
_LISTED_VALUES = """
SELECT '{scope}' AS scope, {key:String} AS key, Value AS value, sum(Spans) AS counted
FROM {values}
WHERE {rows} AND {is_listed}
GROUP BY value
"""
_HOURS = """
SELECT DISTINCT toInt64(intDiv(toUnixTimestamp(Hour), {hour_s})) FROM {listed} WHERE {rows}
"""
_OF_KEY = "Source = '{source}' AND Key = {key:String}"


class AttributeRow(TypedDict):
    """The key of an attribute, or a value of it."""

    scope: str
    key: str
    value: NotRequired[str]
    spans: int


class _Statement(NamedTuple):
    sql: Sql
    parameters: Values


class _Question(NamedTuple):
    """A question, its filter as SQL, and the promoted attributes of the table."""

    asked: Asked[str | None]
    filtered: Selection
    promoted: PromotedColumns


class _Listed(NamedTuple):
    """Conditions by which a rollup answers for an attribute."""

    values: Sql
    """Condition of the rows that list the values."""
    table: Sql
    excluded: Sql
    """Condition of a row whose hour the rollup does not answer."""


def attributes(store: Store, asked: Asked[str | None], now_s: float) -> LimitedLines:
    """Return the attributes of spans and resources, or the values of one, the most frequent first.

    The own parameter is the key of the attribute; `None`: all attributes.
    """
    selected = selection(store, asked, now_s)
    return LimitedLines(within_time(_lines(store, asked, selected, now_s)), asked.limit)


def _lines(store: Store, asked: Asked[str | None], selected: Selection, now_s: float) -> Iterator[bytes]:
    """Ask the rollups, and the spans that they do not provably cover."""
    question = _Question(asked, selected, promoted_columns(store))
    totals = dict.fromkeys(ATTRIBUTE_TABLES, question.promoted.entries)
    range_ = ProvenHours(*asked.range.bounds_ns(now_s), Checked(totals=totals))

    def reading() -> Reading | None:
        if is_short(asked.range, now_s) or not _filters_projects_only(asked):
            return None
        hours = proven_hours(store, range_.checked, range_.from_ns, range_.to_ns)
        return Reading(*_statement(store, question, hours), hours.are_unchanged) if hours.slots else None

    return lines_of_reading(store, reading, lambda: _statement(store, question, range_))


def _filters_projects_only(asked: Asked[str | None]) -> bool:
    """Return whether the filter compares projects only, which the rollups have."""
    return all(term.field == Intrinsic("project") for term in terms(asked.filter))


def _statement(store: Store, question: _Question, hours: ProvenHours) -> _Statement:
    values: Values = {**question.filtered.parameters, "limit": question.asked.limit + 1}
    if question.asked.own is not None:
        values["key"] = question.asked.own
        columns, sources = Sql("scope, key, value"), [*_values(store, question, hours, values)]
    else:
        columns, sources = Sql("scope, key"), [*_keys(question, hours, values)]
    return _Statement(compose(_ATTRIBUTES, columns=columns, sources=joined(" UNION ALL ", sources)), values)


def _keys(question: _Question, hours: ProvenHours, values: Values) -> Iterator[Sql]:
    """Yield the sources of the keys, and add their parameters."""
    filtered = compose("({filter})", filter=question.filtered.condition)
    covered = hours.complete(ATTRIBUTE_KEYS)
    if covered.slots:
        rows = joined(" AND ", (covered.of_rollup("rows", values), filtered))
        yield compose(_LISTED_KEYS, span_map=SPAN_MAP, keys=ATTRIBUTE_KEYS, rows=rows)
    if not covered.slots or covered.of_spans():
        rows = joined(" AND ", (condition(covered.of_spans(), values), filtered))
        for scope, column in _MAP_OF.items():
            yield compose(_KEYS, scope=identifier(scope), attributes=column, rows=rows)


def _values(store: Store, question: _Question, hours: ProvenHours, values: Values) -> Iterator[Sql]:
    """Yield the sources of the values of an attribute, and add their parameters."""
    filtered, key = compose("({filter})", filter=question.filtered.condition), str(question.asked.own)
    for scope in _MAP_OF:
        listed = _listed(question.promoted, scope, key)
        covered = hours.complete(listed.table)
        if covered.slots:
            # Only rows that the filter selects: another project may have too many values.
            covered_rows = covered.of_rollup(f"{scope}_rows", values)
            rows = joined(" AND ", (covered_rows, listed.excluded, filtered))
            found = store.rows(compose(_HOURS, hour_s=HOUR_S, listed=listed.table, rows=rows), values)
            covered = covered.only(covered.slots.keys() - {hour for (hour,) in found})
        if covered.slots:
            covered_rows = covered.of_rollup(f"{scope}_rows", values)
            rows = joined(" AND ", (covered_rows, filtered))
            yield compose(
                _LISTED_VALUES,
                scope=identifier(scope),
                values=ATTRIBUTE_VALUES,
                rows=rows,
                is_listed=listed.values,
            )
        if not covered.slots or covered.of_spans():
            attribute = lookup(question.promoted, scope, key, "{key:String}")
            value = attribute.value_sql
            yield compose(
                _VALUES,
                scope=identifier(scope),
                value=compose("assumeNotNull({value})", value=value) if attribute.is_nullable else value,
                rows=joined(" AND ", (condition(covered.of_spans(), values, scope), filtered)),
                is_present=attribute.is_present_sql,
            )


def _listed(promoted: PromotedColumns, scope: Scope, key: str) -> _Listed:
    if column := promoted.column_of.get((scope, key)):
        of_attribute = compose("Source = '{column}'", column=identifier(column))
    elif scope == "resource":
        of_attribute = compose(_OF_KEY, source=RESOURCE_MAP)
    else:
        # The rollup lists no values of this attribute, so it answers only hours in which no span has it.
        return _Listed(Sql("0"), ATTRIBUTE_KEYS, compose(_OF_KEY, source=SPAN_MAP))
    return _Listed(of_attribute, ATTRIBUTE_VALUES, joined(" AND ", (Sql("IsOmitted"), of_attribute)))
