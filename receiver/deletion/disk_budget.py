"""Limit of disk space: the oldest day is deleted while the table of spans is larger.

Other tables do not count, because they keep their rows: no deletion of a day would make them smaller.

Invariant: neither the newest day nor a day that is not over is deleted, however large it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import structlog

from receiver.deletion.automatic import AutomaticDeletion
from receiver.deletion.rows import Chosen
from receiver.engine.sql_text import compose
from receiver.logs import limited
from receiver.sizes import size_text

_BYTES: Final = compose("""
SELECT sum(bytes_on_disk), groupUniqArray(partition_id)
FROM system.parts
WHERE database = currentDatabase() AND table = '{table}' AND active
{settings}
""")


@dataclass
class DiskBudget(AutomaticDeletion):
    setting: ClassVar = "store.disk_bytes_max"

    bytes_max: int
    """0 without a limit."""

    def delete_next(self) -> None:
        """Delete the oldest day if the store is larger than the limit."""
        if not self.bytes_max:
            return
        [(size_bytes, days)] = self.store.rows(_BYTES)
        if size_bytes <= self.bytes_max:
            return
        sizes = {"size": size_text(size_bytes), "disk_bytes_max": size_text(self.bytes_max)}
        today = self.day_before(0)
        # A day may have rows only that stay.
        for day in (day for day in sorted(days)[:-1] if day < today):
            if spans := self.deletions.begin(day, Chosen()):
                event = f"the oldest day {day} is deleted: the store exceeds {self.setting}"
                structlog.get_logger().warning(event, spans=spans, **sizes)
                return
        limited.warning("disk budget", f"{self.setting} is exceeded, and no older day is left", **sizes)
