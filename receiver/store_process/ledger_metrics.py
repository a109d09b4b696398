"""Ledger metrics: computes the balance in a thread every few seconds, and reports it on the event loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from receiver.ledger import line_sums
from receiver.ledger.balance import Balance
from receiver.logs import limited
from receiver.metrics import Metrics

EVERY_S = 5.0
OUTCOMES = (*line_sums.OUTCOMES, "journal")
HOUR_S = 3_600


class LedgerMetrics:
    """Computes one balance at a time in the pool and reports it."""

    def __init__(
        self, pool: ThreadPoolExecutor, metrics: Metrics, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._now_s = now_s
        self._due_at_s = 0.0
        self._pending: Future[Balance] | None = None
        self.trouble = ""
        """Losses of history that no operator has acknowledged; empty if there are none."""

    def stop(self) -> None:
        """Start no more computations, because the pool closes."""
        self._due_at_s = math.inf

    def tick(self, balance: Callable[[], Balance]) -> None:
        """Report the balance that was computed, and start the next one when it is due."""
        # Never waits: this runs on the event loop, and counting the journal may take seconds.
        if self._pending is not None and self._pending.done():
            finished, self._pending = self._pending, None
            try:
                balance_now = finished.result()
                self.trouble = "; ".join(balance_now.sums.losses)
                report_balance(balance_now, self._metrics)
            except OSError as error:
                limited.warning("ledger: journal", "journal cannot be counted", error=error.strerror)
        # One at a time, so that a slow disk cannot fill the pool with computations.
        if self._pending is None and self._now_s() >= self._due_at_s:
            self._due_at_s = self._now_s() + EVERY_S
            self._pending = self._pool.submit(balance)


def report_balance(balance: Balance, metrics: Metrics) -> None:
    """Set the metrics of spans by outcome since the ledger was created."""
    for drain, totals in balance.totals().items():
        for outcome in OUTCOMES:
            metrics.set("ledger_spans", totals[outcome], drain=drain, outcome=outcome)
    metrics.set("ledger_losses", len(balance.sums.losses))
    metrics.set("ledger_complete_from_seconds", balance.sums.complete_from_hour * HOUR_S)
