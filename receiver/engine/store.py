"""Store contract: the database operations that the writer and the queries need, with two implementations.

Invariant: every error of an engine or its driver is raised as `StoreTrouble`. Every call may raise it,
because an unavailable database is an ordinary condition. Calls block, and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from receiver.engine import sql_text
from receiver.errors import StoreTrouble
from receiver.model import Heading, SegmentId

if TYPE_CHECKING:
    from receiver.engine.cluster import Layout

TABLE: Final = sql_text.TABLE
COMPANION: Final = sql_text.COMPANION
DEPLOYMENT_EVENTS: Final = sql_text.DEPLOYMENT_EVENTS
TRIAL = "trace_drain_trial_"
"""Prefix of the names of trial tables: empty copies of the table, for trial inserts."""

RESTORE = "restore"
"""Directory beside the embedded store that has the store while a backup is restored."""

Parameters = sql_text.Parameters

NO_FILTERS: Mapping[str, str] = {}

Count = tuple[int, int, str, int]
"""Epoch and sequence number of a segment, day and rows."""
DayRows = Mapping[str, int]
"""Row count by day; the day is written like the table's partition: `20260131`, on shard 2 of a cluster
`2/20260131`."""


class Version(NamedTuple):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class RowSum(NamedTuple):
    """Row count and checksum of a set of rows: see `sql_text.ROW_CHECKSUM`."""

    rows: int = 0
    checksum: int = 0


class RowLocation(NamedTuple):
    """Location of a segment's rows in the table: its identity and the range of their receive times."""

    segment: SegmentId
    received_ms: tuple[int, int]
    """Earliest and latest ReceivedAt of its rows, so that queries skip other parts and granules."""
    rows: int = 0
    """Number of rows that are expected; 0: unknown."""


class ReadOnlyConnection(Protocol):
    """A connection for untrusted statements. After an error it must not be used again."""

    def rows(
        self, statement: str, parameters: Parameters | None = None, texts: Mapping[str, str] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a query with a short answer. `texts`: instead of parameters, see `pieces`."""

    def lines(self, statement: str) -> Iterator[bytes]:
        """Run a query with a long answer: see `Store.lines`."""

    def parquet(self, statement: str) -> Iterator[bytes]:
        """Run a query whose answer is a Parquet file: see `Store.parquet`."""

    def whole(self, statement: str, form: str, texts: Mapping[str, str]) -> bytes:
        """Run a query with a short answer in a format of the engine. See `pieces`."""

    def pieces(self, statement: str, form: str, texts: Mapping[str, str]) -> Iterator[bytes]:
        """Run a query with a long answer in a format of the engine, like `CSV`. It may end early.

        `texts`: a value for each placeholder of the statement, escaped as the engine reads them.
        """


class Store(Protocol):
    """A database that holds `otel_traces`."""

    @property
    def embedded(self) -> bool:
        """Whether the engine runs in this process, so that the receiver controls what it syncs."""

    @property
    def definition_version(self) -> int | None:
        """Number that changes after each command that may define a table otherwise.

        `None` if other clients can change the tables.
        """

    @property
    def receiver(self) -> str:
        """Name that differs between the receivers of a server, also after a restart the same."""

    @property
    def layout(self) -> Layout:
        """Where the tables are."""

    def version(self) -> Version:
        """Return the version of the engine. Also the cheapest liveness check."""

    def shards(self) -> int:
        """Return the number of shards over which the cluster divides rows now; 0 without a cluster."""

    def create_database(self) -> None:
        """Create the database for the tables, unless it exists."""

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """Insert a segment file in one statement. Returns the rows that the engine read, duplicates included.

        After any `StoreTrouble` the outcome of the INSERT is unknown.
        """

    def insert_lines(self, table: str, lines: bytes, *, token: str) -> None:
        """Insert rows, one JSON object a line, into a table of the receiver in one statement.

        After any `StoreTrouble` the outcome of the INSERT is unknown.
        """

    def refusal_of(self, segment: Path) -> StoreTrouble | None:
        """Return the error that the table raises for a segment file; `None` if it accepts the file.

        The file is inserted into an empty copy of the table, which is then dropped. Raises if that fails.
        """

    def forget_trials(self) -> None:
        """Drop the trial tables that a crash of this receiver left, and stale tables of other receivers."""

    def counts(self, locations: Sequence[RowLocation]) -> dict[SegmentId, DayRows]:
        """Count the rows of each segment by day. Segments without rows are omitted."""

    def rows_by_heading(self, location: RowLocation, parts_epoch: int | None = None) -> dict[Heading, RowSum]:
        """Count the rows of a segment and of its parts by drain, project and hour of receipt."""

    def running(self, prefix: str) -> list[str]:
        """Return the query ids of the running statements whose query id begins with `prefix`."""

    def kill(self, prefix: str) -> None:
        """Ask the engine to cancel these statements, without waiting for it."""

    def refill_companion(self, location: RowLocation, days: Sequence[str]) -> None:
        """Write the segment's traces of these days into the companion table again. Idempotent."""

    def probe(self) -> None:
        """Insert a valid test row. If this raises, the fault is not in the data of a segment."""

    def sync(self) -> None:
        """Wait until inserted rows are on the store's disk."""

    def inspect(self) -> None:
        """Check for disk damage since the last call. Raises if a restart of the process can repair it."""

    def command(self, statement: str) -> None:
        """Run a statement that returns nothing."""

    def marked(self, mark: str, filters: Mapping[str, str] = NO_FILTERS) -> AbstractContextManager[None]:
        """Mark the queries that this thread runs in the block, for `cancel`.

        `filters`: table → condition on the rows that these queries read of it, in SQL, wherever they name it.
        """

    def cancel(self, mark: str) -> None:
        """Ask the engine to cancel the queries with this mark, without waiting for it."""

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """Run a query with a short answer."""

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """Run a query with a long answer: one JSON object per line, in pieces that end with a line."""

    def arrow(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """Run a query with a long answer: an Arrow stream. Raises if its end is missing."""

    def parquet(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """Run a query whose answer is a Parquet file. Raises at the end of an incomplete file."""

    def read_only(self, settings: Mapping[str, str]) -> AbstractContextManager[ReadOnlyConnection]:
        """Open a connection with these settings on which no statement can change data or settings."""

    def close(self) -> None:
        """Cancel running statements and close the engine."""
