"""The two tables that are compared: in one engine, each in a database of its own, filled and merged alike."""

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
    """CPU seconds of this process, all its threads: the engine runs in it."""

    cpu_s: float = 0.0
    wall_s: float = 0.0


@contextmanager
def clocked() -> Iterator[Clock]:
    """How long the block took, once it has ended."""
    clock = Clock()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    yield clock
    clock.cpu_s, clock.wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s


class Compared:
    """One of the tables."""

    def __init__(self, name: Name, directory: Path) -> None:
        self.name = name
        self._database = f"compared_{name}"
        self.store = EmbeddedStore(
            directory,
            database=self._database,
            memory_bytes_max=MEMORY_BYTES_MAX,
            disk_free_min=lambda: DISK_FREE_BYTES_MIN,
        )

    def create(self) -> None:
        """As the product makes it, or as the exporter does."""
        self.store.create_database()
        if self.name == "ours":
            schema.apply(self.store, transcode.SCHEMAS, Settings().store.retention_days)
            return
        for statement in _EXPORTER.read_text().split(";"):
            self.store.command(statement)

    def drop(self) -> None:
        """With everything in it."""
        self.store.command(f"DROP DATABASE {self._database} SYNC")

    def merging(self, verb: Literal["START", "STOP"]) -> None:
        """Let it merge in the background, or not."""
        for table in (TABLE, COMPANION):
            self.store.command(f"SYSTEM {verb} MERGES {self._database}.{table}")

    def insert(self, segment: Path) -> Clock:
        """A segment: ours as the writer does it, the exporter's columns of it into the exporter's table."""
        token = f"{segment.name}#0"
        with clocked() as clock:
            if self.name == "ours":
                self.store.insert(segment, token=token, query_id=token)
            else:
                self.store.rows(self._into_exporters(segment))
        return clock

    def _into_exporters(self, segment: Path) -> str:
        return (
            f"INSERT INTO {TABLE} FROM INFILE '{segment}' COMPRESSION 'lz4' "  # a path of ours
            "SETTINGS input_format_skip_unknown_fields = 1 FORMAT Native"
        )

    def merge(self) -> Clock:
        """Every day into one part."""
        self.merging("START")
        with clocked() as clock:
            for table in (TABLE, COMPANION):
                for (day,) in self.store.rows(
                    f"SELECT DISTINCT partition_id {_ACTIVE} AND table = '{table}'"
                ):
                    self.store.command(f"OPTIMIZE TABLE {table} PARTITION ID '{day}' FINAL")
        self.merging("STOP")
        return clock

    def rows(self) -> int:
        """Spans it holds."""
        return int(self.store.rows(f"SELECT count() FROM {TABLE}")[0][0])  # noqa: S608 - a constant

    def disk_bytes(self) -> int:
        """What its live parts take, the companion's too."""
        return int(self.store.rows(f"SELECT sum(bytes_on_disk) {_ACTIVE}")[0][0])
