"""Ledger metrics, computed in a thread until the store process stops."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from receiver.ledger.balance import Balance
from receiver.ledger.ledger import Sums
from receiver.metrics import Metrics
from receiver.store_process.metrics import EVERY_S, LedgerMetrics


def no_balance() -> Balance:
    raise OSError(5, "the disk is unavailable")


def test_stopped_ledger_metrics_submit_nothing_to_a_closed_pool() -> None:
    pool = ThreadPoolExecutor(1)
    ledger_metrics = LedgerMetrics(pool, Metrics("store"))

    ledger_metrics.stop()
    pool.shutdown()
    ledger_metrics.tick(no_balance)


def test_running_ledger_metrics_submit_to_the_pool() -> None:
    pool = ThreadPoolExecutor(1)
    ledger_metrics = LedgerMetrics(pool, Metrics("store"))

    pool.shutdown()

    with pytest.raises(RuntimeError):
        ledger_metrics.tick(no_balance)


def test_lost_history_is_reported_to_health_and_metrics_until_it_is_acknowledged() -> None:
    losses: tuple[str, ...] = ("2027-01-15T08:00Z the last 3 of 9 entries are missing", "another")
    metrics, now_s = Metrics("store"), [0.0]
    with ThreadPoolExecutor(1) as pool:
        ledger_metrics = LedgerMetrics(pool, metrics, lambda: now_s[0])

        for expected in (losses, ()):
            now_s[0] += EVERY_S
            ledger_metrics.tick(partial(Balance, Sums({}, 0, (), losses=expected), {}, set()))
            pool.submit(int).result()
            ledger_metrics.tick(no_balance)

            assert ledger_metrics.trouble == "; ".join(expected)
            assert metrics.count("ledger_losses").value == len(expected)
