"""Metrics of writer and ledger. The event loop sets them; a thread pool computes the ledger's balance."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from receiver.dead_letters.directory import DeadLetters
from receiver.journal.segments import Journal
from receiver.ledger import line_sums
from receiver.ledger.balance import Balance
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.writer.progress import Progress


def report(progress: Progress, dead: DeadLetters, metrics: Metrics) -> None:
    """Set every metric of the writer to its current value."""
    metrics.set("backlog_segments", progress.backlog_segments)
    metrics.set("backlog_bytes", progress.backlog_bytes)
    metrics.set("backlog_age_seconds", progress.oldest_age_s(time.time()))
    metrics.set("backlog_stalled_segments", len(progress.stalled))
    metrics.set("dead_letters", dead.count())
    metrics.set("store_inserts", progress.inserts)
    metrics.set("store_spans", progress.rows)
    metrics.set("store_alarms", progress.alarms)
    metrics.set("redelivery_entries", progress.window_entries)
    metrics.set("redelivery_window_seconds", progress.window_covered_s)
    # Copies, because the writer's thread adds keys, which would end an iteration with an error.
    for drain, count in progress.duplicates.copy().items():
        metrics.set("deliveries_duplicate", count, drain=drain)
    for drain, count in progress.duplicate_spans.copy().items():
        metrics.set("spans_duplicate", count, drain=drain)
    for fault, count in progress.troubles.copy().items():
        metrics.set("store_troubles", count, fault=fault)
    for cause, count in progress.dead_rows.copy().items():
        metrics.set("spans_dead_lettered", count, cause=cause)
    # Observed once each. The writer only appends, so no lock is needed.
    while progress.freshness_s:
        metrics.observe("freshness_seconds", progress.freshness_s.popleft())


def newer_segments_text(journal: Journal) -> str:
    count = len(journal.newer)
    return (
        f"{count} segments were written by a newer version; run that version to store them" if count else ""
    )


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
