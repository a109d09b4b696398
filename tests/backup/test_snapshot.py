"""Snapshots: the files of one instant, of a store whose intakes write and rename files meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.backup import snapshot as snapshots
from receiver.backup.backup import back_up
from receiver.backup.snapshot import delete_snapshot, frozen_parts, take_snapshot
from receiver.durable.files import Disk
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.retention import ROLLUP_TABLES
from receiver.engine.store import COMPANION, DEPLOYMENT_EVENTS, TABLE
from receiver.errors import CommandFailed, DiskTrouble
from tests.backup.snapshots import content_of, ignore
from tests.support import engines
from tests.support.fake_clickhouse import MemoryStore
from tests.support.segments import SegmentMaker, day_of

EPOCH = "journal/00000000000000aa"


class EmptyStore(MemoryStore):
    """A store whose database has the table of spans only, without rows."""

    def rows(self, statement: str, _parameters: object = None) -> list[tuple[str, ...]]:
        return [("abcd",)] if "system.databases" in statement else [(TABLE, "1234")]

    def command(self, _statement: str) -> None:
        """Freeze nothing."""


@pytest.fixture
def store(engine_dir: Path) -> Iterator[EmbeddedStore]:
    with engines.embedded(engine_dir) as store:
        yield store
        delete_snapshot(engine_dir.parent)


def write(data_dir: Path, name: str, content: bytes = b"spans") -> Path:
    path = data_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def linked(data_dir: Path) -> dict[str, bytes]:
    return content_of(data_dir / "snapshot")


def test_snapshot_of_the_engine_has_the_parts_and_definitions_of_its_tables_but_no_rollup(
    store: EmbeddedStore, engine_dir: Path, tmp_path: Path
) -> None:
    segment = SegmentMaker(tmp_path).make(0, 1, 1)
    store.insert(segment.path, token="backup#0", query_id="trace-drain-backup#0")
    (database,) = store.rows("SELECT currentDatabase()")[0]
    data_dir = engine_dir.parent

    taken = take_snapshot(store, data_dir, database, 1.8e9)
    made = back_up(data_dir, taken, tmp_path / "backup", ignore)

    assert taken.taken_at == "2027-01-15T08:00:00Z"
    assert {TABLE, COMPANION, DEPLOYMENT_EVENTS, "trace_drain_migrations"} == taken.tables.keys()
    assert made.manifest.rows[TABLE] == {day_of(0): 1, day_of(1): 2}
    assert made.manifest.rows["trace_drain_migrations"]
    names = {file.name for file in made.manifest.files}
    definitions = {Path(name).stem for name in names if name.endswith(".sql")}
    assert definitions >= {TABLE, COMPANION, f"{COMPANION}_mv", *ROLLUP_TABLES, database}
    # The parts stay on disk as long as the snapshot, though the table is empty.
    store.command(f"TRUNCATE TABLE {TABLE} SYNC")
    assert len(list((frozen_parts(data_dir) / taken.tables[TABLE]).glob("*/checksums.txt"))) == 2
    with pytest.raises(DiskTrouble, match="a backup copies the last snapshot"):
        take_snapshot(store, data_dir, database, 0)
    delete_snapshot(data_dir)
    assert take_snapshot(store, data_dir, database, 0).tables == taken.tables
    assert not (frozen_parts(data_dir) / taken.tables[TABLE]).exists()


def test_store_without_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        EmptyStore, "rows", lambda _, statement, __=None: [("abcd",)] * ("databases" in statement)
    )

    with pytest.raises(CommandFailed, match="the store has no tables yet"):
        take_snapshot(EmptyStore(), tmp_path, "otel", 0)


def test_later_writes_do_not_change_a_snapshot(tmp_path: Path) -> None:
    growing = [
        write(tmp_path, name)
        for name in ("ledger/1.log", "ledger.head", "redelivery/2.log", f"{EPOCH}/0000000002.open")
    ]
    sealed = write(tmp_path, f"{EPOCH}/0000000001.native.lz4")
    take_snapshot(EmptyStore(), tmp_path, "otel", 0)
    before = linked(tmp_path)
    for path in growing:
        with path.open("ab") as file:
            file.write(b", and more")
    sealed.unlink()

    assert linked(tmp_path) == before == dict.fromkeys(before, b"spans")
    assert before.keys() == {path.relative_to(tmp_path).as_posix() for path in (*growing, sealed)}


def test_sealed_segment_is_linked_not_copied(tmp_path: Path) -> None:
    sealed = write(tmp_path, f"{EPOCH}/0000000001.native.lz4")

    take_snapshot(EmptyStore(), tmp_path, "otel", 0)

    assert (tmp_path / "snapshot" / EPOCH / sealed.name).samefile(sealed)


def test_drafts_and_files_of_other_purposes_are_left_out(tmp_path: Path) -> None:
    for name in ("ledger/.0000000002.log.tmp", "receiver.json", "session.key", "outcomes/1"):
        write(tmp_path, name)

    take_snapshot(EmptyStore(), tmp_path, "otel", 0)

    assert linked(tmp_path) == {}


def test_file_system_without_links_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = write(tmp_path, f"{EPOCH}/0000000001.native.lz4")

    def fail(_self: Disk, _source: Path, _target: Path) -> None:
        raise OSError

    monkeypatch.setattr(Disk, "link", fail)

    take_snapshot(EmptyStore(), tmp_path, "otel", 0)

    assert not (tmp_path / "snapshot" / EPOCH / sealed.name).samefile(sealed)
    assert linked(tmp_path) == {f"{EPOCH}/{sealed.name}": b"spans"}


def seal_after_each_listing(directory: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Seal the open segment, and begin the next, whenever its directory was listed."""
    names, seqs = Disk.names, iter(range(1, times + 1))

    def listed(self: Disk, path: Path) -> list[str]:
        result = names(self, path)
        if path == directory and (seq := next(seqs, 0)):
            (path / f"{seq:010}.open").rename(path / f"{seq:010}.native.lz4")
            write(path, f"{seq + 1:010}.open")
        return result

    monkeypatch.setattr(Disk, "names", listed)


def test_segment_that_is_sealed_meanwhile_is_in_the_snapshot_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, f"{EPOCH}/0000000001.open")
    seal_after_each_listing(tmp_path / EPOCH, monkeypatch, times=2)

    take_snapshot(EmptyStore(), tmp_path, "otel", 0)

    sealed = {f"{EPOCH}/000000000{seq}.native.lz4" for seq in (1, 2)}
    assert linked(tmp_path).keys() == {*sealed, f"{EPOCH}/0000000003.open"}


def test_directory_that_never_stays_the_same_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, f"{EPOCH}/0000000001.open")
    seal_after_each_listing(tmp_path / EPOCH, monkeypatch, times=snapshots.TRIES_MAX)

    with pytest.raises(DiskTrouble, match="the files of 'journal' change too fast to be linked"):
        take_snapshot(EmptyStore(), tmp_path, "otel", 0)


def test_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: Disk, _path: Path, _mode: int = 0) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Disk, "make_directory", fail)

    with pytest.raises(DiskTrouble, match="a snapshot cannot be taken: No space left on device"):
        take_snapshot(EmptyStore(), tmp_path, "otel", 0)
