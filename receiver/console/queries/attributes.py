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
from receiver.console.queries.filters.filter_sql import Condition, check_regexes, compiled
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.attributes import RESOURCE_MAP, SPAN_MAP
from receiver.console.queries.rollup.proof import Checked
from receiver.console.queries.rollup.ranges import Values, condition
from receiver.console.queries.rollup.tables import ATTRIBUTE_KEYS, ATTRIBUTE_VALUES, HOUR_S
from receiver.engine.limits import SETTINGS
from receiver.engine.promoted import PromotedColumns, promoted_columns
from receiver.engine.store import TABLE, Store

_MAP_OF: Final[Mapping[Scope, str]] = {"span": SPAN_MAP, "resource": RESOURCE_MAP}
_ATTRIBUTES = f"""
SELECT {{columns}}, sum(counted) AS spans
FROM ({{sources}})
GROUP BY {{columns}}
ORDER BY spans DESC, {{columns}}
LIMIT {{{{limit:UInt64}}}}
{SETTINGS}
"""  # noqa: S608 - constants of this module
# The subcolumn, because the engine reads the values, too, for arrayJoin(mapKeys(…)).
_KEYS = f"""
SELECT '{{scope}}' AS scope, arrayJoin({{attributes}}.keys) AS key, count() AS counted
FROM {TABLE}
WHERE {{rows}}
GROUP BY key
"""  # noqa: S608 - as above
_LISTED_KEYS = f"""
SELECT if(Source = '{SPAN_MAP}', 'span', 'resource') AS scope, Key AS key, sum(Spans) AS counted
FROM {ATTRIBUTE_KEYS}
WHERE {{rows}} AND Source != ''
GROUP BY Source, Key
"""  # noqa: S608 - as above
_VALUES = f"""
SELECT '{{scope}}' AS scope, {{{{key:String}}}} AS key, {{value}} AS value, count() AS counted
FROM {TABLE}
WHERE {{rows}} AND {{is_present}}
GROUP BY value
"""  # noqa: S608 - as above
_LISTED_VALUES = f"""
SELECT '{{scope}}' AS scope, {{{{key:String}}}} AS key, Value AS value, sum(Spans) AS counted
FROM {ATTRIBUTE_VALUES}
WHERE {{rows}} AND {{is_listed}}
GROUP BY value
"""  # noqa: S608 - as above
_HOURS = f"""
SELECT DISTINCT toInt64(intDiv(toUnixTimestamp(Hour), {HOUR_S})) FROM {{table}} WHERE {{rows}}
"""  # noqa: S608 - as above


class AttributeRow(TypedDict):
    """The key of an attribute, or a value of it."""

    scope: str
    key: str
    value: NotRequired[str]
    spans: int


class _Statement(NamedTuple):
    sql: str
    parameters: Values


class _Question(NamedTuple):
    """A question, its filter as SQL, and the promoted attributes of the table."""

    asked: Asked
    filtered: Condition
    promoted: PromotedColumns


class _Listed(NamedTuple):
    """Conditions by which a rollup answers for an attribute."""

    values: str
    """Condition of the rows that list the values."""
    table: str
    excluded: str
    """Condition of a row whose hour the rollup does not answer."""


def attributes(store: Store, asked: Asked, now_s: float) -> LimitedLines:
    """Return the attributes of spans and resources, or the values of one, the most frequent first."""
    check_regexes(store, asked.filter)
    return LimitedLines(within_time(_lines(store, asked, now_s)), asked.limit)


def _lines(store: Store, asked: Asked, now_s: float) -> Iterator[bytes]:
    """Ask the rollups, and the spans that they do not provably cover."""
    question = _Question(asked, compiled(store, asked.filter), promoted_columns(store))
    range_ = ProvenHours(*asked.range.bounds_ns(now_s), Checked(promoted=question.promoted.entries))

    def reading() -> Reading | None:
        if is_short(asked.range, now_s) or not _filters_projects_only(asked):
            return None
        hours = proven_hours(store, range_.checked, range_.from_ns, range_.to_ns)
        return Reading(*_statement(store, question, hours), hours.are_unchanged) if hours.slots else None

    return lines_of_reading(store, reading, lambda: _statement(store, question, range_))


def _filters_projects_only(asked: Asked) -> bool:
    """Return whether the filter compares projects only, which the rollups have."""
    return all(term.field == Intrinsic("project") for term in terms(asked.filter))


def _statement(store: Store, question: _Question, hours: ProvenHours) -> _Statement:
    values: Values = {**question.filtered.parameters, "limit": question.asked.limit + 1}
    if "key" in question.asked.texts:
        values["key"] = question.asked.texts["key"]
        columns, sources = "scope, key, value", [*_values(store, question, hours, values)]
    else:
        columns, sources = "scope, key", [*_keys(question, hours, values)]
    return _Statement(_ATTRIBUTES.format(columns=columns, sources=" UNION ALL ".join(sources)), values)


def _keys(question: _Question, hours: ProvenHours, values: Values) -> Iterator[str]:
    """Yield the sources of the keys, and add their parameters."""
    filtered = question.filtered.sql
    covered = hours.complete(ATTRIBUTE_KEYS)
    if covered.slots:
        yield _LISTED_KEYS.format(rows=f"{covered.of_rollup('rows', values)} AND ({filtered})")
    if not covered.slots or covered.of_spans():
        rows = f"{condition(covered.of_spans(), values)} AND ({filtered})"
        for scope, column in _MAP_OF.items():
            yield _KEYS.format(scope=scope, attributes=column, rows=rows)


def _values(store: Store, question: _Question, hours: ProvenHours, values: Values) -> Iterator[str]:
    """Yield the sources of the values of an attribute, and add their parameters."""
    filtered, key = question.filtered.sql, question.asked.texts["key"]
    for scope in _MAP_OF:
        listed = _listed(question.promoted, scope, key)
        covered = hours.complete(listed.table)
        if covered.slots:
            # Only rows that the filter selects: another project may have too many values.
            rows = f"{covered.of_rollup(f'{scope}_rows', values)} AND {listed.excluded} AND ({filtered})"
            found = store.rows(_HOURS.format(table=listed.table, rows=rows), values)
            covered = covered.only(covered.slots.keys() - {hour for (hour,) in found})
        if covered.slots:
            rows = f"{covered.of_rollup(f'{scope}_rows', values)} AND ({filtered})"
            yield _LISTED_VALUES.format(scope=scope, rows=rows, is_listed=listed.values)
        if not covered.slots or covered.of_spans():
            attribute = lookup(question.promoted, scope, key, "{key:String}")
            rows = f"{condition(covered.of_spans(), values, scope)} AND ({filtered})"
            yield _VALUES.format(
                scope=scope,
                value=f"assumeNotNull({attribute.value})" if attribute.is_nullable else attribute.value,
                rows=rows,
                is_present=attribute.is_present,
            )


def _listed(promoted: PromotedColumns, scope: Scope, key: str) -> _Listed:
    if column := promoted.column_of.get((scope, key)):
        of_attribute = f"Source = '{column}'"
    elif scope == "resource":
        of_attribute = f"Source = '{RESOURCE_MAP}' AND Key = {{key:String}}"
    else:
        # The rollup lists no values of this attribute, so it answers only hours in which no span has it.
        return _Listed("0", ATTRIBUTE_KEYS, f"Source = '{SPAN_MAP}' AND Key = {{key:String}}")
    return _Listed(of_attribute, ATTRIBUTE_VALUES, f"IsOmitted AND {of_attribute}")
