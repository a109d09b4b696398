"""Rows by day: the rows of all 24 hours of a day, added up, so that queries over many days read less.

Invariant: rows by day are never changed. A derivation of an hour of the day invalidates their version; then
queries read the hours until the rows are added up again. See `Day.version_of_rows`.
"""

from __future__ import annotations

import secrets

from receiver.console.queries.rollup.proof import Day
from receiver.console.queries.rollup.slots import DAY_VERSIONS
from receiver.console.queries.rollup.tables import HOUR_S, MEASURES, ROLLUPS, Rollup, rollup_compose
from receiver.engine.sql_text import Sql, joined, names
from receiver.engine.store import Store

VERSION_STEP_MAX = 16
"""Maximum random step to the next version, so that two receivers on a server use different versions."""


def add_up(store: Store, day: Day) -> None:
    """Write the rows by day that are missing, if all hours of the day have a slot."""
    for rollup in ROLLUPS:
        if day.version and day.version_of_rows(rollup) is None:
            # Rows that are incomplete or repeated stay, so the version is higher than all of them.
            used = max(day.sums_of_day[rollup.day_table], default=0)
            version = max(day.version, used) + 1 + secrets.randbelow(VERSION_STEP_MAX)
            # Out of versions until the next derivation of an hour: queries read the hours.
            if version < day.version + DAY_VERSIONS:
                _write(store, day, rollup, version)


def _write(store: Store, day: Day, rollup: Rollup, version: int) -> None:
    store.rows(
        _statement(rollup),
        {
            "from_s": day.hours.start * HOUR_S,
            "to_s": day.hours.stop * HOUR_S,
            "hours": list(day.slots),
            "versions": [slot.version for slot in day.slots.values()],
            "version": version,
        },
    )


def _statement(rollup: Rollup) -> Sql:
    return rollup_compose(
        "INSERT INTO {day_table} (Hour, {keys}, Version, {columns}) "
        "SELECT toDateTime({from_s:UInt32}, 'UTC'), {keys}, {version:UInt64}, {measures} "
        "FROM {hour_table} "
        "WHERE Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC') "
        "AND Version = transform(toInt64(intDiv(toUnixTimestamp(Hour), {hour_s})), "
        "{hours:Array(Int64)}, {versions:Array(UInt64)}, toUInt64(0)) "
        "GROUP BY {keys} {settings}",
        day_table=rollup.day_table,
        keys=names(rollup.keys),
        columns=names(MEASURES),
        measures=joined(", ", (measure.of_rows for measure in MEASURES.values())),
        hour_table=rollup.table,
    )
