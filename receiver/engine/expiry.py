"""Control of deletion by age in the embedded store: stops it while the wall clock is not trusted.

A ClickHouse server is not affected, because it has its own clock.

Invariant: while the clock is not trusted, the engine is not opened, and an open engine deletes nothing.
"""

from __future__ import annotations

from receiver.engine.clock_check import Clock
from receiver.engine.store import COMPANION, DEPLOYMENT_EVENTS, TABLE, Store
from receiver.errors import OperatorError, StoreTrouble
from receiver.logs import limited


class Expiry:
    """Turns deletion by age on while the wall clock is trusted, and off otherwise."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._is_on = True
        self.warning = ""
        """Reason that deletion by age is stopped; empty if it is not."""

    def check(self) -> None:
        """Check the clock, and stop or start deletion by age accordingly."""
        reason = self._clock.check()
        if self._store.embedded and self._is_on == bool(reason):
            self._turn(is_on=not reason, reason=reason)
        self.warning = reason

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
