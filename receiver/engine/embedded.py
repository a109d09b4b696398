"""Embedded store: chDB in this process, with its data on the local disk. No port, no users, one owner.

This module works around three defects of chDB:

    it ignores errors of `write()`                  an event counter shows them; the new parts are checked
                                                    before the INSERT counts as done
    after a failed statement, the next statement    a client that raised an exception is never used again
    on the same client may return its rows
    `close` blocks behind a running statement       running statements are killed first
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import clickhouse_connect
import structlog
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from receiver.durable.files import (
    DISK,
    make_directories,
    opened,
    remove_tree,
    unlink_if_exists,
    write_durably,
)
from receiver.engine.cluster import ONE_SERVER
from receiver.engine.driver_errors import trouble_of
from receiver.engine.driver_internals import quote_identifier
from receiver.engine.pieces import ReadOnlyClient
from receiver.engine.sql import CODEC_OF, SqlStore, pins, quoted_text
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import RESTORE, RowLocation
from receiver.errors import OperatorError, StoreTrouble
from receiver.sizes import size_text

_WRITE_FAILURES = (
    "SELECT sum(value) FROM system.events WHERE event = 'WriteBufferFromFileDescriptorWriteFailed'"
)
_YOUNG_PARTS = compose("""
SELECT table, name, min_block_number < max_block_number AS is_merged FROM system.parts
WHERE database = currentDatabase() AND table IN ('{table}', '{companion}', '{deployment_events}')
  AND active AND modification_time > now() - INTERVAL 1 HOUR
""")

MARKED_QUERY_THREADS = max(1, len(os.sched_getaffinity(0)) // 2)
"""Threads of an operator's query. The other cores are left to the intakes and to INSERTs."""
PRIVATE_UMASK = 0o077
"""The engine creates files at any time from its own threads; only the umask limits their permissions."""


class EngineDamaged(OperatorError):  # noqa: N818 - a verdict, as its base
    """A merge wrote an unreadable part. After a restart the engine uses the source parts of the merge."""

    exit_code: ClassVar[int] = 1


class EmbeddedStore(SqlStore):
    """Store in chDB in the data directory."""

    embedded = True
    layout = ONE_SERVER
    receiver = "embedded"
    _marked_settings: ClassVar[Mapping[str, str]] = {"max_threads": str(MARKED_QUERY_THREADS)}
    _running_id = Sql("Settings['log_comment']")

    def __init__(
        self,
        path: Path,
        *,
        database: str,
        memory_bytes_max: int,
        disk_free_min: Callable[[], int],
        disk_floor_bytes: int = 0,
    ) -> None:
        """Open the engine, which stays open until `close`.

        `disk_free_min`: free space that an INSERT requires. `disk_floor_bytes`: free space that creating the
        store requires.
        """
        # A constant is enough: no other receiver can open this database.
        super().__init__(receiver="embedded")
        # The umask belongs to the whole process, which is acceptable: no file of the store process is public.
        os.umask(PRIVATE_UMASK)
        self._path = path
        self._database = database
        self._options = {"max_server_memory_usage": str(memory_bytes_max)}
        self._disk_free_min = disk_free_min
        self._bootstrap = Bootstrap(path)
        self._commands = 0
        # Before the engine opens the directory, in which it then holds files open.
        self._bootstrap.begin(disk_free_min=disk_floor_bytes)
        try:
            # This client keeps the engine open while threads replace their own clients. The database may not
            # exist yet.
            self._anchor = self._connect(None)
            self.create_database()
        except ClickHouseError as error:
            raise OperatorError(
                f"embedded store at '{path}' does not open: {error}; expected a directory of this engine "
                "that no other process has open"
            ) from error
        # The baseline: later increases of this counter reveal writes that the engine did not report.
        self._write_failures = self._count_write_failures()

    @property
    def definition_version(self) -> int | None:
        """See `Store`. Only commands define tables, and no other process has the directory open."""
        return self._commands

    def command(self, statement: str) -> None:
        try:
            super().command(statement)
        finally:
            # After the command, because until then another thread may read the earlier definition.
            with self._lock:
                self._commands += 1

    def _connect(self, database: str | None) -> Client:
        return clickhouse_connect.get_client(
            interface="chdb", path=str(self._path), database=database, chdb_options=self._options
        )

    def _open(self) -> Client:
        client = self._connect(self._database)
        # Set for the client, because the statement of an INSERT adds only what differs between INSERTs.
        for name, value in pins(client).items():
            client.set_client_setting(name, value)
        return client

    @contextmanager
    def read_only(self, settings: Mapping[str, str]) -> Iterator[ReadOnlyClient]:
        """See `Store`. Opens a client of its own, because `readonly` cannot be reset."""
        try:
            with closing(self._connect(self._database)) as client:
                # `readonly` last: from then on no setting can change.
                for name, value in {**settings, **self._mark_settings(), "readonly": "1"}.items():
                    client.set_client_setting(name, value)
                yield ReadOnlyClient(client)
        except ClickHouseError as error:
            raise trouble_of(error) from error

    def _forget_client(self) -> None:
        """Close the client: after an exception it may return rows of the failed statement."""
        client, self._per_thread.client = getattr(self._per_thread, "client", None), None
        if client is not None:
            with self._lock:
                # `close` may have emptied the list in another thread.
                if client in self._clients:
                    self._clients.remove(client)
            client.close()

    def create_database(self) -> None:
        self._anchor.command(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(self._database)}")

    def _insert_file(self, table: str, segment: Path, query_id: str, settings: Mapping[str, str]) -> int:
        settings_sql = _settings_text({**settings, "log_comment": query_id})
        with segment.open("rb") as file:
            return self._insert_from(table, file.fileno(), CODEC_OF[segment.suffix], settings_sql, "Native")

    def insert_lines(self, table: str, lines: bytes, *, token: str) -> None:
        """See `Store`. The lines are in memory only, in a file without a name."""
        settings_sql = _settings_text({"insert_deduplication_token": token})
        with os.fdopen(os.memfd_create("lines"), "r+b") as file:
            file.write(lines)
            file.flush()
            self._insert_from(table, file.fileno(), "none", settings_sql, "JSONEachRow")

    def _insert_from(self, table: str, fd: int, compression: str, settings_sql: str, form: str) -> int:
        """Insert a file. The engine reads it itself, inserts every row, and returns how many it read.

        The statement names a file descriptor, because the engine expands patterns (`*`, `{a,b}`) in a path.
        """
        # Before the first row: a store that holds rows is never created again.
        self._end_bootstrap()
        failures_before = self._write_failures
        with self._client() as client:
            statement = (
                f"INSERT INTO {table} FROM INFILE '/proc/self/fd/{fd}' COMPRESSION '{compression}' "
                f"SETTINGS {settings_sql}, {_settings_text(self._space_settings())} FORMAT {form}"
            )
            # The engine returns OK even if writes failed, so the caller's count is not enough: see
            # `_check_written`.
            summary = client.query(statement).summary
        self._check_written(failures_before)
        return int(summary["read_rows"])

    def _space_settings(self) -> dict[str, str]:
        """See `SqlStore`. The probe row has them, too: while the engine may write nothing, it is refused."""
        return {"min_free_disk_bytes_to_perform_insert": str(self._disk_free_min())}

    def _end_bootstrap(self) -> None:
        """Before the first INSERT, check that the tables are on the disk. Raises `EngineDamaged` if not."""
        if not self._bootstrap.is_under_way:
            return
        # Before the check, so that it sees what has reached the disk.
        self.sync()
        if self._count_write_failures() or not self._bootstrap.end():
            raise EngineDamaged(
                "disk writes failed while the embedded store was created; a restart creates it again"
            )

    def refill_companion(self, location: RowLocation, days: Sequence[str]) -> None:
        """See `Store`. Checks the new parts, because the engine does not report failed writes."""
        failures_before = self._write_failures
        super().refill_companion(location, days)
        self._check_written(failures_before)

    def sync(self) -> None:
        """See `Store`. The tables sync their own parts; this also syncs the engine's metadata."""
        try:
            DISK.sync_file_system(self._path)
        except OSError as error:
            raise StoreTrouble(f"syncfs of the store's directory failed: errno {error.errno}") from error

    def close(self) -> None:
        # `close` would wait for running statements, which may take a minute.
        self._anchor.query("KILL QUERY WHERE query_id != queryID() ASYNC")
        super().close()
        self._anchor.close()

    def _count_write_failures(self) -> int:
        return int(self.rows(_WRITE_FAILURES)[0][0])

    def inspect(self) -> None:
        """See `Store`. No INSERT is running now, so an unreadable part comes from a merge."""
        failures = self._count_write_failures()
        if failures != self._write_failures and (broken := self._broken_parts()):
            raise self._damaged(broken)
        self._write_failures = failures

    def _check_written(self, failures_before: int) -> None:
        """Detach the parts that an unreported write error made unreadable, and raise if there were any.

        `failures_before`: the counter when the statement began. It is passed in because a trial insert in
        another thread may have updated `self._write_failures` before this statement's parts existed.
        """
        failures = self._count_write_failures()
        # The usual case costs one query of a counter; parts are read only after a failure.
        if failures == failures_before:
            return
        broken = self._broken_parts()
        # Detaching a merged part would remove rows that were counted long ago; a restart finds its sources.
        if any(is_merged for _, _, is_merged in broken):
            raise self._damaged(broken)
        for table, name, _ in broken:
            structlog.get_logger().error("part is unreadable after a disk error", table=table, part=name)
            # Detached, not dropped, so that an operator can still inspect the part. The writer sends the rows
            # again.
            self.command(f"ALTER TABLE {table} DETACH PART {quoted_text(name)}")
        self._write_failures = failures
        if broken:
            raise StoreTrouble("disk writes of this INSERT failed; its parts were detached", code=75)

    def _broken_parts(self) -> list[tuple[str, str, bool]]:
        young = [(str(table), str(name), bool(merged)) for table, name, merged in self.rows(_YOUNG_PARTS)]
        return [part for part in young if not self._is_readable(part[0], part[1])]

    def _damaged(self, broken: list[tuple[str, str, bool]]) -> EngineDamaged:
        names = ", ".join(f"'{name}' of '{table}'" for table, name, _ in broken)
        return EngineDamaged(
            f"disk writes failed and left unreadable parts: {names}; "
            "a restart of the engine falls back to the parts that they were merged from"
        )

    def _is_readable(self, table: str, part: str) -> bool:
        try:
            results = self.rows(
                f"CHECK TABLE {table} PART {quoted_text(part)} SETTINGS check_query_single_value_result = 1"
            )
        # Some damage makes the check itself fail.
        except StoreTrouble:
            return False
        return all(bool(row[0]) for row in results)


def _settings_text(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {quoted_text(value)}" for name, value in settings.items())


_PART_NAME = re.compile(r"\d{8}_\d+_\d+_\d+")


class Bootstrap:
    """Creation of the store at one path: it is completed, or repeated from the beginning.

    DATA/store.creating is a marker file: it exists from before the store's first file is written until the
    tables are known to be on the disk, just before the first INSERT. A start that finds it recreates the
    store.

    The engine ignores failed writes. On a full disk it therefore creates a store whose tables it cannot open
    again. Such a store never held a row.

    Invariant: a store without the marker, or with a part of a day in it, is never removed, even if it is
    damaged. No row is inserted while the marker exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marker = path.with_name(f"{path.name}.creating")

    @property
    def is_under_way(self) -> bool:
        """Whether the creation has not finished: the tables may not be on disk yet."""
        return self._marker.exists()

    def begin(self, *, disk_free_min: int) -> None:
        """Create an empty directory and the marker, unless a complete store exists.

        Raises `OperatorError` if less than `disk_free_min` bytes are free.
        """
        if self._path.exists() and not self.is_under_way:
            return
        if self._path.with_name(RESTORE).exists():
            raise OperatorError(
                f"a restore into '{self._path.parent}' was interrupted; expected `trace-drain store restore` "
                f"again, or that you delete '{self._path.with_name(RESTORE)}'"
            )
        make_directories(self._path.parent)
        free_bytes = DISK.free_bytes(self._path.parent)
        # Before the marker, so that a start on a full disk leaves nothing behind.
        if free_bytes < disk_free_min:
            raise OperatorError(
                f"embedded store is not created: '{self._path.parent}' has {size_text(free_bytes)} free; "
                f"expected {size_text(disk_free_min)} (journal.disk_free_min)"
            )
        # Durable before the first file of the store, or a crash could leave half a store without a marker.
        write_durably(self._marker, b"")
        # A marker alone is not trusted: it may be left over, or belong to a process that is creating the
        # store.
        if not self._is_open_elsewhere() and not self._holds_rows():
            with suppress(OSError):
                remove_tree(self._path)
        make_directories(self._path)

    def end(self) -> bool:
        """Remove the marker, so that rows may be inserted.

        Returns False if a table definition did not reach the disk: the store must be recreated.
        """
        # A failed write leaves an empty definition, and the engine reports success.
        if any(not path.stat().st_size for path in self._files() if path.suffix == ".sql"):
            return False
        unlink_if_exists(self._marker)
        # Durable before the first row: after a power failure, no marker may exist beside rows.
        DISK.sync_directory(self._marker.parent)
        return True

    def _holds_rows(self) -> bool:
        """Return whether the store holds rows: then it is never removed, even if the marker exists."""
        return any(_PART_NAME.fullmatch(Path(root).name) for root, _, _ in os.walk(self._path))

    def _files(self) -> Iterator[Path]:
        """List every file of the store. Directories may disappear while the engine merges."""
        for root, _, names in os.walk(self._path):
            yield from (Path(root, name) for name in names)

    def _is_open_elsewhere(self) -> bool:
        """Return whether another process has the store open: the engine holds a lock on its `status` file."""
        try:
            with opened(DISK, self._path / "status") as fd:
                return not DISK.lock(fd)
        except FileNotFoundError:
            return False
