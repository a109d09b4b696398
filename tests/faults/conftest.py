"""A ClickHouse server, real or the suite's own, and a proxy before it in which everything goes wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from receiver.config.addresses import parse_store_url
from receiver.engine import clickhouse, schema
from receiver.engine.clickhouse import ClickHouseStore
from tests.faults.desk import Desk
from tests.faults.proxy import Proxy
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - only faster


@pytest.fixture
def quick_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory where a sync costs nothing, for those that only simulate a disk."""
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


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> SegmentMaker:
    return SegmentMaker(tmp_path_factory.mktemp("segments"))


@pytest.fixture
def proxy(upstream: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(upstream) as listening:
        yield listening


@pytest.fixture(scope="module")
def database(server_url: str) -> Iterator[str]:
    """A database with our tables, for the cases that leave them as they are."""
    name = f"faults_{uuid4().hex}"
    with engines.over_http(server_url, database=name):
        yield name


@pytest.fixture
def own_database(server_url: str) -> Iterator[str]:
    """One of its own, for the cases that do not."""
    name = f"faults_{uuid4().hex}"
    with engines.over_http(server_url, database=name):
        yield name


@pytest.fixture
def patience_s() -> int:
    """How long a client waits for an answer."""
    return 30


@pytest.fixture
def connected(
    server_url: str, proxy: Proxy, patience_s: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ClickHouseStore]]:
    """The product's client, through the proxy."""
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
def past(server_url: str, database: str) -> Iterator[ClickHouseStore]:
    """The same database, past the proxy."""
    store = engines.connected(server_url, database=database)
    yield store
    store.close()


@pytest.fixture
def by_hand(server_url: str, own_database: str) -> Iterator[ClickHouseStore]:
    """What a human does to the database of one's own, past the proxy."""
    store = engines.connected(server_url, database=own_database)
    yield store
    store.close()


Connect = Callable[[str], ClickHouseStore]


@pytest.fixture
def desk(  # noqa: PLR0913, PLR0917 - fixtures
    connected: Connect,
    database: str,
    past: ClickHouseStore,
    proxy: Proxy,
    maker: SegmentMaker,
    tmp_path: Path,
) -> Desk:
    return Desk(connected(database), past, proxy, maker, tmp_path)


@pytest.fixture
def own_desk(  # noqa: PLR0913, PLR0917 - fixtures
    connected: Connect,
    own_database: str,
    by_hand: ClickHouseStore,
    proxy: Proxy,
    maker: SegmentMaker,
    tmp_path: Path,
) -> Desk:
    return Desk(connected(own_database), by_hand, proxy, maker, tmp_path)


def schema_applied(store: ClickHouseStore) -> list[str]:
    """Do what `trace-drain schema apply` does."""
    return schema.apply(store, schema_sources(), 30)


@pytest.fixture(scope="session")
def faults_heavy() -> bool:
    """Whether there is time for every variant: `make faults`."""
    return bool(os.environ.get("TRACE_DRAIN_TEST_FAULTS"))
