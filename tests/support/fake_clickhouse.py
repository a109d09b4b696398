"""Test doubles for writer tests: segments made without the Rust core, a fake core, a store in memory."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from receiver.engine.cluster import ONE_SERVER
from receiver.engine.store import DayRows, Parameters, ReadOnlyConnection, RowLocation, RowSum, Version
from receiver.engine.unusable import OUTDATED_SORTING_KEY
from receiver.errors import StoreTrouble
from receiver.journal.segment_core import DayRun
from receiver.ledger.ledger import Ledger
from receiver.model import Heading, SegmentId
from receiver.redelivery.window import Window
from receiver.settings import Ledger as Limits
from receiver.settings import Redelivery

ROOT = Path(__file__).parents[2]
DAY_S = 86_400
NOW_S = int(datetime.now(UTC).timestamp()) // DAY_S * DAY_S - DAY_S // 2
TODAY = NOW_S // DAY_S


def schema_sources() -> list[tuple[str, str]]:
    """Return the schema statements of the repository: file name and text."""
    return [(path.name, path.read_text()) for path in sorted((ROOT / "schemas").glob("*.sql"))]


def development_sources() -> list[tuple[str, str]]:
    """Return the schema statements with the sorting key that the table had before the first release."""
    key = "ORDER BY (ProjectId, ServiceName, toStartOfFiveMinutes(Timestamp), TraceId)"
    sources = schema_sources()
    if key not in sources[1][1]:
        raise AssertionError("otel_traces has another sorting key")
    return [(name, text.replace(key, f"ORDER BY ({OUTDATED_SORTING_KEY})")) for name, text in sources]


def open_window(directory: Path) -> Window:
    """Open the deduplication window of a data directory, with the default limits."""
    return Window(directory / "redelivery", Redelivery(), time.monotonic)


def open_ledger(directory: Path) -> Ledger:
    """Open the ledger of a data directory, with the default limits."""
    return Ledger(directory / "ledger", Limits(), time.time, is_first=True)


@dataclass(frozen=True)
class FakeRecord:
    """Replacement for the core's record."""

    rows: int
    received_ms: tuple[int, int]
    answers: bytes = b"\x90"
    offset: int = 0


class AnyId(int):
    """Epoch or sequence number that equals any other: a JSON segment does not contain its id."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    __hash__ = int.__hash__


@dataclass(frozen=True)
class FakeScan:
    """Replacement for the core's scan result."""

    records: list[FakeRecord]
    damage: list[tuple[int, int, str]] = field(default_factory=list)
    sealed: bool = True
    epoch: int = AnyId()
    seq: int = AnyId()


class FakeCore:
    """Replacement for the core, for JSON segments: a list of records, each a list of the days of its rows."""

    cannot_rewrite = ""
    cannot_read_days = ""
    """Error message of `day_runs`; empty: it succeeds. `cannot_rewrite` is the same for `rewrite`."""
    scanned_id: SegmentId | None = None
    """Segment id that a scan reports."""

    def scan(self, segment: bytes, /) -> FakeScan:
        """See `Core`."""
        records = json.loads(segment)
        whole = [FakeRecord(len(days), (NOW_S * 1000, NOW_S * 1000)) for days in records if days != "rot"]
        damage = [(0, 1, "checksum disagrees") for days in records if days == "rot"]
        if self.scanned_id:
            return FakeScan(whole, damage, epoch=self.scanned_id.epoch, seq=self.scanned_id.seq)
        return FakeScan(whole, damage)

    def rewrite(
        self,
        segment: bytes,
        keep: Sequence[tuple[int, int]],
        codec: str,
        block_rows_max: int,
        _new_identity: tuple[int, int, bool] | None = None,
        /,
    ) -> bytes:
        """See `Core`."""
        assert codec in {"lz4", "zstd"}
        assert block_rows_max > 0
        if self.cannot_rewrite:
            raise ValueError(self.cannot_rewrite)
        rows = _rows(segment)
        return segment_of([day for first, end in keep for day in rows[first:end]])

    def day_runs(self, segment: bytes, _shards: int, /) -> list[DayRun]:
        """See `Core`."""
        if self.cannot_read_days:
            raise ValueError(self.cannot_read_days)
        return [(row, row + 1, day, 0) for row, day in enumerate(_rows(segment))]


def segment_of(*records: Sequence[int]) -> bytes:
    """Return a segment for `FakeCore`."""
    return json.dumps([list(days) for days in records]).encode()


def _rows(segment: bytes) -> list[int]:
    return [day for days in json.loads(segment) if days != "rot" for day in days]


@dataclass
class FakeFile:
    """Replacement for the journal's sealed segment file."""

    id: SegmentId
    path: Path
    codec: str = "lz4"
    replaced: int = 0

    @classmethod
    def make(cls, directory: Path, content: bytes, *, seq: int = 1) -> FakeFile:
        """Write a segment file."""
        path = directory / f"{seq:010d}.native.lz4"
        path.write_bytes(content)
        return cls(SegmentId(7, seq), path)

    @property
    def bytes(self) -> int:
        """See `SegmentFile`."""
        return self.path.stat().st_size

    def read(self) -> Any:  # noqa: ANN401 - `bytes` names the property here
        """See `SegmentFile`."""
        return self.path.read_bytes()

    def replace(self, content: Any) -> None:  # noqa: ANN401 - as above
        """See `SegmentFile`."""
        self.path.write_bytes(content)
        self.replaced += 1

    def unlink(self) -> None:
        """See `SegmentFile`."""
        self.path.unlink()


@dataclass
class FakeJournal:
    files: list[FakeFile]
    newer: Sequence[SegmentId] = ()

    def sealed(self) -> list[FakeFile]:
        """See `Journal`."""
        return [file for file in self.files if file.path.exists()]


class MemoryStore:
    """Store contract in memory: parts, deduplication tokens, and scripted faults.

    `script` lists the outcome of each INSERT in turn; `_insert_NAME` implements the outcome `NAME`.
    """

    embedded = True
    definition_version = None
    layout = ONE_SERVER
    receiver = "tests"

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.parts: list[tuple[SegmentId, str, int]] = []
        self.used_tokens: set[tuple[str, str]] = set()
        self.tokens: list[str] = []
        self.events: list[str] = []
        self.in_flight: list[str] = []
        self.polls_until_done = 0
        self.probe_refused = False
        self.poisonous_days: set[str] = set()
        self.rows_max: int | None = None
        self.partitions_max = 100
        self.refilled: list[tuple[SegmentId, str]] = []
        self.rows_of = _rows_in_file

    def version(self) -> Version:
        return Version(26, 9)

    def shards(self) -> int:
        return 0

    def create_database(self) -> None:
        """See `Store`."""

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        self.tokens.append(token)
        outcome = self.script.pop(0) if self.script else "ok"
        rows = self.rows_of(segment)
        if refusal := _too_many(rows, self.partitions_max) or self.refusal_of(segment):
            raise refusal
        getattr(self, f"_insert_{outcome.partition(':')[0]}")(outcome, rows, token, query_id)
        return sum(count for _, count in rows.values())

    def refusal_of(self, segment: Path) -> StoreTrouble | None:
        rows = self.rows_of(segment)
        if self.rows_max is not None and sum(count for _, count in rows.values()) > self.rows_max:
            return StoreTrouble("memory limit exceeded", code=241, name="MEMORY_LIMIT_EXCEEDED")
        if self.poisonous_days & rows.keys():
            return StoreTrouble("constraint is violated", code=469, name="VIOLATED_CONSTRAINT")
        return None

    def forget_trials(self) -> None:
        """See `Store`."""

    def _insert_ok(self, _outcome: str, rows: Rows, token: str, _query_id: str) -> None:
        for day, (segment, count) in rows.items():
            if (token, day) not in self.used_tokens:
                self.used_tokens.add((token, day))
                self.parts.append((segment, day, count))

    def _insert_error(self, outcome: str, _rows: Rows, _token: str, _query_id: str) -> None:
        code = outcome.partition(":")[2]
        name, _, text = code.partition(" ")
        raise StoreTrouble(text or "refused", code=int(name), name="REFUSED")

    def _insert_answer_lost(self, outcome: str, rows: Rows, token: str, query_id: str) -> None:
        """Apply the INSERT and raise as if the connection was lost before the answer."""
        self._insert_ok(outcome, rows, token, query_id)
        raise StoreTrouble("connection reset")

    def _insert_stored_but_refused(self, outcome: str, rows: Rows, token: str, query_id: str) -> None:
        """Apply the INSERT, then raise an error that means the rows were refused."""
        self._insert_ok(outcome, rows, token, query_id)
        raise StoreTrouble("cannot convert", code=70)

    def _insert_delayed(self, outcome: str, rows: Rows, token: str, query_id: str) -> None:
        """Time out, and apply the INSERT after the given number of calls of `running`."""
        self.in_flight.append(query_id)
        self.polls_until_done = int(outcome.partition(":")[2])
        self.delayed_insert = (rows, token)
        raise StoreTrouble("timed out")

    def _insert_tokens_without_rows(self, _outcome: str, rows: Rows, token: str, _query_id: str) -> None:
        """Simulate a server killed after it recorded the tokens but before it stored the rows."""
        self.used_tokens |= {(token, day) for day in rows}
        raise StoreTrouble("connection reset")

    def _insert_tokens_and_first_day(self, _outcome: str, rows: Rows, token: str, _query_id: str) -> None:
        """Simulate a server killed after it recorded the tokens of all days but stored only the first day."""
        self.used_tokens |= {(token, day) for day in rows}
        day, (segment, count) = next(iter(rows.items()))
        self.parts.append((segment, day, count))
        raise StoreTrouble("connection reset")

    def _insert_ok_without_rows(self, _outcome: str, _rows: Rows, _token: str, _query_id: str) -> None:
        """Answer OK without rows, as after a DELETE or DROP PARTITION."""

    def _insert_ok_and_truncated(self, _outcome: str, _rows: Rows, _token: str, _query_id: str) -> None:
        """Answer OK and drop all rows, as after a TRUNCATE."""
        self.parts.clear()

    def _insert_first_day(self, outcome: str, rows: Rows, token: str, _query_id: str) -> None:
        """Store only the first day and record its token. Lose the answer, or fail with the given code."""
        day = next(iter(rows))
        self._insert_ok("ok", {day: rows[day]}, token, "")
        raise StoreTrouble("connection reset", code=int(outcome.partition(":")[2] or 0) or None)

    def _insert_half_a_day(self, outcome: str, rows: Rows, token: str, query_id: str) -> None:
        """Store half of a day's rows, which no engine does. With a code, raise that error."""
        day, (segment, count) = next(iter(rows.items()))
        self.parts.append((segment, day, count // 2))
        if ":" in outcome:
            self._insert_error(outcome, rows, token, query_id)

    def _insert_applied_twice(self, outcome: str, rows: Rows, token: str, query_id: str) -> None:
        """Apply the INSERT twice, as if another client had sent it too."""
        self._insert_ok(outcome, rows, token, query_id)
        self._insert_ok(outcome, rows, f"{token} of another client", query_id)

    def counts(self, locations: Sequence[RowLocation]) -> dict[SegmentId, DayRows]:
        self.events.append("count")
        counts: dict[SegmentId, Counter[str]] = {}
        for segment, day, count in self.parts:
            if segment in {location.segment for location in locations}:
                counts.setdefault(segment, Counter())[day] += count
        return dict(counts)

    def rows_by_heading(self, location: RowLocation, parts_epoch: int | None = None) -> dict[Heading, RowSum]:
        """See `Store`. All rows are attributed to one drain, because their sender is not known here."""
        rows = sum(
            count
            for segment, _, count in self.parts
            if segment == location.segment or segment.epoch == parts_epoch
        )
        return {Heading("drain", "", NOW_S // 3_600): RowSum(rows)}

    def running(self, prefix: str) -> list[str]:
        query_ids = [query_id for query_id in self.in_flight if query_id.startswith(prefix)]
        if query_ids and not self.polls_until_done:
            self.in_flight.clear()
            self._insert_ok("ok", *self.delayed_insert, "")
            return []
        self.polls_until_done -= 1
        return query_ids

    def kill(self, prefix: str) -> None:
        self.events.append("kill")
        self.in_flight = [query_id for query_id in self.in_flight if not query_id.startswith(prefix)]

    def marked(self, mark: str, _filters: object = None) -> AbstractContextManager[None]:
        self.events.append(f"mark {mark}")
        return nullcontext()

    def cancel(self, mark: str) -> None:
        self.events.append(f"cancel {mark}")

    def refill_companion(self, location: RowLocation, days: Sequence[str]) -> None:
        """See `Store`."""
        if refusal := _too_many(days, self.partitions_max):
            raise refusal
        self.events.append(f"refill {location.segment.seq}")
        self.refilled += [(location.segment, day) for day in days]

    def probe(self) -> None:
        """See `Store`."""
        self.events.append("probe")
        if self.probe_refused:
            raise StoreTrouble("refused", code=53)

    def sync(self) -> None:
        """See `Store`."""
        self.events.append("sync")

    def inspect(self) -> None:
        """See `Store`."""
        self.events.append("inspect")

    def command(self, statement: str) -> None:
        """See `Store`."""
        raise AssertionError(statement)

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """See `Store`."""
        raise AssertionError(statement, parameters)

    def insert_lines(self, table: str, lines: bytes, *, token: str) -> None: ...

    def read_only(self, settings: Mapping[str, str]) -> AbstractContextManager[ReadOnlyConnection]:
        raise AssertionError(settings)

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """See `Store`."""
        raise AssertionError(statement, parameters)

    def arrow(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        raise AssertionError(statement, parameters)

    def parquet(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        raise AssertionError(statement, parameters)

    def close(self) -> None:
        """See `Store`."""


Rows = dict[str, tuple[SegmentId, int]]


def _too_many(days: Collection[str], days_max: int) -> StoreTrouble | None:
    return StoreTrouble("Too many partitions", code=252) if len(days) > days_max else None


def _rows_in_file(path: Path) -> Rows:
    """Return the rows of a `FakeCore` segment file, whose name contains the segment's number, or its id."""
    epoch, _, seq = path.name.partition(".")[0].rpartition("-")
    segment = SegmentId(int(epoch or "7", 16), int(seq))
    days = Counter(_rows(path.read_bytes())).items()
    return {datetime.fromtimestamp(day * DAY_S, UTC).strftime("%Y%m%d"): (segment, n) for day, n in days}
