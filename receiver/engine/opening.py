"""Opening of the configured store: the layout of its files, and the lock that ensures a single owner.

DATA/store            the embedded engine's directory
DATA/store.creating   marker file while the embedded store is created: see `Bootstrap`
DATA/store.lock       locked by the process that has the store open
DATA/dead             dead letters
DATA/repair           the rows of a piece as a segment, while they are inserted
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from receiver.clock import NOTE_NAME
from receiver.config.addresses import StoreUrl, parse_store_url
from receiver.durable.files import lock_held, make_directories
from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.cluster_store import ClusterStore
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.expiry import Clock, refuse_to_open
from receiver.engine.store import Store
from receiver.settings import Settings


def open_store(settings: Settings, *, disk_free_min: Callable[[], int]) -> Store:
    """Open the store that the settings name. A server may be down. The embedded engine requires `claimed`.

    Raises `OperatorError` if the engine does not open, or if the wall clock is not trusted.
    """
    url = parse_store_url(settings.store.url)
    if url is None:
        data_dir = Path(settings.data_dir)
        # Before the engine exists: it deletes expired rows as soon as it is open.
        refuse_to_open(Clock(data_dir / NOTE_NAME), settings.store.retention_days)
        return open_embedded(data_dir / "store", settings, disk_free_min=disk_free_min)
    return open_server(url, settings)


def open_server(url: StoreUrl, settings: Settings) -> ClickHouseStore:
    """Open the store on a server or a cluster, which may be down."""
    store_class = ClusterStore if settings.store.cluster else ClickHouseStore
    return store_class(
        url,
        database=settings.store.database,
        password=settings.store.password,
        insert_timeout_s=settings.store.insert_timeout_s,
        receiver=receiver_name(settings),
        cluster=settings.store.cluster,
    )


def open_embedded(path: Path, settings: Settings, *, disk_free_min: Callable[[], int]) -> EmbeddedStore:
    """Open the embedded engine in this directory. Raises `OperatorError` if it does not open."""
    return EmbeddedStore(
        path,
        database=settings.store.database,
        memory_bytes_max=settings.store.memory_bytes_max,
        disk_free_min=disk_free_min,
        disk_floor_bytes=settings.journal.disk_free_min,
    )


def receiver_name(settings: Settings) -> str:
    """Return a name, derived from host and data directory, that differs between receivers of one database."""
    # Hashed, because the name becomes part of a table's name, and paths contain other characters.
    identity = f"{socket.gethostname()}:{Path(settings.data_dir).resolve()}"
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


@contextmanager
def claimed(data_dir: Path) -> Iterator[None]:
    """Hold the lock on the store of this data directory. Raises `CommandFailed` if it is taken."""
    make_directories(data_dir)
    problem = f"the store of '{data_dir}' is in use by another process; expected it to be free"
    with lock_held(data_dir / "store.lock", problem):
        yield
