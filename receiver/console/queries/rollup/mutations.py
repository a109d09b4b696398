"""Mutations of the table of spans, and the days whose rows they may have changed.

A mutation renames the parts of all days, also one that only deletes rows of one day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from receiver.engine.store import TABLE, Store

MUTATIONS_KEPT = 100
"""Number of finished mutations that the engine lists (`finished_mutations_to_keep`)."""
_MUTATIONS = """
SELECT block_numbers.number[1], extract(command, '^\\\\(?DELETE IN PARTITION ID \\'([0-9]{8})\\' WHERE ')
FROM system.mutations WHERE database = currentDatabase() AND table = {table:String}
"""


def read_mutations(store: Store) -> list[tuple[Any, ...]]:
    """Return the number of each mutation, and the day if it only deletes rows of that day."""
    # The receiver deletes spans of the embedded store only, and may not be allowed to list those of a server.
    return store.rows(_MUTATIONS, {"table": TABLE}) if store.embedded else []


def last_change(mutations: Iterable[Sequence[Any]], day: str, last: int) -> int:
    """Return the number of the last mutation that may have changed a row of a day. `last`: of its parts.

    `mutations`: see `read_mutations`. If it has as many as the engine keeps, it may lack earlier ones, which
    may have changed any day.
    """
    numbers = {number for number, _ in mutations}
    if last not in numbers:
        return last
    forgotten = min(numbers) - 1 if len(numbers) >= MUTATIONS_KEPT else 0
    changes = (number for number, of_day in mutations if number <= last and of_day in {"", day})
    return int(max(forgotten, max(changes, default=0)))
