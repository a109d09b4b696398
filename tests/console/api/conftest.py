"""A store with four spans of today, and a client of the API over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from receiver.engine.store import Store
from tests.support import engines
from tests.support.api import Client, client_of
from tests.support.segments import Segment, SegmentMaker


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Segment:
    """Return a segment with two spans for each of two projects and services, each in its own trace."""
    return SegmentMaker(tmp_path_factory.mktemp("segments")).make(0, 0, 0, 0)


@pytest.fixture(scope="module")
def store(engine_dir: Path, stored: Segment) -> Iterator[Store]:
    """Yield a store with the spans of `stored`."""
    with engines.embedded(engine_dir) as store:
        store.insert(stored.path, token="api#0", query_id="trace-drain-api#0")
        yield store


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    """Yield a client of the API over the spans."""
    async with client_of(store) as client:
        yield client
