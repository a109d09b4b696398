"""Rollup thread: derives the hours that are due while the writer keeps up.

Invariant: it never delays a segment. Each statement uses one core, and the thread starts no statement while
segments wait. A failure is logged and tried again; queries then read the spans.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from receiver.console.queries.rollup.derivation import Closing, Settled, derive_due
from receiver.console.queries.rollup.tables import QUERY_ID
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.logs import limited

ROUND_S = 60.0
"""Interval between two rounds."""
BUSY_S = 1.0
"""Interval at which the thread checks again whether the writer keeps up."""


class RollupThread:
    """Thread that derives slots."""

    def __init__(
        self, store: Store, closing: Callable[[], Closing], keeps_up: Callable[[], bool], *, is_on: bool
    ) -> None:
        """`keeps_up`: whether the tables exist and no segment waits for the store."""
        self._store = store
        self._closing = closing
        self._keeps_up = keeps_up
        self._is_on = is_on
        self._settled: Settled = {}
        self._wake = threading.Event()
        self._is_stopping = threading.Event()
        self._caught_up_at_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="rollup", daemon=True)

    def start(self) -> None:
        """Start the thread, unless rollups are off."""
        if self._is_on:
            self._thread.start()

    def wake(self) -> None:
        """Start a round over all days now."""
        self._wake.set()

    def stop(self) -> None:
        """Start no more statements. Cancels one that runs in the embedded engine."""
        # Before the wake-up, so that the thread does not begin another round.
        self._is_stopping.set()
        self._wake.set()
        if self.is_alive and self._store.embedded:
            try:
                self._store.kill(QUERY_ID)
            except StoreTrouble as trouble:
                limited.warning("rollup", "derivation cannot be cancelled", error=trouble.label)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most this long."""
        if self.is_alive:
            self._thread.join(seconds)

    @property
    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def lag_s(self) -> float:
        """Return the time since a round last derived every closed hour; 0 if rollups are off."""
        return max(0.0, time.monotonic() - self._caught_up_at_s) if self._is_on else 0.0

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            # A rebuild covers all days, also those that were settled before.
            if self._wake.is_set():
                self._wake.clear()
                self._settled.clear()
            if self._round():
                self._caught_up_at_s = time.monotonic()
                self._wake.wait(ROUND_S)
            else:
                self._is_stopping.wait(BUSY_S)

    def _round(self) -> bool:
        """Derive the hours that are due. Returns False if the writer did not keep up, or the store failed."""
        try:
            for _ in derive_due(self._store, self._closing(), self._settled, may_continue=self._may_continue):
                pass
        except StoreTrouble as trouble:
            # A stop cancels the statement, which is no failure to report.
            if not self._is_stopping.is_set():
                limited.warning("rollup", "hours cannot be derived", error=trouble.label)
            self._is_stopping.wait(ROUND_S)
            return False
        return self._may_continue()

    def _may_continue(self) -> bool:
        return not self._is_stopping.is_set() and self._keeps_up()
