"""Proofs that were made before, and are valid while the tables have the same parts.

An INSERT, a merge, a mutation and a dropped partition each change the names of parts, and a part is never
changed. Names repeat only in a new table, or if a server restarts after it dropped the newest parts; the
parts then differ in size or time.

Invariant: parts are listed before the proof is made. If they change in between, the next list differs from
the list that the proof is kept with, and the proof is made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from receiver.console.queries.rollup.day import Day
from receiver.console.queries.rollup.proof import Checked, day_name, day_number, nodes_of, observe
from receiver.console.queries.rollup.slots import read_slots
from receiver.console.queries.rollup.tables import HOURS_OF_DAY
from receiver.engine.sql_text import compose
from receiver.engine.store import TABLE, Parameters, Store
from receiver.errors import StoreTrouble

Part = tuple[Any, ...]
"""Node, table, name, number of rows, size and time."""
Parts = frozenset[Part]
NO_LIST: Parts = frozenset()
"""In place of the parts if the receiver may not list them."""
ACCESS_DENIED = 497
"""ClickHouse's error code."""

_PARTS = compose("""
SELECT table, name, rows, bytes_on_disk, toUnixTimestamp(modification_time) AS modified FROM system.parts
WHERE active AND database = currentDatabase() AND table IN {tables:Array(String)}
  AND (table != {spans:String} OR partition_id BETWEEN {first_day:String} AND {last_day:String})
""")
_PARTS_OF_CLUSTER = """
{parts} UNION ALL
SELECT '', toString(nodes), 0, 0, toUnixTimestamp(toDateTime(0, 'UTC')) FROM ({definition})
"""
"""Also what each node knows of the cluster, so that a proof ends when a node is added or does not answer."""


class Proof(NamedTuple):
    """Days of rollups whose slots provably equal the spans."""

    checked: Checked = Checked()
    parts: Parts = frozenset()
    """Parts of the rollups and of the slots."""
    days: Mapping[int, tuple[Parts, Day | None]] = {}
    """Days since 1970 → the day's parts, and the day if its slots are proven."""


_proofs: WeakKeyDictionary[Store, dict[tuple[str, ...], Proof]] = WeakKeyDictionary()
"""Store → tables of rollups → their proof. Replaced as a whole, because several threads ask at once."""


def proven(store: Store, checked: Checked, first_day: int, last_day: int) -> tuple[list[Day], Parts]:
    """Return the days whose slots provably equal the spans, and the parts of the rollups.

    A day with an hour whose rows lack a valid total row is returned, too: see `Day.complete_hours`.
    """
    try:
        parts, parts_of_day = _parts(store, checked, first_day, last_day)
    except StoreTrouble as trouble:
        if trouble.code != ACCESS_DENIED:
            raise
        every_day = _prove(store, checked, range(first_day, last_day + 1))
        return [day for _, day in every_day if day is not None], NO_LIST
    kept = _proofs.get(store, {}).get(checked.tables, Proof())
    # Definitions, such as promoted attributes, change what rows mean, but no parts.
    days = dict(kept.days) if (kept.checked, kept.parts) == (checked, parts) else {}
    unknown = [number for number, found in parts_of_day.items() if days.get(number, (None,))[0] != found]
    if unknown:
        days |= {number: (parts_of_day[number], day) for number, day in _prove(store, checked, unknown)}
        _proofs[store] = {**_proofs.get(store, {}), checked.tables: Proof(checked, parts, days)}
    used = (days[number][1] for number in sorted(parts_of_day) if number in days)
    return [day for day in used if day is not None], parts


def is_unchanged(store: Store, checked: Checked, parts: Parts, is_same: Callable[[], bool]) -> bool:
    """Return whether the rollups had the rows that were proven, from the proof until now.

    They had if they still have these parts. A merge changes parts, but no rows, and versions are never used
    again: rows that are proven again with the same versions (`is_same`) were there all the time. Not so on a
    cluster: a node may have returned, and got its rows only after the query read it.
    """
    if parts != NO_LIST and parts == _parts(store, checked, 0, 0)[0]:
        return True
    return not store.layout.cluster and is_same()


def _parts(store: Store, checked: Checked, first_day: int, last_day: int) -> tuple[Parts, dict[int, Parts]]:
    """Return the parts of the rollups and of the slots, and the parts of each day that has spans."""
    layout = store.layout
    spans = layout.stored(TABLE)
    parameters: Parameters = {
        "tables": [spans, *(layout.stored(table) for table in checked.tables)],
        "spans": spans,
        "first_day": day_name(first_day),
        "last_day": day_name(last_day),
    }
    parts = set[Part]()
    parts_of_day = defaultdict[str, set[Part]](set)
    query = _PARTS
    if layout.cluster:
        query = compose(_PARTS_OF_CLUSTER, parts=_PARTS, definition=layout.definition())
    for part in layout.rows_of_nodes(store, query, parameters):
        # A part is named PARTITION_MIN_MAX_LEVEL, and a partition is a day.
        (parts_of_day[part[2].partition("_")[0]] if part[1] == spans else parts).add(part)
    return frozenset(parts), {day_number(name): frozenset(found) for name, found in parts_of_day.items()}


def _prove(store: Store, checked: Checked, numbers: Sequence[int]) -> Iterator[tuple[int, Day | None]]:
    """Yield the number of each day, and the day if it is proven. Omits days above the limit."""
    slots = read_slots(store, min(numbers) * HOURS_OF_DAY, (max(numbers) + 1) * HOURS_OF_DAY)
    with_slots = {hour // HOURS_OF_DAY for hour in slots}.intersection(numbers)
    yield from ((number, None) for number in numbers if number not in with_slots)
    if with_slots:
        for day in observe(store, nodes_of(store), slots, with_slots, checked):
            yield day.number, day if day.is_balanced and not day.differing(checked.rollups) else None
