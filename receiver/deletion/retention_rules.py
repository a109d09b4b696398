"""Retention rules: spans of some projects and drains are deleted before the others.

Once a day and at the start, because each deletion rewrites a day, and its rollups are derived again.

Invariant: spans are deleted by whole days, and only if the whole day is older than the days of a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from receiver.deletion.automatic import AutomaticDeletion
from receiver.deletion.rows import Chosen, any_of, by_day
from receiver.engine.sql_text import compose, identifier, joined
from receiver.logs import limited
from receiver.settings import RetentionRule
from receiver.sizes import size_text

_ROOM: Final = compose("""
SELECT
    (
        SELECT sum(bytes_on_disk) FROM system.parts
        WHERE database = currentDatabase() AND table = '{table}' AND active AND partition_id = {day:String}
    ),
    (SELECT min(unreserved_space) FROM system.disks)
{settings}
""")


@dataclass
class RetentionRules(AutomaticDeletion):
    setting: ClassVar = "store.retention_rule"

    rules: Sequence[RetentionRule]
    _done_on: str = field(default="", init=False)
    """Day on which the last deletion was done."""

    def __post_init__(self) -> None:
        # The check of the settings refuses this, too; but a deletion cannot be undone.
        if any(rule.project is None and rule.drain is None for rule in self.rules):
            raise ValueError("a retention rule without project and drain chooses all spans")

    def delete_next(self) -> None:
        """Delete the expired spans of the oldest day that has any, unless it was done today."""
        today = self.day_before(0)
        if not self.rules or self._done_on == today:
            return
        # The first day that is kept: some of its spans may be younger.
        kept_from = [
            (self.day_before(rule.days), Chosen(project=rule.project, drain=rule.drain))
            for rule in self.rules
        ]
        expired = [
            compose("({chosen} AND _partition_id < '{day}')", chosen=any_of([chosen]), day=identifier(day))
            for day, chosen in kept_from
        ]
        for day in by_day(self.store, compose("({any})", any=joined(" OR ", expired))):
            if not self._has_room(day):
                return
            # A day may have rows only that stay.
            if self.deletions.begin(day, *(chosen for first, chosen in kept_from if day < first)):
                return
        self._done_on = today

    def _has_room(self, day: str) -> bool:
        """Return whether the disk has room for a copy of the day. Without it, the deletion would not end."""
        [(size_bytes, free_bytes)] = self.store.rows(_ROOM, {"day": day})
        if size_bytes < free_bytes:
            return True
        sizes = {"size": size_text(size_bytes), "free": size_text(free_bytes)}
        limited.warning(
            self.setting, f"no spans can be deleted for {self.setting}: too little free disk space", **sizes
        )
        return False
