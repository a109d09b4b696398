"""Values of a field or attribute in the spans that match a filter, the most frequent first."""

from __future__ import annotations

from typing import NamedTuple

from receiver.console.queries.filters.filter import And, Comparison, Filter, Intrinsic
from receiver.console.queries.filters.filter_sql import check_regexes, compiled
from receiver.console.queries.filters.trace_sql import IN_RANGE
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.limits import NAMES_DEFAULT, LimitedLines, within_time
from receiver.engine.limits import SETTINGS
from receiver.engine.store import TABLE, Store
from receiver.time_range import TimeRange

_VALUES = """
SELECT {value} AS value, count() AS spans
FROM {table}
WHERE {in_range}
  AND {is_present}
  AND ({condition})
GROUP BY value
ORDER BY spans DESC, value
LIMIT {{limit:UInt64}}
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
    check_regexes(store, wanted.filter)
    condition, found = compiled(store, And((*roots, wanted.filter))), wanted.key.expressions(store)
    statement = _VALUES.format(
        value=found.value,
        table=TABLE,
        in_range=IN_RANGE,
        is_present=found.is_present,
        condition=condition.sql,
        settings=SETTINGS,
    )
    parameters = {
        **condition.parameters,
        **wanted.key.parameters,
        **wanted.range.parameters(now_s),
        "limit": wanted.limit + 1,
    }
    return LimitedLines(within_time(store.lines(statement, parameters)), wanted.limit)
