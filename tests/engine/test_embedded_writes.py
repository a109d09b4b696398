"""Disk writes of the embedded engine: sync, and detection of failed writes."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.sql import NO_SETTINGS
from receiver.engine.store import TABLE, Parameters, RowLocation
from receiver.errors import StoreTrouble
from receiver.model import SegmentId
from tests.support.fake_clickhouse import schema_sources

HELD = RowLocation(SegmentId(7, 1), (0, 0))


class Disk:
    """Replacement for the C library: records the synced directories, or fails."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.flushed: list[str] = []
        self._is_broken = is_broken

    def syncfs(self, fd: int) -> int:
        self.flushed.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        if self._is_broken:
            ctypes.set_errno(errno.EIO)
        return -1 if self._is_broken else 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def load_library(_name: None, *, use_errno: bool) -> Disk:
            assert use_errno
            return self

        monkeypatch.setattr(ctypes, "CDLL", load_library)


class FailingDiskStore(EmbeddedStore):
    """Store without an engine: a write of the first statement fails, and another statement ends first."""

    def __init__(self) -> None:
        self.failures = self._write_failures = 0
        self.parts: list[tuple[str, str, bool]] = []
        self.commands: list[str] = []

    def rows(self, statement: str, _parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        if "system.events" in statement:
            return [(self.failures,)]
        return list(self.parts) if "system.parts" in statement else [(0,)]

    def command(self, statement: str) -> None:
        self.commands.append(statement)

    def _insert_select(
        self, _statement: str, _parameters: Parameters | None, _settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        if not self.failures:
            self.failures = 1
            self.refill_companion(HELD, ["20260101"])
            self.parts.append((TABLE, "20260101_1_1_0", False))


def embedded(directory: Path) -> EmbeddedStore:
    store = EmbeddedStore(
        directory, database="writes", memory_bytes_max=1 << 30, disk_free_min=lambda: 1 << 20
    )
    store.create_database()
    return store


def test_failed_write_is_detected_although_another_thread_read_the_counter_first() -> None:
    store = FailingDiskStore()

    with pytest.raises(StoreTrouble, match="disk writes of this INSERT failed"):
        store.refill_companion(HELD, ["20260101"])

    assert store.commands == [f"ALTER TABLE {TABLE} DETACH PART '20260101_1_1_0'"]


def test_sync_flushes_the_file_system_of_the_engine_or_raises(
    engine_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intact, broken = Disk(), Disk(is_broken=True)
    store = embedded(engine_dir)

    intact.install(monkeypatch)
    store.sync()
    broken.install(monkeypatch)
    with pytest.raises(StoreTrouble, match="errno 5"):
        store.sync()

    store.close()
    assert intact.flushed == broken.flushed == [str(engine_dir)]


def test_client_is_not_used_again_after_an_exception(engine_dir: Path) -> None:
    store = embedded(engine_dir)
    store.command("CREATE TEMPORARY TABLE of_this_client (x UInt8)")
    assert store.rows("EXISTS TEMPORARY TABLE of_this_client") == [(1,)]

    with pytest.raises(StoreTrouble):
        store.rows("SELECT throwIf(1)")

    assert store.rows("EXISTS TEMPORARY TABLE of_this_client") == [(0,)]
    store.close()


def test_probe_row_is_refused_while_the_disk_has_less_free_space_than_inserts_require(
    engine_dir: Path,
) -> None:
    free_bytes_min = [1 << 20]
    store = EmbeddedStore(
        engine_dir, database="space", memory_bytes_max=1 << 30, disk_free_min=lambda: free_bytes_min[0]
    )
    store.create_database()
    schema.apply(store, schema_sources(), 30)
    store.probe()

    free_bytes_min[0] = 1 << 60
    with pytest.raises(StoreTrouble) as refused:
        store.probe()

    store.close()
    assert refused.value.code == 243
