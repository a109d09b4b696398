"""Thread that adds newly stored segments to the metrics of spans."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from receiver.console.queries.span_metrics.follower import Follower
from receiver.console.queries.span_metrics.statement import QUERY_ID
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.reports import RecordedLog

ROUND_S: Final = 5.0
"""Interval at which segments are added: at least one new value for each scrape."""
RETRY_S: Final = 10.0
"""Time after a failure until the next try."""


class SpanMetricsThread:
    """Runs the follower. A failure is logged and tried again; nothing is lost meanwhile."""

    def __init__(
        self, store: Store, follower: Follower, recorded: Callable[[], RecordedLog | None], *, is_on: bool
    ) -> None:
        self.follower = follower
        self.is_on = is_on
        self._store, self._recorded = store, recorded
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="span-metrics", daemon=True)

    def start(self) -> None:
        """Start the thread, unless metrics of spans are off."""
        if self.is_on:
            self._thread.start()

    def stop(self, seconds: float) -> None:
        """Start no more statements, cancel one that runs in the embedded engine, and wait this long."""
        self._is_stopping.set()
        if not self._thread.is_alive():
            return
        if self._store.embedded:
            try:
                self._store.kill(QUERY_ID)
            except StoreTrouble as trouble:
                limited.warning("span metrics", "statement cannot be cancelled", error=trouble.label)
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._is_stopping.wait(0.0):
            self._is_stopping.wait(self._round())

    def _round(self) -> float:
        """Add the segments that wait. Return the time until the next round."""
        try:
            if self.follower.counts is None:
                self.follower.open()
            log = self._recorded()
            while log is not None and self.follower.step(log):
                if self._is_stopping.is_set():
                    break
        except StoreTrouble as trouble:
            # A stop cancels the statement, which is no failure to report.
            if not self._is_stopping.is_set():
                limited.warning("span metrics", "spans cannot be counted yet", error=trouble.label)
            return RETRY_S
        except OSError as error:
            limited.warning("span metrics", "sums cannot be stored yet", error=error.strerror)
            return RETRY_S
        return ROUND_S
