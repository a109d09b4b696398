"""The ledger as metrics: taken in a thread every few seconds, told on the event loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.storage.balance import Balance
from receiver.storage.ledger_lines import Counts

EVERY_S = 5.0
OUTCOMES = (*Counts._fields, "journal")
HOUR_S = 3_600


class Stocktaking:
    """Asks for one balance at a time."""

    def __init__(
        self, pool: ThreadPoolExecutor, metrics: Metrics, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._now_s = now_s
        self._due_at_s = 0.0
        self._asked: Future[Balance] | None = None

    def stop(self) -> None:
        """Ask for no more: the pool closes."""
        self._due_at_s = math.inf

    def tick(self, balance: Callable[[], Balance]) -> None:
        """Tell the balance that was asked for, and ask for the next when it is due."""
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            try:
                report_balance(asked.result(), self._metrics)
            except OSError as reason:
                limited.warning("ledger: journal", "journal cannot be counted", why=reason.strerror)
        if self._asked is None and self._now_s() >= self._due_at_s:
            self._due_at_s = self._now_s() + EVERY_S
            self._asked = self._pool.submit(balance)


def report_balance(balance: Balance, metrics: Metrics) -> None:
    """Say what became of every span, since the ledger was begun."""
    for drain, totals in balance.totals().items():
        for outcome in OUTCOMES:
            metrics.set("ledger_spans", totals[outcome], drain=drain, outcome=outcome)
    metrics.set("ledger_complete_from_seconds", balance.sums.complete_from_hour * HOUR_S)
