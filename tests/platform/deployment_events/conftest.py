"""The embedded store, a server of the platform's events, and an emulated platform."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine.store import DEPLOYMENT_EVENTS, Store
from tests.support import engines
from tests.support.deployment_events import EventsServer, events_server
from tests.support.emulator import RunningEmulator, emulator


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture
def empty_store(store: Store) -> Store:
    """Return the store without the spans and events of other tests."""
    for table in ("otel_traces", DEPLOYMENT_EVENTS):
        store.command(f"TRUNCATE TABLE {table}")
    return store


@pytest.fixture
async def platform() -> AsyncIterator[EventsServer]:
    async with events_server() as platform:
        yield platform


@pytest.fixture
async def emulated(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


@pytest.fixture
def deployment() -> str:
    """Return the id of a deployment that no other test has."""
    return f"dpl_{uuid4().hex}"
