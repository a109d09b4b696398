"""The ledger as metrics, taken in a thread, until the store process stops."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from receiver.metrics import Metrics
from receiver.storage.balance import Balance
from receiver.web.stocktaking import Stocktaking


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
