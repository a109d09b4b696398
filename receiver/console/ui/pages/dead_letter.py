"""Page of a dead letter: why its rows were not stored, their beginning, and possible actions."""

from __future__ import annotations

from receiver.console.ui.page import Context
from receiver.console.ui.view import View
from receiver.reports import CRASHED, Beginning, DeadLetterEntry

CAUSES = {
    "poison": "ClickHouse refused these rows one by one. Repair the table, then replay them.",
    "refused": "ClickHouse refused so many parts of the segment that the receiver stopped dividing it. "
    "Repair the table, then replay the rows.",
    "short": "The rows were inserted and are missing from the table. Replay them unless they were deleted.",
    "odd": "The table has only some of the rows of some days. They cannot be replayed.",
    "unreadable": "The disk returned wrong bytes. The readable rows are stored. Check the disk.",
    "damaged": "The disk returned wrong bytes. The readable rows are stored. Check the disk.",
    CRASHED: "The decoder crashed on this body. Report it; after the upgrade, replay it.",
}
"""Cause → its meaning and the remedy."""


async def build(view: View) -> Context:
    """Return a dead letter with its beginning. Raises `NoSuchDeadLetter`."""
    entry, beginning = await view.facts.in_pool(lambda: _read(view))
    return {
        "letter": entry,
        "beginning": beginning,
        "meaning": CAUSES.get(entry.cause, ""),
        "is_confirming": view.query.get("confirm") == "drop",
    }


def _read(view: View) -> tuple[DeadLetterEntry, Beginning]:
    name, dead_letters = view.parts["id"], view.facts.dead_letters
    return dead_letters.entry(name), dead_letters.beginning(name)
