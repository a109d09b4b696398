"""An embedded store and a server, each with empty tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.store import Store
from tests.support import engines
from tests.support.server_process import Server


@pytest.fixture(scope="module")
def embedded_tables(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture(scope="module")
def server_tables(server_url: str) -> Iterator[ClickHouseStore]:
    with engines.over_http(server_url, database=f"move_{uuid4().hex}") as store:
        yield store


@pytest.fixture
def source(embedded_tables: Store) -> Iterator[Store]:
    yield embedded_tables
    engines.delete_rows(embedded_tables)


@pytest.fixture
def target(server_tables: ClickHouseStore) -> Iterator[ClickHouseStore]:
    yield server_tables
    engines.delete_rows(server_tables)


@pytest.fixture
def faulty_server(request: pytest.FixtureRequest) -> Server:
    """Return the server behind `target`, for tests that inject faults into it."""
    if os.environ.get("TRACE_DRAIN_TEST_CLICKHOUSE"):
        pytest.skip("a real server has no faults to inject")
    running: Server = request.getfixturevalue("server")
    return running
