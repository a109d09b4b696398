"""Feature of the store process: an optional part, such as the console or the hosting platform's side.

The store process starts, reloads and stops its features in the order of their list, and knows nothing else
about them. `receiver.processes` chooses the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from receiver.config.load import Loaded
from receiver.engine.store import Store
from receiver.http.listener import Ports
from receiver.metrics import Metrics
from receiver.reports import (
    DeadLetterOperations,
    DeletionBegun,
    DeletionReport,
    LedgerQueries,
    RecordedLog,
    WriterProgress,
)
from receiver.settings import Settings


@dataclass(slots=True)
class StoreParts:
    loaded: Loaded
    """Settings in force with their origins; replaced at a reload."""
    store: Store
    progress: WriterProgress
    health: Callable[[], dict[str, str]]
    """Returns the problem of each check of the store process; empty if the check passes."""
    schema: Callable[[], object]
    """Returns the state of the tables; blocks."""
    ledger: LedgerQueries
    snapshot: Callable[[], object]
    """Takes a snapshot of the data directory for a backup; blocks."""
    deletion_report: Callable[[Mapping[str, str]], DeletionReport]
    """Counts the stored spans of a project or a trace; blocks. Raises `MalformedBody`."""
    delete: Callable[[Mapping[str, str]], DeletionBegun]
    """Begins to delete the spans of a project or a trace of one day; blocks. Raises `MalformedBody`."""
    dead_letters: DeadLetterOperations
    journal_bytes: Callable[[], int]
    """Measures the files of the journal; blocks."""
    disk_free_min: Callable[[], int]
    """Returns the disk space that must stay free for the journal."""
    has_tables: Callable[[], bool]
    """Returns whether the tables are known to be up to date."""
    keeps_up: Callable[[], bool]
    """Returns whether the tables exist and no segment waits for the store."""
    recorded: Callable[[], RecordedLog | None]
    """Returns the recorded segments; `None` until they are read, or if metrics of spans are off."""
    ports: Ports
    listen_fds: Sequence[int]
    """Sockets that the process inherited: of the API, then of the ClickHouse port if it is on."""
    pool: ThreadPoolExecutor
    """Threads for short calls that block."""

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self.loaded.settings

    @property
    def data_dir(self) -> Path:
        return Path(self.settings.data_dir)


class Feature(Protocol):
    """Part of the store process. Its constructor may read files, and raises what prevents the start."""

    async def start(self) -> None:
        """Start threads and tasks, and open ports."""

    def reload(self) -> None:
        """Apply the settings in `StoreParts.loaded`, which are new."""

    def report(self, metrics: Metrics) -> Mapping[str, str]:
        """Set metrics; return the problem of each check of the feature. Called every second."""

    async def stop(self) -> None:
        """Stop threads and tasks. Their statements end before the engine is closed."""


MakeFeatures = Callable[[StoreParts], Sequence[Feature]]
"""Returns the features of a process, in the order of their start."""
