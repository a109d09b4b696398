"""Common base of both stores: the SQL statements of the Store contract, and one client per thread.

Invariant: an INSERT is one atomic block, the same at every retry (`PINS`). The engine binds parameters.
"""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3.exceptions import HTTPError

from receiver.engine.advice import Login
from receiver.engine.columns import PROBE, ColumnCheck
from receiver.engine.driver_errors import trouble_of
from receiver.engine.driver_internals import quote_identifier, supported_settings
from receiver.engine.pieces import complete_arrow, complete_lines, complete_parquet, pieces_of
from receiver.engine.sql_text import Sql, compose, identifier
from receiver.engine.store import (
    NO_FILTERS,
    TABLE,
    TRIAL,
    Count,
    DayRows,
    Parameters,
    RowLocation,
    RowSum,
    Store,
    Version,
)
from receiver.errors import StoreTrouble
from receiver.model import Heading, SegmentId

PINS = {
    "min_insert_block_size_rows": "1000000000",
    "min_insert_block_size_bytes": "0",
    "max_insert_block_size": "1000000000",
    # Several threads would split the rows into blocks of varying content.
    "max_insert_threads": "1",
    # A success must mean that the rows are stored, not that they are queued.
    "async_insert": "0",
    "insert_deduplicate": "1",
    # A column that the table lacks must be an error, not lost values.
    "input_format_skip_unknown_fields": "0",
    # A retry must fill the companion table also if the main table skips its rows as duplicates.
    "deduplicate_blocks_in_dependent_materialized_views": "1",
}
"""Settings of every INSERT. Other block sizes would change the deduplication keys of a retry's blocks."""

NEWER_PINS = {
    "deduplicate_insert": "enable",
    # Otherwise a `Distributed` table reports success before the rows have reached the shards.
    "distributed_foreground_insert": "1",
    "exclude_materialize_skip_indexes_on_insert": "idx_span_attr_value, idx_resource_attr_value, "
    "idx_resource_value",
}
"""Further settings of every INSERT, for engines that support them. Merges build the excluded indexes."""

IDEMPOTENT_PINS = {
    "insert_deduplicate": "0",
    "deduplicate_insert": "disable",
    "deduplicate_insert_select": "disable",
    "distributed_foreground_insert": "1",
}
"""Settings of idempotent statements, which must run every time: without deduplication."""

NO_SETTINGS: Mapping[str, str] = {}
CODEC_OF = {".lz4": "lz4", ".zst": "zstd"}
"""Name of the compression in the engine and in HTTP, by the suffix of a segment's name."""

TRIAL_STALE_S = 3_600
"""Age from which on a trial table is stale. A trial takes as long as an INSERT, so its receiver has died."""


def counts_of(table: Sql) -> Sql:
    """Return the statement that counts rows of segments by day, as one array."""
    return compose(
        """
SELECT groupArray((SegmentEpoch, SegmentSeq, day, spans)) AS counts
FROM
(
    SELECT SegmentEpoch, SegmentSeq, _partition_id AS day, count() AS spans
    FROM {counted}
    WHERE SegmentSeq IN {seqs:Array(UInt64)} AND SegmentEpoch IN {epochs:Array(UInt64)}
      AND ReceivedAt BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                         AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    GROUP BY SegmentEpoch, SegmentSeq, day
)
""",
        counted=table,
    )


_COUNT = compose("{counts} SETTINGS max_threads = 1", counts=counts_of(identifier(TABLE)))


def headings_of(table: Sql) -> Sql:
    """Return the statement that sums up the rows of a segment by heading, as one array."""
    return compose(
        """
SELECT groupArray((Drain, ProjectId, hour, spans, checksum)) AS headings
FROM
(
    SELECT Drain, ProjectId, toUInt32(intDiv(toUnixTimestamp64Milli(ReceivedAt), 3600000)) AS hour,
           count() AS spans, {row_checksum} AS checksum
    FROM {summed}
    WHERE (SegmentSeq = {seq:UInt64} AND SegmentEpoch = {epoch:UInt64}
           OR SegmentEpoch IN {parts_epochs:Array(UInt64)})
      AND ReceivedAt BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                         AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    GROUP BY Drain, ProjectId, hour
)
""",
        summed=table,
    )


_ROWS_BY_HEADING = headings_of(identifier(TABLE))

REFILL = """
INSERT INTO {companion} (TraceId, Start, End)
SELECT TraceId, min(Timestamp), max(Timestamp)
FROM {of}
WHERE SegmentSeq = {seq:UInt64} AND SegmentEpoch = {epoch:UInt64}
  AND ReceivedAt BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                     AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
  AND _partition_id IN {days:Array(String)}
  AND TraceId != ''
GROUP BY TraceId
"""


_TRIAL_ENGINE = "ENGINE = MergeTree ORDER BY tuple()"
"""This engine evaluates everything that can refuse a row: constraints, defaults, indexes, projections.
Without TTL and partitions, even a trial of thousands of days creates one part."""
_TRIAL_SETTINGS = {"insert_deduplication_token": ""}

_LOCAL = r"""
WITH extractGroups(engine_full, '^Distributed\(\'[^\']*\', \'([^\']*)\', \'([^\']*)\'') AS place
SELECT database, name FROM system.tables
WHERE (database, name) IN
(
    SELECT place[1], place[2] FROM system.tables
    WHERE database = currentDatabase() AND name = {table:String} AND engine = 'Distributed'
)
"""
"""Returns the local table behind a `Distributed` table, which has the constraints and indexes."""

_STALE_TRIALS = """
SELECT name FROM system.tables
WHERE database = currentDatabase() AND startsWith(name, {all:String})
  AND (startsWith(name, {own:String}) OR metadata_modification_time < now() - {stale_s:UInt32})
"""


class SqlStore(Store, ABC):
    """Implementation of the Store contract on clickhouse-connect, for any of its interfaces."""

    embedded: bool
    _place = ""
    """Address of the server; empty for the embedded engine."""
    _login = Login()
    _marked_settings: ClassVar[Mapping[str, str]] = {}
    """Settings of every marked query."""
    _running_id: Sql
    """Column of `system.processes` that holds the query id of an INSERT."""

    def __init__(self, *, receiver: str) -> None:
        """`receiver`: letters and digits that identify this receiver among those that share the database."""
        self._trial = f"{TRIAL}{receiver}"
        # A client serves one statement at a time, so each thread has its own.
        self._per_thread = threading.local()
        # Protects the list only. A client is used by its thread alone.
        self._lock = threading.Lock()
        self._clients: list[Client] = []
        self._column_check = ColumnCheck(self)

    @abstractmethod
    def _open(self) -> Client:
        """Open a client for the calling thread."""

    @abstractmethod
    def _forget_client(self) -> None:
        """Discard the calling thread's client after an error, if the engine requires it."""

    @abstractmethod
    def _insert_file(self, table: str, segment: Path, query_id: str, settings: Mapping[str, str]) -> int:
        """Insert a segment file in one statement. Returns the number of rows that the engine read."""

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """Yield the calling thread's client. Every driver exception is raised as `StoreTrouble`."""
        try:
            if getattr(self._per_thread, "client", None) is None:
                self._per_thread.client = self._open()
                with self._lock:
                    self._clients.append(self._per_thread.client)
            yield self._per_thread.client
        except (ClickHouseError, HTTPError, OSError) as error:
            # The embedded engine may give rows of the failed statement to the next one.
            self._forget_client()
            raise trouble_of(error, self._place, self._login) from error

    def shards(self) -> int:
        return 0

    def version(self) -> Version:
        major, minor, *_ = str(self.rows("SELECT version()")[0][0]).split(".")
        return Version(int(major), int(minor))

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """See `Store`. Refuses to insert if the table's columns were altered."""
        self._column_check.run()
        return self._insert_file(TABLE, segment, query_id, {"insert_deduplication_token": token})

    def refusal_of(self, segment: Path) -> StoreTrouble | None:
        """See `Store`. The trial table is a plain MergeTree, which makes the same checks as any engine."""
        trial_table = f"{self._trial}_{secrets.token_hex(4)}"
        self.command(f"CREATE TABLE {trial_table} AS {self._table_of_rows()} {_TRIAL_ENGINE}")
        try:
            self._insert_file(trial_table, segment, f"trace-drain-{trial_table}", _TRIAL_SETTINGS)
        except StoreTrouble as refusal:
            # The refusal is the answer here. Errors of the other statements are raised.
            return refusal
        finally:
            # SYNC, because the files of a table that was dropped otherwise stay for minutes.
            self.command(f"DROP TABLE IF EXISTS {trial_table} SYNC")
        return None

    def _table_of_rows(self) -> str:
        """Return the local table that stores the rows; the table itself if this server has no other."""
        local = [
            f"{quote_identifier(str(database))}.{quote_identifier(str(name))}"
            for database, name in self.rows(_LOCAL, {"table": TABLE})
        ]
        return local[0] if local else TABLE

    def forget_trials(self) -> None:
        stale = self.rows(_STALE_TRIALS, {"all": TRIAL, "own": f"{self._trial}_", "stale_s": TRIAL_STALE_S})
        for (name,) in stale:
            self.command(f"DROP TABLE IF EXISTS {quote_identifier(str(name))} SYNC")

    def counts(self, locations: Sequence[RowLocation]) -> dict[SegmentId, DayRows]:
        if not locations:
            return {}
        parameters: Parameters = {
            "epochs": sorted({location.segment.epoch for location in locations}),
            "seqs": sorted({location.segment.seq for location in locations}),
            # One range for all segments: it lets the engine skip parts, and the numbers select the rows.
            "from_ms": min(location.received_ms[0] for location in locations),
            "to_ms": max(location.received_ms[1] for location in locations),
        }
        segments = {location.segment for location in locations}
        counts: dict[SegmentId, dict[str, int]] = {}
        for epoch, seq, day, rows in self._counted(parameters, locations):
            # The statement filters epochs and numbers separately, so it may return other combinations.
            if (segment := SegmentId(epoch, seq)) in segments:
                counts.setdefault(segment, {})[day] = rows
        return dict(counts)

    def _counted(self, parameters: Parameters, _: Sequence[RowLocation]) -> list[Count]:
        return self._rows_of_array(_COUNT, parameters)

    def rows_by_heading(self, location: RowLocation, parts_epoch: int | None = None) -> dict[Heading, RowSum]:
        parameters = {
            **_parameters_of(location),
            "parts_epochs": [] if parts_epoch is None else [parts_epoch],
        }
        groups = self._headings(parameters)
        return {Heading(drain, project, hour): RowSum(*rows) for drain, project, hour, *rows in groups}

    def _headings(self, parameters: Parameters) -> list[Any]:
        return self._rows_of_array(_ROWS_BY_HEADING, parameters)

    def running(self, prefix: str) -> list[str]:
        template = "SELECT groupArray({id}) FROM {processes} WHERE startsWith({id}, {prefix:String})"
        statement = compose(template, id=self._running_id, processes=self._processes())
        return [str(query_id) for query_id in self._rows_of_array(statement, {"prefix": prefix})]

    def _processes(self) -> Sql:
        return identifier("system.processes")

    def _rows_of_array(self, statement: str, parameters: Parameters) -> list[Any]:
        """Run a query that returns one array. Raises if the answer was truncated and lacks the array."""
        rows = self.rows(statement, parameters)
        if len(rows) != 1:
            cause = f"the store's answer has {len(rows)} rows; expected 1"
            raise StoreTrouble(cause, cause=cause)
        return list(rows[0][0])

    def kill(self, prefix: str) -> None:
        self.rows(
            f"KILL QUERY WHERE startsWith({self._running_id}, {{prefix:String}}) ASYNC", {"prefix": prefix}
        )

    def refill_companion(self, location: RowLocation, days: Sequence[str]) -> None:
        statement = compose(REFILL, of=self._all_rows())
        self._insert_select(statement, {**_parameters_of(location), "days": list(days)})

    def _all_rows(self) -> Sql:
        return identifier(TABLE)

    def probe(self) -> None:
        """See `Store`. The row is older than any retention, so it is deleted again."""
        self._column_check.run()
        self._insert_select(PROBE, None, self._space_settings())

    def _space_settings(self) -> dict[str, str]:
        """Return the settings of an INSERT of spans that keep disk space free for the journal."""
        return {}

    @contextmanager
    def marked(self, mark: str, filters: Mapping[str, str] = NO_FILTERS) -> Iterator[None]:
        filtered = {"additional_table_filters": _map_text(filters)} if filters else {}
        self._per_thread.settings = {**self._marked_settings, "log_comment": mark, **filtered}
        try:
            yield
        finally:
            self._per_thread.settings = {}

    def _mark_settings(self) -> dict[str, str]:
        return dict(getattr(self._per_thread, "settings", {}))

    def cancel(self, mark: str) -> None:
        self.rows("KILL QUERY WHERE Settings['log_comment'] = {mark:String} ASYNC", {"mark": mark})

    def command(self, statement: str) -> None:
        with self._client() as client:
            client.command(statement)

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        with self._client() as client:
            result = client.query(statement, parameters=_bound(parameters), settings=self._mark_settings())
            return [tuple(row) for row in result.result_rows]

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """See `Store`. A server may fail after its 200: the stream then ends with an error text."""
        yield from complete_lines(self._pieces(statement, parameters, "JSONEachRow"))

    def arrow(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """See `Store`. A failed statement ends the stream without the mark of its end."""
        yield from complete_arrow(self._pieces(statement, parameters, "ArrowStream"))

    def parquet(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """See `Store`. A failed statement ends the file without the mark of its end."""
        yield from complete_parquet(self._pieces(statement, parameters, "Parquet"))

    def _pieces(self, statement: str, parameters: Parameters | None, form: str) -> Iterator[bytes]:
        with self._client() as client:
            yield from pieces_of(client, statement, _bound(parameters), self._mark_settings(), form)

    def close(self) -> None:
        with self._lock:
            # A client belongs to the thread that opened it, but only the list knows all of them.
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()
        self._per_thread = threading.local()

    def _insert_select(
        self, statement: str, parameters: Parameters | None, settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        with self._client() as client:
            supported = supported_settings(client, IDEMPOTENT_PINS)
            client.query(statement, parameters=_bound(parameters), settings={**supported, **settings})


def pins(client: Client) -> dict[str, str]:
    """Return the pinned settings that this engine supports."""
    return PINS | supported_settings(client, NEWER_PINS)


def quoted_text(text: str) -> str:
    """Quote a trusted path, token or name as a SQL string, where the engine takes no parameter."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _map_text(items: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{quoted_text(key)}: {quoted_text(value)}' for key, value in items.items())}}}"


def _parameters_of(location: RowLocation) -> Parameters:
    """Return the query parameters that select a segment's rows."""
    return {
        "epoch": location.segment.epoch,
        "seq": location.segment.seq,
        "from_ms": location.received_ms[0],
        "to_ms": location.received_ms[1],
    }


def _bound(parameters: Parameters | None) -> dict[str, Any] | None:
    return dict(parameters) if isinstance(parameters, Mapping) else None
