"""Fixtures: a ClickHouse server, real or fake, and a fault-injecting proxy in front of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from receiver.config.addresses import parse_store_url
from receiver.engine import clickhouse, schema
from receiver.engine.clickhouse import ClickHouseStore
from tests.faults.proxy import Proxy
from tests.faults.writer_harness import WriterHarness
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - only faster


@pytest.fixture
def quick_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory on which a sync is free, for tests that only simulate a disk."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def upstream(server_url: str) -> tuple[str, int]:
    parts = parse_store_url(server_url)
    assert parts is not None
    return parts.host, parts.port


@pytest.fixture
def proxy(upstream: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(upstream) as listening:
        yield listening


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """Create a database with the product's tables, which is dropped at the end."""
    name = f"faults_{uuid4().hex}"
    with engines.over_http(server_url, database=name):
        yield name


@contextmanager
def connected_to(server_url: str, database: str) -> Iterator[ClickHouseStore]:
    """Connect to a database, not through the proxy."""
    with closing(engines.connected(server_url, database=database)) as store:
        yield store


@pytest.fixture(scope="module")
def database(server_url: str) -> Iterator[str]:
    """A database for tests that leave its tables unchanged."""
    with new_database(server_url) as name:
        yield name


@pytest.fixture
def own_database(server_url: str) -> Iterator[str]:
    """A separate database, for tests that change its tables."""
    with new_database(server_url) as name:
        yield name


@pytest.fixture
def patience_s() -> int:
    """How long the client waits for a response."""
    return 30


@pytest.fixture
def connected(
    server_url: str, proxy: Proxy, patience_s: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ClickHouseStore]]:
    """The product's client, connected through the proxy."""
    monkeypatch.setattr(clickhouse, "QUERY_TIMEOUT_S", patience_s)
    opened: list[ClickHouseStore] = []

    def connect(database: str) -> ClickHouseStore:
        parts = parse_store_url(server_url)
        assert parts is not None
        url = f"http://{parts.user}:{parts.password}@127.0.0.1:{proxy.port}"
        opened.append(engines.connected(url, database=database, insert_timeout_s=patience_s))
        return opened[-1]

    yield connect
    for store in opened:
        store.close()


@pytest.fixture
def operator_store(server_url: str, own_database: str) -> Iterator[ClickHouseStore]:
    """Connection for what an operator does to the separate database."""
    with connected_to(server_url, own_database) as store:
        yield store


Connect = Callable[[str], ClickHouseStore]


@pytest.fixture
def harness(  # noqa: PLR0913, PLR0917 - fixtures
    server_url: str, connected: Connect, database: str, proxy: Proxy, maker: SegmentMaker, tmp_path: Path
) -> Iterator[WriterHarness]:
    with connected_to(server_url, database) as direct_store:
        yield WriterHarness(connected(database), direct_store, proxy, maker, tmp_path)


@pytest.fixture
def own_harness(  # noqa: PLR0913, PLR0917 - fixtures
    connected: Connect,
    own_database: str,
    operator_store: ClickHouseStore,
    proxy: Proxy,
    maker: SegmentMaker,
    tmp_path: Path,
) -> WriterHarness:
    return WriterHarness(connected(own_database), operator_store, proxy, maker, tmp_path)


def apply_schema(store: ClickHouseStore) -> list[str]:
    """Apply the schema as `trace-drain schema apply` does."""
    return schema.apply(store, schema_sources(), 30)
