"""The endpoint over the shop's traces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from receiver.engine.store import Store
from tests.support.clickhouse_endpoint import Client, served
from tests.support.tool_api import shop_store


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with shop_store(engine_dir) as store:
        yield store


@pytest.fixture
async def client(store: Store, tmp_path: Path) -> AsyncIterator[Client]:
    async with served(store, tmp_path) as client:
        yield client
