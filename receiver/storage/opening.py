"""Which store the settings mean, where its files lie, and who may have it open.

DATA/store        the embedded engine's directory
DATA/store.creating   beside it while it is made: see `founding`
DATA/store.lock   held by whoever has it open
DATA/dead         dead letters
DATA/repair       segments of a single day, while they are inserted
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from receiver.clock import NOTE_NAME
from receiver.config.addresses import parse_store_url
from receiver.errors import CommandFailed
from receiver.settings import Settings
from receiver.storage.clickhouse import ClickHouseStore
from receiver.storage.clock import Clock
from receiver.storage.embedded import EmbeddedStore
from receiver.storage.expiry import refuse_to_open
from receiver.storage.store import Store


def open_store(settings: Settings, *, disk_free_min: Callable[[], int]) -> Store:
    """Open it. A server may be down; the embedded engine must open, and `claimed` must hold.

    Raises `OperatorError`, also when the engine would delete by a clock that is not believed.
    """
    url = parse_store_url(settings.store.url)
    if url is None:
        data_dir = Path(settings.data_dir)
        refuse_to_open(Clock(data_dir / NOTE_NAME), settings.store.retention_days)
        return EmbeddedStore(
            data_dir / "store",
            database=settings.store.database,
            memory_bytes_max=settings.store.memory_bytes_max,
            disk_free_min=disk_free_min,
            disk_floor_bytes=settings.journal.disk_free_min,
        )
    return ClickHouseStore(
        url,
        database=settings.store.database,
        password=settings.store.password,
        insert_timeout_s=settings.store.insert_timeout_s,
        receiver=_name_of(settings),
    )


def _name_of(settings: Settings) -> str:
    """Tell receivers apart that share a database: by machine and data directory."""
    place = f"{socket.gethostname()}:{Path(settings.data_dir).resolve()}"
    return hashlib.sha256(place.encode()).hexdigest()[:12]


@contextmanager
def claimed(data_dir: Path) -> Iterator[None]:
    """Be the only one who writes to the store of this data directory."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(data_dir / "store.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise CommandFailed(
            f"the store of '{data_dir}' is in use by another process; expected it to be free"
        ) from error
    finally:
        os.close(fd)
