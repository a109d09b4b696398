"""Snapshot: the data directory at one instant between two steps of the writer, as hard links.

    DATA/snapshot              the files at that instant; files that grow are copied
    DATA/store/shadow/backup   the parts of the tables at that instant, linked by the engine (FREEZE)
    DATA/backup.lock           held by the command that makes a backup

A kill of the receiver between two steps of the writer loses and doubles nothing, so a receiver that starts
with the files of a snapshot continues as after a kill: it counts the rows of the segments in the journal.

Invariant: while a snapshot is taken, the writer does not run and no dead letter is replayed or dropped.
Never: reads or copies a part, which would take too long; sealed segments are linked, too.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from receiver.backup.pool import copy_file
from receiver.durable.files import DISK, make_directories, remove_tree
from receiver.engine.retention import ROLLUP_TABLES
from receiver.engine.sql_text import compose, identifier
from receiver.engine.store import TABLE, TRIAL, Store
from receiver.errors import CommandFailed, DiskTrouble
from receiver.time_range import instant_text

DIRECTORY: Final = "snapshot"
OF_STORE: Final = (
    *("splits", "digest.key", "redelivery.begun", "redelivery"),
    *("ledger.head", "ledger", "ledger.lost", "store.lost", "deletion.json"),
)
"""Files and directories in DATA that belong to the state of the tables."""
SPANS: Final = ("dead", "aside", "journal")
"""Directories in DATA with spans that are not in the tables."""
RECORDS: Final = ("platform", "webhooks", "views.json")
"""Records in DATA that do not depend on the tables."""
TRIES_MAX: Final = 10
"""Attempts to link a directory whose files other processes rename and delete meanwhile."""
GROWING: Final = {".log", ".head", ".open"}
"""Suffixes of files that are appended to: a link would grow with the file."""

_TABLES: Final = compose("""
SELECT name, toString(uuid) FROM system.tables
WHERE database = currentDatabase() AND endsWith(engine, 'MergeTree')
  AND NOT has({rollups:Array(String)}, name) AND NOT startsWith(name, {trial:String})
""")
_DATABASE: Final = compose("SELECT toString(uuid) FROM system.databases WHERE name = currentDatabase()")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    taken_at: str
    database: str
    tables: dict[str, str]
    """Table → its directory in the store's directory. Without the rollups, which are derived again."""
    part_count: int

    @property
    def store_id(self) -> str:
        """Return the directory of the table of spans, whose name has the random id of the table."""
        return self.tables[TABLE]


def take_snapshot(store: Store, data_dir: Path, database: str, now_s: float) -> Snapshot:
    """Take a snapshot. Raises `StoreTrouble`, `DiskTrouble`, `CommandFailed`."""
    # Not replaced: a command may copy it, and deletes it under the lock of backups.
    if DISK.size_bytes(data_dir / DIRECTORY) is not None:
        raise DiskTrouble("a backup copies the last snapshot; expected it to end, or the next one to begin")
    try:
        delete_snapshot(data_dir)
        make_directories(data_dir / DIRECTORY)
        for name in (*SPANS, *OF_STORE, *RECORDS):
            _link(data_dir / name, data_dir / DIRECTORY / name)
        database_directory = _directory(store.rows(_DATABASE)[0][0])
        for name in (f"metadata/{database}.sql", database_directory):
            _link(data_dir / "store" / name, data_dir / DIRECTORY / "store" / name)
    except OSError as error:
        raise DiskTrouble(f"a snapshot cannot be taken: {error.strerror}") from error
    uuids = dict(store.rows(_TABLES, {"rollups": list(ROLLUP_TABLES), "trial": TRIAL}))
    if TABLE not in uuids:
        raise CommandFailed("the store has no tables yet; `trace-drain serve` or `schema apply` creates them")
    for name in uuids:
        store.command(compose("ALTER TABLE {frozen} FREEZE WITH NAME 'backup'", frozen=identifier(name)))
    return Snapshot(
        taken_at=instant_text(int(now_s), zone="Z"),
        database=database,
        tables={name: _directory(uuid) for name, uuid in uuids.items()},
        part_count=part_count(data_dir),
    )


def delete_snapshot(data_dir: Path) -> None:
    """Delete the snapshot, if there is one: until then, parts that were merged or expired use disk space."""
    # The parts first: parts of an older snapshot must not be there when the next one is taken.
    for path in (frozen_parts(data_dir), data_dir / DIRECTORY):
        if DISK.size_bytes(path) is not None:
            remove_tree(path)


def frozen_parts(data_dir: Path) -> Path:
    return data_dir / "store/shadow/backup"


def part_count(data_dir: Path) -> int:
    """Return the number of parts in the snapshot."""
    return sum(1 for _ in frozen_parts(data_dir).glob("store/*/*/*"))


def _directory(uuid: str) -> str:
    """Return the engine's directory of a table or a database."""
    return f"store/{uuid[:3]}/{uuid}"


def _link(source: Path, target: Path) -> None:
    """Link a file or a directory, if it exists. Intakes may rename or delete its files meanwhile."""
    if DISK.size_bytes(source) is None:
        return
    make_directories(target.parent)
    for _ in range(TRIES_MAX):
        with suppress(FileNotFoundError):
            _link_tree(source, target)
            return
        # A file was renamed after the directory was listed, so the links may lack a segment.
        if DISK.size_bytes(target) is not None:
            remove_tree(target)
    raise DiskTrouble(f"the files of '{source.name}' change too fast to be linked; try again")


def _link_tree(source: Path, target: Path) -> None:
    if source.is_dir():
        DISK.make_directory(target)
        for name in DISK.names(source):
            is_draft = name.startswith(".") and name.endswith(".tmp")
            if not is_draft:
                _link_tree(source / name, target / name)
        return
    if source.suffix not in GROWING:
        # A directory in DATA may be a mount point, and there are no links between file systems.
        with suppress(OSError):
            DISK.link(source, target)
            return
    copy_file(source, target)
