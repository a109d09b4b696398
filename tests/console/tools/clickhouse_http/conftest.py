"""The ClickHouse endpoint over the shop's traces."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from receiver.engine.store import Store
from tests.support.api import Client
from tests.support.clickhouse_endpoint import served


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    """Yield a client of the endpoint, which needs no token."""
    async with served(store) as client:
        yield client
