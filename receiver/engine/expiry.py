"""Deletion by age, stopped while the clock is not believed: the embedded store's. A server has its own clock.

Keeps: an engine that would begin to delete by a wrong clock is not opened; an open one deletes nothing more.
"""

from __future__ import annotations

from receiver.engine.clock_check import Clock
from receiver.engine.store import COMPANION, TABLE, Store
from receiver.errors import OperatorError, StoreTrouble
from receiver.logs import limited


class Expiry:
    """Looks at the clock whenever something could be deleted soon."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._is_on = True
        self.warning = ""
        """Why nothing expires, once that is so."""

    def look(self) -> None:
        """See to it that nothing is deleted but by a clock that is believed, then tell."""
        reason = self._clock.look()
        if self._store.embedded and self._is_on == bool(reason):
            self._turn(is_on=not reason, reason=reason)
        self.warning = reason

    def _turn(self, *, is_on: bool, reason: str) -> None:
        """Not remembered by the engine: see `refuse_to_open`."""
        try:
            for table in (TABLE, COMPANION):
                self._store.command(f"SYSTEM {'START' if is_on else 'STOP'} TTL MERGES {table}")
        except StoreTrouble as trouble:
            limited.error("expiry", "deletion by age cannot be stopped or begun", why=trouble.label)
            return
        self._is_on = is_on
        limited.warning(f"expiry: {is_on}", "deletion by age", is_on=is_on, why=reason)


def refuse_to_open(clock: Clock, retention_days: int) -> None:
    """An engine deletes as soon as it is open, before anybody can tell it not to. Raises `OperatorError`."""
    if clock.reason and retention_days:
        raise OperatorError(f"{clock.reason}, and the embedded store stays closed")
