"""Proofs that were made before, and are valid while the tables have the same parts.

An INSERT, a merge, a mutation and a dropped partition each change the names of parts, and a part is never
changed. Names repeat only in a new table, or if a server restarts after it dropped the newest parts; the
parts then differ in size or time.

Invariant: parts are listed before the proof is made. If they change in between, the next list differs from
the list that the proof is kept with, and the proof is made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from receiver.engine.store import TABLE, Parameters, Store
from receiver.errors import StoreTrouble
from receiver.rollup.proof import Day, day_name, day_number, observe, table_id
from receiver.rollup.slots import read_slots
from receiver.rollup.tables import HOURS_OF_DAY, SLOTS, Rollup

Part = tuple[Any, ...]
"""Table, name, number of rows, size and time."""
Parts = frozenset[Part]
NO_LIST: Parts = frozenset()
"""In place of the parts if the receiver may not list them."""
ACCESS_DENIED = 497
"""ClickHouse's error code."""

_PARTS = f"""
SELECT table, name, rows, bytes_on_disk, toUnixTimestamp(modification_time) FROM system.parts
WHERE active AND database = currentDatabase() AND table IN {{tables:Array(String)}}
  AND (table != '{TABLE}' OR partition_id BETWEEN {{first_day:String}} AND {{last_day:String}})
"""  # noqa: S608 - the table's name is a constant


class Proof(NamedTuple):
    """Days of a rollup whose slots provably equal the spans."""

    parts: Parts = frozenset()
    """Parts of the rollup and of the slots."""
    days: Mapping[int, tuple[Parts, Day | None]] = {}
    """Days since 1970 → the day's parts, and the day if its slots are proven."""


_proofs: WeakKeyDictionary[Store, dict[str, Proof]] = WeakKeyDictionary()
"""Store → table of a rollup → its proof. Replaced as a whole, because several threads ask at once."""


def proven(store: Store, rollup: Rollup, first_day: int, last_day: int) -> tuple[list[Day], Parts]:
    """Return the days whose slots provably equal the spans, and the parts of the rollup."""
    try:
        parts, parts_of_day = _parts(store, rollup, first_day, last_day)
    except StoreTrouble as trouble:
        if trouble.code != ACCESS_DENIED:
            raise
        every_day = _prove(store, rollup, range(first_day, last_day + 1))
        return [day for _, day in every_day if day is not None], NO_LIST
    kept = _proofs.get(store, {}).get(rollup.table, Proof())
    days = dict(kept.days) if kept.parts == parts else {}
    unknown = [number for number, found in parts_of_day.items() if days.get(number, (None,))[0] != found]
    if unknown:
        days |= {number: (parts_of_day[number], day) for number, day in _prove(store, rollup, unknown)}
        _proofs[store] = {**_proofs.get(store, {}), rollup.table: Proof(parts, days)}
    used = (days[number][1] for number in sorted(parts_of_day) if number in days)
    return [day for day in used if day is not None], parts


def is_unchanged(store: Store, rollup: Rollup, parts: Parts) -> bool:
    """Return whether a rollup still has these parts, and so the same rows."""
    return parts != NO_LIST and parts == _parts(store, rollup, 0, 0)[0]


def _parts(store: Store, rollup: Rollup, first_day: int, last_day: int) -> tuple[Parts, dict[int, Parts]]:
    """Return the parts of the rollup and of the slots, and the parts of each day that has spans."""
    parameters: Parameters = {
        "tables": [TABLE, SLOTS, rollup.table, rollup.day_table],
        "first_day": day_name(first_day),
        "last_day": day_name(last_day),
    }
    parts = set[Part]()
    parts_of_day = defaultdict[str, set[Part]](set)
    for part in store.rows(_PARTS, parameters):
        # A part is named PARTITION_MIN_MAX_LEVEL, and a partition is a day.
        (parts_of_day[part[1].partition("_")[0]] if part[0] == TABLE else parts).add(part)
    return frozenset(parts), {day_number(name): frozenset(found) for name, found in parts_of_day.items()}


def _prove(store: Store, rollup: Rollup, numbers: Sequence[int]) -> Iterator[tuple[int, Day | None]]:
    """Yield each day with what was found, except for days that do not fit into one statement."""
    slots = read_slots(store, min(numbers) * HOURS_OF_DAY, (max(numbers) + 1) * HOURS_OF_DAY)
    with_slots = {hour // HOURS_OF_DAY for hour in slots}.intersection(numbers)
    yield from ((number, None) for number in numbers if number not in with_slots)
    if with_slots and (table := table_id(store)):
        for day in observe(store, table, slots, with_slots, (rollup,)):
            yield day.number, day if day.is_balanced and not day.differing((rollup,)) else None
