"""Copy of the spans from one store to another, by hour of their start, while the writer may store more.

    read the source ──▶ list the journal ──▶ read the target ──▶ copy what it lacks ──▶ read both again

The unit is the rows of one segment that begin in one hour, and on a cluster those of one shard. They are sent
in one INSERT, which one partition stores completely or not at all. The rows that are compared are the only
state, so a move that was killed is continued by another one.

Invariant: a segment is copied only if it was not in the journal after its rows were read. Its rows were then
    counted, and no writer inserts any of them again, into either store.
Invariant: after an INSERT whose outcome is unknown, the rows are counted before anything is sent, and not
    before that INSERT has ended. Its token is never trusted alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from secrets import token_hex
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple

from msgspec.structs import replace

from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.copying import (
    DAY_HOURS,
    HOUR_S,
    Piece,
    Pieces,
    Read,
    complete_companion,
    delete_segments,
)
from receiver.engine.store import DEPLOYMENT_EVENTS, TABLE, RowSum
from receiver.errors import CommandFailed, StoreTrouble
from receiver.move.ends import MoveSource, Row, UnfinishedSegments, lines_of, pieces_in
from receiver.sizes import counted, duration_text
from receiver.time_range import instant_text

CHUNK_ROWS_MAX = 100_000
"""Rows of an INSERT, unless a single segment has more. They are sorted in the memory of a query."""
CHUNK_SEGMENTS_MAX = 1_000
BODY_BYTES_MAX = 256 << 20
"""Size above which a body of several segments is sent in two."""
BODY_MEMORY_BYTES_MAX = 16 << 20
"""Part of a body that is kept in memory; the rest goes to a temporary file."""
RETRY_DELAYS_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
TOKENS_MAX = 3
"""Tokens of equal rows that are tried in order, before one that was never used."""
PROGRESS_S = 10.0
"""Time between two lines of progress within a day."""
STOP_S = 120.0
"""Time that the target has to cancel an INSERT."""
STOP_POLL_S = 0.5
EXPIRY_MARGIN_S = HOUR_S
"""Rows that expire sooner are not copied: they could be gone before they are compared."""


class Moved(NamedTuple):
    """Spans by the result of a move."""

    copied: int
    equal: int
    """Spans of the source that the target has, copied ones included."""
    unfinished: int
    """Spans of the source whose segments are in the journal."""


@dataclass(slots=True)
class Mover:
    """One move."""

    source: MoveSource
    target: ClickHouseStore
    unfinished: Callable[[], UnfinishedSegments]
    name: str
    """Prefix of the query ids of this receiver's moves."""
    report: Callable[[str], object]
    retention_days: int = 0
    """Of the target; 0: spans do not expire."""
    event_retention_days: int = 0
    sleep: Callable[[float], None] = time.sleep
    now_s: Callable[[], float] = time.time
    _copied: int = field(default=0, init=False)
    _equal: int = field(default=0, init=False)
    _unfinished: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)
    """Spans that the source had at the beginning."""
    _began_s: float = field(default_factory=time.monotonic, init=False)
    _reported_s: float = field(default_factory=time.monotonic, init=False)

    def run(self) -> Moved:
        """Copy what the target lacks, oldest day first. Raises `CommandFailed` or `StoreTrouble`."""
        # An earlier move may have been killed during an INSERT.
        self._wait_for_inserts()
        days = self.source.lines(Read("days"))
        self._total = sum(day["spans"] for day in days)
        for number, day in enumerate(days, start=1):
            first_hour = int(midnight_of(day["day"]).timestamp()) // HOUR_S
            hours = [row["hour"] for row in self.source.lines(Read("hours", first_hour))]
            name = f"{midnight_of(day['day']):%Y-%m-%d} (day {number} of {len(days)})"
            for hour in hours:
                if not self._expires(hour, self.retention_days):
                    self._until_equal(_hour_text(hour), partial(self._compare_and_copy, hour))
                self._report_progress(name, is_day_done=hour == hours[-1])
        self._until_equal("deployment events", self._move_events)
        return Moved(self._copied, self._equal, self._unfinished)

    def _report_progress(self, day: str, *, is_day_done: bool) -> None:
        now_s, done = time.monotonic(), self._equal + self._unfinished
        if is_day_done or now_s - self._reported_s > PROGRESS_S:
            self._reported_s = now_s
            speed = max(1, done) / max(now_s - self._began_s, 1e-3)
            left_s = (self._total - done) / speed
            rest = f", about {duration_text(left_s * 1e9)} left" if left_s > 0 else ""
            total = counted(self._total, "span")
            self.report(f"{day}: {done:,} of {total}, {speed:,.0f} spans/s{rest}")

    def _expires(self, hour: int, retention_days: int) -> bool:
        oldest_s = self.now_s() - retention_days * DAY_HOURS * HOUR_S + EXPIRY_MARGIN_S
        return bool(retention_days) and hour * HOUR_S < oldest_s

    def _until_equal(self, what: str, step: Callable[[int], bool]) -> None:
        """Call a step until it returns that nothing is missing. `step`: gets the number of earlier calls."""
        ok = 0
        for delay_s in (*RETRY_DELAYS_S, 0.0):
            try:
                if step(ok):
                    return
                ok += 1
            except StoreTrouble as trouble:
                if not delay_s:
                    raise
                self.report(f"{what}: {trouble.label}; counting again in {delay_s:.0f} s")
                self.sleep(delay_s)
                self._wait_for_inserts()
        raise CommandFailed(f"{what}: the target lacks rows after {counted(ok, 'INSERT')} that returned OK")

    def _wait_for_inserts(self) -> None:
        """Cancel the INSERTs of this receiver's moves, and wait until they have ended."""
        for _ in range(int(STOP_S / STOP_POLL_S)):
            if not self.target.running(self.name):
                return
            self.target.kill(self.name)
            self.sleep(STOP_POLL_S)
        raise CommandFailed(
            f"an INSERT of an earlier move still runs on the target after {STOP_S:.0f} s; expected "
            f"KILL QUERY WHERE startsWith(query_id, '{self.name}') to end it"
        )

    def _compare_and_copy(self, hour: int, ok: int) -> bool:
        """Copy what the target lacks of an hour. Returns whether it lacked nothing."""
        shards = self.target.shards()
        read = Read("segments", hour, shards=shards or 1)
        wanted = pieces_in(self.source.lines(read))
        if not wanted:
            return True
        # After the rows were read: a segment that is gone from the journal is complete in them.
        unfinished = self.unfinished()
        final = {piece: rows for piece, rows in wanted.items() if not unfinished.holds(piece.segment)}
        stored = self.target.pieces(read)
        lacking = lacking_pieces(final, stored, hour)
        if not lacking:
            complete_companion(self.target, hour)
            self._equal += _row_count(final)
            self._unfinished += _row_count(wanted) - _row_count(final)
            return True
        if in_part := sorted({piece.segment for piece in lacking.keys() & stored.keys()}):
            segments = counted(len(in_part), "segment")
            if shards:
                raise CommandFailed(
                    f"{_hour_text(hour)}: the cluster has a part of {segments}, such as {in_part[0]}; "
                    "expected all rows of a shard, or none: delete the rows of these segments there"
                )
            self.report(f"{_hour_text(hour)}: the target has a part of {segments}; it is deleted and copied")
            delete_segments(self.target, hour, in_part)
        for chunk in chunks(lacking):
            self._copy(read, chunk, ok)
        return False

    def _copy(self, compared: Read, chunk: Sequence[Piece], ok: int) -> None:
        """Copy pieces of the same epoch and shard in one INSERT; in several if they are too large."""
        first, seqs = chunk[0], tuple(piece.segment.seq for piece in chunk)
        read = replace(compared, what="spans", epoch=first.segment.epoch, seqs=seqs, shard=first.shard)
        if self._insert(TABLE, read, str(read), ok, is_divisible=len(chunk) > 1):
            return
        half = len(chunk) // 2
        self._copy(compared, chunk[:half], ok)
        self._copy(compared, chunk[half:], ok)

    def _insert(self, table: str, read: Read, identity: str, ok: int, *, is_divisible: bool = False) -> bool:
        """Insert the rows of a read. Returns False if they are too large; then nothing was sent."""
        # After an INSERT that returned OK and stored nothing, its token is used up. Several may be, if rows
        # were deleted several times.
        number = str(ok) if ok < TOKENS_MAX else token_hex(8)
        digest = f"{sha256(identity.encode()).hexdigest()[:32]}-{number}"
        # Read completely first: a source that fails then sends nothing, and the target need not wait for it.
        with SpooledTemporaryFile(BODY_MEMORY_BYTES_MAX) as body:
            for piece in self.source.arrow(read):
                body.write(piece)
                if is_divisible and body.tell() > BODY_BYTES_MAX:
                    return False
            rows = self.target.insert_arrow(
                table, body, token=f"move-{digest}", query_id=f"{self.name}-{digest}"
            )
        self._copied += rows if table == TABLE else 0
        return True

    def _move_events(self, ok: int) -> bool:
        """Copy the deployment events of each hour that differs. The table keeps one row of each event."""
        read = Read("event-hours")
        wanted, stored = _hour_sums(self.source.lines(read)), _hour_sums(lines_of(self.target, read))
        is_first = not ok
        # The target may have further events: those that were fetched after `store.url` was changed.
        lacking = [
            hour
            for hour, rows in wanted.items()
            if not self._expires(hour, self.event_retention_days)
            and (stored.get(hour) != rows if is_first else stored.get(hour, RowSum()).rows < rows.rows)
        ]
        for hour in lacking:
            self._insert(DEPLOYMENT_EVENTS, Read("events", hour), f"events {hour} {wanted[hour]}", ok)
        return not lacking


def lacking_pieces(final: Pieces, stored: Pieces, hour: int) -> Pieces:
    """Return the pieces of which the target has no rows or a part. Raises if it has other rows."""
    lacking = {piece: rows for piece, rows in final.items() if stored.get(piece) != rows}
    for piece, rows in lacking.items():
        found = stored.get(piece, RowSum())
        if found.rows >= rows.rows:
            raise CommandFailed(
                f"the target has other rows of segment {piece.segment} in the hour {_hour_text(hour)}: "
                f"{counted(found.rows, 'row')} with checksum {found.checksum}; expected "
                f"{counted(rows.rows, 'row')} with checksum {rows.checksum}, a part of them, or none"
            )
    return lacking


def chunks(lacking: Pieces) -> Iterator[list[Piece]]:
    """Divide pieces into groups for one INSERT, each of one epoch and shard."""
    chunk: list[Piece] = []
    rows = 0
    for piece in sorted(lacking):
        is_full = len(chunk) == CHUNK_SEGMENTS_MAX or rows + lacking[piece].rows > CHUNK_ROWS_MAX
        if chunk and (is_full or _target_part(chunk[0]) != _target_part(piece)):
            yield chunk
            chunk, rows = [], 0
        chunk.append(piece)
        rows += lacking[piece].rows
    if chunk:
        yield chunk


def _target_part(piece: Piece) -> tuple[int, int]:
    return piece.shard, piece.segment.epoch


def midnight_of(day: str) -> datetime:
    """Return the start of a partition, such as `20260131`."""
    return datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC)


def _hour_sums(lines: list[Row]) -> dict[int, RowSum]:
    return {row["hour"]: RowSum(row["rows"], row["checksum"]) for row in lines}


def _row_count(pieces: Pieces) -> int:
    return sum(rows.rows for rows in pieces.values())


def _hour_text(hour: int) -> str:
    return instant_text(hour * HOUR_S, "minutes", zone="Z")
