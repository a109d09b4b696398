"""Deletion by age in the embedded store: expired days are dropped, unless the wall clock is not trusted.

The TTL of the table alone deletes a day at any time within hours after it expired, and after a change of
the setting not before its parts are merged. A ClickHouse server is not affected: it has its own clock.

Invariant: while the clock is not trusted, the engine is not opened, and an open engine deletes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from receiver.engine.clock_check import Clock
from receiver.engine.store import COMPANION, DEPLOYMENT_EVENTS, TABLE, Store
from receiver.errors import OperatorError, StoreTrouble
from receiver.logs import limited

DROP_EVERY_S = 60.0
"""Interval at which expired days are dropped."""
_DAY_S = 86_400
_EXPIRED = """
SELECT partition_id, sum(rows) FROM system.parts
WHERE database = currentDatabase() AND table = {table:String} AND active AND partition_id < {before:String}
GROUP BY partition_id ORDER BY partition_id
"""


class Expiry:
    """Turns deletion by age on while the wall clock is trusted, and off otherwise."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        retention_days: int = 0,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`retention_days`: 0 if days do not expire."""
        self._store = store
        self._clock = clock
        self._retention_days = retention_days
        self._now_s = now_s
        self._drops_at_s = 0.0
        self._is_on = True
        self.warning = ""
        """Reason that deletion by age is stopped; empty if it is not."""

    def check(self) -> None:
        """Check the clock, and stop or start deletion by age accordingly."""
        reason = self._clock.check()
        if self._store.embedded and self._is_on == bool(reason):
            self._turn(is_on=not reason, reason=reason)
        self.warning = reason

    def drop_expired_days(self) -> None:
        """Drop each day of which all spans are older than the retention. The table must be ours."""
        is_due = self._store.embedded and self._retention_days and time.monotonic() >= self._drops_at_s
        if not is_due or self.warning:
            return
        self._drops_at_s = time.monotonic() + DROP_EVERY_S
        # The last span of a day expires when the day has been over for the retention.
        oldest_kept = datetime.fromtimestamp(self._now_s() - self._retention_days * _DAY_S, UTC)
        try:
            expired = self._store.rows(_EXPIRED, {"table": TABLE, "before": f"{oldest_kept:%Y%m%d}"})
            for day, rows in expired:
                self._store.command(f"ALTER TABLE {TABLE} DROP PARTITION ID '{day}'")
                structlog.get_logger().info(f"expired day {day} is deleted", spans=int(rows))
        except StoreTrouble as trouble:
            limited.warning("expiry: drop", "expired days cannot be deleted", error=trouble.label)

    def _turn(self, *, is_on: bool, reason: str) -> None:
        """Start or stop deletion. The engine forgets this when it restarts: see `refuse_to_open`."""
        try:
            for table in (TABLE, COMPANION, DEPLOYMENT_EVENTS):
                self._store.command(f"SYSTEM {'START' if is_on else 'STOP'} TTL MERGES {table}")
        # The state stays as it was, so the next check tries again.
        except StoreTrouble as trouble:
            limited.error("expiry", "deletion by age cannot be stopped or started", error=trouble.label)
            return
        self._is_on = is_on
        event = "deletion by age is started again" if is_on else "deletion by age is stopped"
        limited.warning(f"expiry: {is_on}", event, error=reason)


def refuse_to_open(clock: Clock, retention_days: int) -> None:
    """Raise `OperatorError` if the clock is not trusted: an engine starts to delete as soon as it is open."""
    if clock.reason and retention_days:
        raise OperatorError(f"{clock.reason}; the embedded store stays closed")
