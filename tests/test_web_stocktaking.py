"""The ledger as metrics, taken in a thread, until the store process stops."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from receiver.metrics import Metrics
from receiver.storage.balance import Balance
from receiver.storage.ledger import Sums
from receiver.web.stocktaking import EVERY_S, Stocktaking


def no_balance() -> Balance:
    raise OSError(5, "disk is away")


def test_once_stopped_it_asks_a_closed_pool_for_nothing() -> None:
    pool = ThreadPoolExecutor(1)
    stocktaking = Stocktaking(pool, Metrics("store"))

    stocktaking.stop()
    pool.shutdown()
    stocktaking.tick(no_balance)


def test_before_that_it_asks() -> None:
    pool = ThreadPoolExecutor(1)
    stocktaking = Stocktaking(pool, Metrics("store"))

    pool.shutdown()

    with pytest.raises(RuntimeError):
        stocktaking.tick(no_balance)


def test_lost_history_is_reported_to_health_and_metrics_until_it_is_acknowledged() -> None:
    losses: tuple[str, ...] = ("2027-01-15T08:00Z the last 3 of 9 entries are missing", "another")
    metrics, now_s = Metrics("store"), [0.0]
    with ThreadPoolExecutor(1) as pool:
        stocktaking = Stocktaking(pool, metrics, lambda: now_s[0])

        for expected in (losses, ()):
            now_s[0] += EVERY_S
            stocktaking.tick(partial(Balance, Sums({}, 0, (), losses=expected), {}, set()))
            pool.submit(int).result()
            stocktaking.tick(no_balance)

            assert stocktaking.trouble == "; ".join(expected)
            assert metrics.count("ledger_losses").value == len(expected)
