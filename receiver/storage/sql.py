"""What both engines understand alike: the statements of the Store contract, and one client per thread.

Keeps: one INSERT is one atomic block, at every try the same (`PINS`). Parameters are bound by the engine.
"""

from __future__ import annotations

import io
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.binding import quote_identifier
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3.exceptions import HTTPError

from receiver.errors import StoreTrouble
from receiver.model import Heading, SegmentId
from receiver.storage.advice import Login
from receiver.storage.store import (
    COMPANION,
    ROW_CHECKSUM,
    TABLE,
    TRIAL,
    DayRows,
    Held,
    Parameters,
    RowSum,
    Version,
)
from receiver.storage.trouble import trouble_of
from receiver.transcode import COLUMNS

PINS = {
    "min_insert_block_size_rows": "1000000000",
    "min_insert_block_size_bytes": "0",
    "max_insert_block_size": "1000000000",
    "max_insert_threads": "1",
    "async_insert": "0",
    "insert_deduplicate": "1",
    "input_format_skip_unknown_fields": "0",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
}
"""Settings of every INSERT. With other squash settings a retry's token would have another key."""

NEWER_PINS = {"deduplicate_insert": "enable", "distributed_foreground_insert": "1"}
"""The same, for engines that know them."""

ONCE_MORE = {
    "insert_deduplicate": "0",
    "deduplicate_insert": "disable",
    "deduplicate_insert_select": "disable",
}
"""For statements that are safe to repeat and must not be taken for a repetition."""

CODEC_OF = {".lz4": "lz4", ".zst": "zstd"}
"""Suffix of a segment's name → its compression, as the engine and HTTP both call it."""

TRIAL_STALE_S = 3_600
"""A clone this old belongs to a receiver that died: a trial takes as long as an INSERT."""

PIECE_BYTES = 1 << 18
"""Of a long answer, read at once."""

_COUNT = f"""
SELECT groupArray((SegmentEpoch, SegmentSeq, day, spans))
FROM
(
    SELECT SegmentEpoch, SegmentSeq, _partition_id AS day, count() AS spans
    FROM {TABLE}
    WHERE SegmentSeq IN {{seqs:Array(UInt64)}} AND SegmentEpoch IN {{epochs:Array(UInt64)}}
      AND ReceivedAt BETWEEN fromUnixTimestamp64Milli({{from_ms:Int64}}, 'UTC')
                         AND fromUnixTimestamp64Milli({{to_ms:Int64}}, 'UTC')
    GROUP BY SegmentEpoch, SegmentSeq, day
)
SETTINGS max_threads = 1
"""  # noqa: S608 - the table's name is a constant

_ROWS_BY_HEADING = f"""
SELECT groupArray((Drain, ProjectId, hour, spans, checksum))
FROM
(
    SELECT Drain, ProjectId, toUInt32(intDiv(toUnixTimestamp64Milli(ReceivedAt), 3600000)) AS hour,
           count() AS spans, {ROW_CHECKSUM} AS checksum
    FROM {TABLE}
    WHERE (SegmentSeq = {{seq:UInt64}} AND SegmentEpoch = {{epoch:UInt64}}
           OR SegmentEpoch IN {{parts_epochs:Array(UInt64)}})
      AND ReceivedAt BETWEEN fromUnixTimestamp64Milli({{from_ms:Int64}}, 'UTC')
                         AND fromUnixTimestamp64Milli({{to_ms:Int64}}, 'UTC')
    GROUP BY Drain, ProjectId, hour
)
"""  # noqa: S608 - as above

_REFILL = f"""
INSERT INTO {COMPANION} (TraceId, Start, End)
SELECT TraceId, min(Timestamp), max(Timestamp)
FROM {TABLE}
WHERE SegmentSeq = {{seq:UInt64}} AND SegmentEpoch = {{epoch:UInt64}}
  AND ReceivedAt BETWEEN fromUnixTimestamp64Milli({{from_ms:Int64}}, 'UTC')
                     AND fromUnixTimestamp64Milli({{to_ms:Int64}}, 'UTC')
  AND _partition_id IN {{days:Array(String)}}
  AND TraceId != ''
GROUP BY TraceId
"""  # noqa: S608 - as above

_PROBE = f"""
INSERT INTO {TABLE} ({", ".join(f"`{name}`" for name, _ in COLUMNS)})
SELECT
    toDateTime64('1970-01-01 00:00:00', 9, 'UTC'), repeat('f', 32), repeat('f', 16), '', 'k=v', 'probe',
    'Internal', 'trace-drain', map('key', 'value'), 'scope', 'v1', map('key', 'value'),
    toUInt64(1), 'Unset', 'text',
    [toDateTime64('1970-01-01 00:00:00', 9, 'UTC')], ['event'], [map('key', 'value')],
    [repeat('f', 32)], [repeat('f', 16)], ['k=v'], [map('key', 'value')],
    'project', 'deployment', 'trace-drain probe', toDateTime64('1970-01-01 00:00:00', 3, 'UTC'),
    toUInt64(0), toUInt64(0), toUInt32(1), toUInt32(1), toUInt32(1), toUInt32(1),
    map('key', 'value'), 'url', 'url', toFloat64(1), toUInt64(1), 'reason'
"""
"""A row with a value in every column, in the order of `COLUMNS`."""

_TRIAL_ENGINE = "ENGINE = MergeTree ORDER BY tuple()"
"""Computes what can refuse a row: constraints, defaults, indexes, projections. Nothing expires in it, and it
has one partition: a trial of thousands of days is one part."""
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
"""Which table of this server a `Distributed` one stands for: that one has the constraints and indexes."""

_STALE_TRIALS = """
SELECT name FROM system.tables
WHERE database = currentDatabase() AND startsWith(name, {all:String})
  AND (startsWith(name, {own:String}) OR metadata_modification_time < now() - {stale_s:UInt32})
"""


class SqlStore(ABC):
    """The Store contract over clickhouse-connect, whatever the interface."""

    embedded: bool
    _place = ""
    """Of the server; empty: in this process."""
    _login = Login()
    _running_id: str
    """Where `system.processes` holds the id that an INSERT was given."""

    def __init__(self, *, receiver: str) -> None:
        """`receiver`: letters and digits that name us among those who share the database."""
        self._trial = f"{TRIAL}{receiver}"
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._clients: list[Client] = []

    @abstractmethod
    def _open(self) -> Client:
        """Open a client for the calling thread."""

    @abstractmethod
    def _forget_client(self) -> None:
        """After an error: do what must be done with this thread's client."""

    @abstractmethod
    def _insert_file(self, table: str, segment: Path, query_id: str, settings: Mapping[str, str]) -> int:
        """Insert a segment file in one statement. The rows the engine read."""

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """Give the calling thread its client; turn whatever it raises into `StoreTrouble`."""
        try:
            if getattr(self._mine, "client", None) is None:
                self._mine.client = self._open()
                with self._lock:
                    self._clients.append(self._mine.client)
            yield self._mine.client
        except (ClickHouseError, HTTPError, OSError) as error:
            self._forget_client()
            raise trouble_of(error, self._place, self._login) from error

    def version(self) -> Version:
        """See `Store`."""
        major, minor, *_ = str(self.rows("SELECT version()")[0][0]).split(".")
        return Version(int(major), int(minor))

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """See `Store`."""
        return self._insert_file(TABLE, segment, query_id, {"insert_deduplication_token": token})

    def refusal_of(self, segment: Path) -> StoreTrouble | None:
        """See `Store`. Whatever engine the table has, the clone's is one that checks what any would."""
        clone = f"{self._trial}_{secrets.token_hex(4)}"
        self.command(f"CREATE TABLE {clone} AS {self._table_of_rows()} {_TRIAL_ENGINE}")
        try:
            self._insert_file(clone, segment, f"trace-drain-{clone}", _TRIAL_SETTINGS)
        except StoreTrouble as refusal:
            return refusal
        finally:
            self.command(f"DROP TABLE IF EXISTS {clone} SYNC")
        return None

    def _table_of_rows(self) -> str:
        """Name the table that takes our rows in the end, if there is one here."""
        local = [
            f"{quote_identifier(str(one))}.{quote_identifier(str(name))}"
            for one, name in self.rows(_LOCAL, {"table": TABLE})
        ]
        return local[0] if local else TABLE

    def forget_trials(self) -> None:
        """See `Store`."""
        stale = self.rows(_STALE_TRIALS, {"all": TRIAL, "own": f"{self._trial}_", "stale_s": TRIAL_STALE_S})
        for (name,) in stale:
            self.command(f"DROP TABLE IF EXISTS {quote_identifier(str(name))} SYNC")

    def counts(self, held: Sequence[Held]) -> dict[SegmentId, DayRows]:
        """See `Store`."""
        if not held:
            return {}
        parameters: Parameters = {
            "epochs": sorted({one.segment.epoch for one in held}),
            "seqs": sorted({one.segment.seq for one in held}),
            "from_ms": min(one.received_ms[0] for one in held),
            "to_ms": max(one.received_ms[1] for one in held),
        }
        wanted = {one.segment for one in held}
        found: dict[SegmentId, dict[str, int]] = {}
        for epoch, seq, day, rows in self._listed(_COUNT, parameters):
            if (segment := SegmentId(epoch, seq)) in wanted:
                found.setdefault(segment, {})[day] = rows
        return dict(found)

    def rows_by_heading(self, held: Held, parts_epoch: int | None = None) -> dict[Heading, RowSum]:
        """See `Store`."""
        parameters = {**_parameters_of(held), "parts_epochs": [] if parts_epoch is None else [parts_epoch]}
        found = self._listed(_ROWS_BY_HEADING, parameters)
        return {Heading(drain, project, hour): RowSum(*rows) for drain, project, hour, *rows in found}

    def running(self, prefix: str) -> list[str]:
        """See `Store`."""
        statement = (
            f"SELECT groupArray({self._running_id}) FROM system.processes "  # noqa: S608 - a constant of ours
            f"WHERE startsWith({self._running_id}, {{prefix:String}})"
        )
        return [str(query_id) for query_id in self._listed(statement, {"prefix": prefix})]

    def _listed(self, statement: str, parameters: Parameters) -> list[Any]:
        """Ask for one array. None at all is an answer cut short, which must not be taken for an empty one."""
        rows = self.rows(statement, parameters)
        if len(rows) != 1:
            raise StoreTrouble(f"the store's answer has {len(rows)} rows; expected 1")
        return list(rows[0][0])

    def kill(self, prefix: str) -> None:
        """See `Store`."""
        self.rows(
            f"KILL QUERY WHERE startsWith({self._running_id}, {{prefix:String}}) ASYNC", {"prefix": prefix}
        )

    def refill_companion(self, held: Held, days: Sequence[str]) -> None:
        """See `Store`."""
        self._insert_select(_REFILL, {**_parameters_of(held), "days": list(days)})

    def probe(self) -> None:
        """See `Store`. It is born expired, so it leaves no trace while there is a retention."""
        self._insert_select(_PROBE, None)

    def command(self, statement: str) -> None:
        """See `Store`."""
        with self._client() as client:
            client.command(statement)

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """See `Store`."""
        with self._client() as client:
            return [tuple(row) for row in client.query(statement, parameters=_bound(parameters)).result_rows]

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """See `Store`. A server may fail after its 200: then a line is no object but a text."""
        with self._client() as client:
            stream = client.raw_stream(statement, parameters=_bound(parameters), fmt="JSONEachRow")
            if not isinstance(stream, io.IOBase):
                raise TypeError(f"stream is a {type(stream).__name__}; expected an open file")
            with stream:
                yield from _whole_lines(iter(lambda: stream.read(PIECE_BYTES), b""))

    def close(self) -> None:
        """See `Store`."""
        with self._lock:
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()
        self._mine = threading.local()

    def _insert_select(self, statement: str, parameters: Parameters | None) -> None:
        with self._client() as client:
            settings = {name: value for name, value in ONCE_MORE.items() if name in client.server_settings}
            client.query(statement, parameters=_bound(parameters), settings=settings)


def pins(client: Client) -> dict[str, str]:
    """Choose the pins that this engine knows."""
    newer = {name: value for name, value in NEWER_PINS.items() if name in client.server_settings}
    return PINS | newer


def _parameters_of(held: Held) -> Parameters:
    """Name one segment to a statement."""
    return {
        "epoch": held.segment.epoch,
        "seq": held.segment.seq,
        "from_ms": held.received_ms[0],
        "to_ms": held.received_ms[1],
    }


def _bound(parameters: Parameters | None) -> dict[str, Any] | None:
    return dict(parameters) if isinstance(parameters, Mapping) else None


def _whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Cut pieces at line ends, and stop at what is no row."""
    rest = b""
    for piece in pieces:
        whole, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield _checked(whole + newline)
    if rest:
        raise StoreTrouble(_no_row(rest))


def _checked(lines: bytes) -> bytes:
    for line in lines.splitlines():
        if not line.startswith(b"{"):
            raise StoreTrouble(_no_row(line))
    return lines


def _no_row(line: bytes) -> str:
    return f"the store's answer broke off: {line[:200].decode(errors='replace')}"
