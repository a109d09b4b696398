"""What the writer and the queries need of a database: one contract, two engines, and one kind of trouble.

Keeps: whatever an engine or its driver raises arrives as `StoreTrouble`. Every call may raise it; that the
database is away is ordinary. Calls block, and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from receiver.errors import StoreTrouble
from receiver.model import Heading, SegmentId

TABLE = "otel_traces"
COMPANION = "otel_traces_trace_id_ts"
TRIAL = "trace_drain_trial_"
"""How the names of our empty clones begin."""

ROW_CHECKSUM = "sum(cityHash64(SegmentEpoch, SegmentSeq, Timestamp, TraceId, SpanId))"
"""Of any set of rows, in any order: a UInt64 that wraps. Rows that are exchanged for others change it."""

Parameters = Mapping[str, str | int | Sequence[int] | Sequence[str]]
"""Bound by the engine as `{name:Type}`; never put into the text of a statement."""

DayRows = Mapping[str, int]
"""Rows by day, the day spelled as the table's partition is: `20260131`."""


class Version(NamedTuple):
    """Of the engine: `26.9`."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class RowSum(NamedTuple):
    """How many rows there are, and their checksum: see `ROW_CHECKSUM`."""

    rows: int = 0
    checksum: int = 0


class Held(NamedTuple):
    """A segment, as its rows can be found in the table."""

    segment: SegmentId
    received_ms: tuple[int, int]
    """Earliest and latest ReceivedAt of its rows: prunes parts and granules."""


class Store(Protocol):
    """A database that holds `otel_traces`."""

    @property
    def embedded(self) -> bool:
        """The engine runs in this process, on this disk: what it syncs is ours to decide."""

    def version(self) -> Version:
        """Ask the engine how old it is. Also the cheapest sign of life."""

    def create_database(self) -> None:
        """Make the database that the tables will lie in, if it is not there."""

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """Insert a segment file in one statement. The rows the engine read, deduplicated ones too.

        Only a return is a plain OK: after any `StoreTrouble` the outcome is unknown.
        """

    def refusal_of(self, segment: Path) -> StoreTrouble | None:
        """What the table has against a segment file, found out on an empty clone; none: nothing.

        Raises when there can be no clone. None is left behind.
        """

    def forget_trials(self) -> None:
        """Drop the clones that a crash of ours, or long ago of anybody's, left behind."""

    def counts(self, held: Sequence[Held]) -> dict[SegmentId, DayRows]:
        """Count the rows of each segment by day, where the INSERT went. One without rows is left out."""

    def rows_by_heading(self, held: Held, parts_epoch: int | None = None) -> dict[Heading, RowSum]:
        """Sum up the rows of a segment, and of its parts, by drain, project and hour of receipt."""

    def running(self, prefix: str) -> list[str]:
        """Name the statements in flight whose query id begins so."""

    def kill(self, prefix: str) -> None:
        """Ask the engine to end them; it may take a while."""

    def refill_companion(self, held: Held, days: Sequence[str]) -> None:
        """Write the segment's traces of these days into the companion table once more. Idempotent."""

    def probe(self) -> None:
        """Insert a row of our own. Raises what the engine has against it: then no data is at fault."""

    def sync(self) -> None:
        """Return when what was inserted is on the store's disk."""

    def inspect(self) -> None:
        """Look for what the disk has damaged since. Raises what ends the process, if that can mend it."""

    def command(self, statement: str) -> None:
        """Run a statement that returns nothing."""

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """Ask something with a short answer."""

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """Ask something with a long answer: one JSON object a line, in pieces that end with a line."""

    def close(self) -> None:
        """End what still runs and let go of the engine."""
