"""Limit of disk space: the oldest day is deleted while the table of spans is larger.

Other tables do not count, because they keep their rows: no deletion of a day would make them smaller.

Invariant: neither the newest day nor a day that is not over is deleted, however large it is.
Never: checks whether the wall clock is right. The caller asks only while it is trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from receiver.deletion.deletions import Deletions
from receiver.deletion.rows import Chosen
from receiver.engine.sql_text import compose
from receiver.engine.store import Store
from receiver.errors import StoreTrouble, Unavailable
from receiver.logs import limited
from receiver.sizes import size_text

CHECK_S: Final = 60.0
"""Interval of the checks. Each deletes one day at most."""

_BYTES: Final = compose("""
SELECT sum(bytes_on_disk), groupUniqArray(partition_id)
FROM system.parts
WHERE database = currentDatabase() AND table = '{table}' AND active
{settings}
""")


class DiskBudget:
    def __init__(
        self,
        store: Store,
        deletions: Deletions,
        bytes_max: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`bytes_max`: 0 without a limit."""
        self._store, self._deletions, self._bytes_max = store, deletions, bytes_max
        self._monotonic, self._now_s = monotonic, now_s
        self._due_s = 0.0

    def check(self) -> None:
        """Delete the oldest day if the store is larger than the limit. Most calls return at once."""
        if not self._bytes_max or self._deletions.day or self._monotonic() < self._due_s:
            return
        self._due_s = self._monotonic() + CHECK_S
        try:
            self._delete_oldest_day()
        except StoreTrouble as trouble:
            limited.warning("disk budget", "no day can be deleted", error=trouble.label)
        except Unavailable as error:
            limited.warning("disk budget", "no day can be deleted", error=str(error))

    def _delete_oldest_day(self) -> None:
        [(size_bytes, days)] = self._store.rows(_BYTES)
        if size_bytes <= self._bytes_max:
            return
        sizes = {"size": size_text(size_bytes), "disk_bytes_max": size_text(self._bytes_max)}
        today = f"{datetime.fromtimestamp(self._now_s(), UTC):%Y%m%d}"
        # A day may have rows only that stay.
        for day in (day for day in sorted(days)[:-1] if day < today):
            if spans := self._deletions.begin(day, Chosen()):
                event = f"the oldest day {day} is deleted: the store exceeds store.disk_bytes_max"
                structlog.get_logger().warning(event, spans=spans, **sizes)
                return
        limited.warning("disk budget", "store.disk_bytes_max is exceeded, and no older day is left", **sizes)
