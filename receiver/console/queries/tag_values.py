"""Values of a field or attribute in the spans that match a filter, the most frequent first."""

from __future__ import annotations

from typing import NamedTuple

from receiver.console.queries.filters.filter import And, Comparison, Filter, Intrinsic
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.limits import NAMES_DEFAULT, LimitedLines, limited_lines
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import compose
from receiver.engine.store import Store
from receiver.time_range import TimeRange

_VALUES = """
SELECT {value} AS value, count() AS spans
FROM {table}
WHERE {where}
GROUP BY value
ORDER BY spans DESC, value
LIMIT {limit:UInt64}
{settings}
"""


class WantedValues(NamedTuple):
    """Request for the values of a key in the spans that match a filter."""

    key: GroupKey
    filter: Filter = And(())
    range: TimeRange = TimeRange()
    limit: int = NAMES_DEFAULT
    of_roots: bool = False
    """Whether only spans without a parent count."""


def tag_values(store: Store, wanted: WantedValues, *, now_s: float) -> LimitedLines:
    """Return the values, one JSON object a line."""
    roots = (Comparison(Intrinsic("root"), "=", "1"),) if wanted.of_roots else ()
    selected = selection(store, wanted._replace(filter=And((*roots, wanted.filter))), now_s)
    found = wanted.key.expressions(store)
    statement = compose(_VALUES, value=found.value_sql, where=selected.where(found.is_present_sql))
    parameters = {**selected.parameters, **wanted.key.parameters}
    return limited_lines(store, statement, parameters, wanted.limit)
