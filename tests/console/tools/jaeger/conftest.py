"""Client of the Jaeger routes over the shop's traces."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from receiver.console.tools.jaeger.routes import JaegerRoutes
from receiver.engine.store import Store
from tests.support.api import Client, client_of


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    """Yield a client of the API with the routes of Jaeger."""
    async with client_of(store, JaegerRoutes) as client:
        yield client
