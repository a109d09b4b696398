"""The two compared tables: in one engine, each in its own database, filled and merged in the same way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from receiver import transcode
from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.store import COMPANION, TABLE
from receiver.settings import Settings

Name = Literal["ours", "otel"]

DISK_FREE_BYTES_MIN = 1 << 30
MEMORY_BYTES_MAX = 6 << 30
_EXPORTER = Path(__file__).parent / "exporter.sql"
_ACTIVE = "FROM system.parts WHERE active AND database = currentDatabase()"


@dataclass
class Clock:
    """CPU seconds of all threads of this process, which includes the engine, and wall-clock seconds."""

    cpu_s: float = 0.0
    wall_s: float = 0.0


@contextmanager
def clocked() -> Iterator[Clock]:
    """Measure the CPU time and wall time of a `with` block; they are set when it ends."""
    clock = Clock()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    yield clock
    clock.cpu_s, clock.wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s


class ComparedTable:
    """A table under comparison."""

    def __init__(self, name: Name, directory: Path, store_class: type[EmbeddedStore] = EmbeddedStore) -> None:
        self.name = name
        self._database = f"compared_{name}"
        self.store = store_class(
            directory,
            database=self._database,
            memory_bytes_max=MEMORY_BYTES_MAX,
            disk_free_min=lambda: DISK_FREE_BYTES_MIN,
        )

    def create(self) -> None:
        """Create the table with our schema or with the exporter's."""
        self.store.create_database()
        if self.name == "ours":
            schema.apply(self.store, transcode.SCHEMAS, *schema.wanted(Settings()))
            return
        for statement in _EXPORTER.read_text().split(";"):
            self.store.command(statement)

    def drop(self) -> None:
        """Drop the database with the table."""
        self.store.command(f"DROP DATABASE {self._database} SYNC")

    def set_merges(self, verb: Literal["START", "STOP"]) -> None:
        """Start or stop background merges."""
        for table in (TABLE, COMPANION):
            self.store.command(f"SYSTEM {verb} MERGES {self._database}.{table}")

    def insert(self, segment: Path) -> Clock:
        """Insert a segment as the writer does, or only the exporter's columns of it."""
        token = f"{segment.name}#0"
        with clocked() as clock:
            if self.name == "ours":
                self.store.insert(segment, token=token, query_id=token)
            else:
                self.store.rows(self._exporter_insert(segment))
        return clock

    def _exporter_insert(self, segment: Path) -> str:
        return (
            f"INSERT INTO {TABLE} FROM INFILE '{segment}' COMPRESSION 'lz4' "  # a path that we generated
            "SETTINGS input_format_skip_unknown_fields = 1 FORMAT Native"
        )

    def merge(self) -> Clock:
        """Merge every day into one part."""
        self.set_merges("START")
        with clocked() as clock:
            for table in (TABLE, COMPANION):
                for (day,) in self.store.rows(
                    f"SELECT DISTINCT partition_id {_ACTIVE} AND table = '{table}'"
                ):
                    self.store.command(f"OPTIMIZE TABLE {table} PARTITION ID '{day}' FINAL")
        self.set_merges("STOP")
        return clock

    def rows(self) -> int:
        """Return the number of spans."""
        return int(self.store.rows(f"SELECT count() FROM {TABLE}")[0][0])  # noqa: S608 - a constant

    def disk_bytes(self) -> int:
        """Return the size of the active parts, including the companion table's."""
        return int(self.store.rows(f"SELECT sum(bytes_on_disk) {_ACTIVE}")[0][0])
