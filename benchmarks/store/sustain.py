"""Half an hour of inserts at a rate, into today: merges keep up, or parts and the queue grow.

One thread makes segments, a second's worth each, another stores them as the writer does: insert, count, sync,
unlink. What stands between them is the queue.
"""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.store.compare import Log
from benchmarks.store.results import Moment, Sustained
from benchmarks.store.segments import BODY_SPANS, Press
from benchmarks.store.tables import Compared
from receiver.engine.store import TABLE, Held
from receiver.model import SegmentId

VARIED = 200_000
QUEUED_MAX = 600
"""Segments. Then the store has lost the race, and the disk is spared."""
GROWTH_MAX = 1.5
"""Parts at the end against the middle; more is no longer flat."""
FLAT_QUEUE_MAX = 10
WHOLE = 0.98
"""Of the spans that were to be stored; the rest is rounding."""
_STANDING = f"""
SELECT count(), sum(bytes_on_disk),
    (SELECT max(c) FROM (SELECT count() AS c FROM system.parts
                         WHERE active AND database = currentDatabase() AND table = '{TABLE}'
                         GROUP BY partition_id))
FROM system.parts WHERE active AND database = currentDatabase() AND table = '{TABLE}'
"""  # noqa: S608 - a constant
_MERGING = """
SELECT count(), sum(rows_read), (SELECT sum(value) FROM system.events WHERE event = 'MergedRows')
FROM system.merges WHERE database = currentDatabase()
"""


class Made(NamedTuple):
    """A segment that waits."""

    path: Path
    segment: SegmentId
    rows: int
    received_ms: tuple[int, int]


class RequestStream:
    """Makes segments at a rate, whatever becomes of them."""

    def __init__(self, press: Press, directory: Path, spans_per_s: float, duration_s: float) -> None:
        self.made: queue.SimpleQueue[Made | None] = queue.SimpleQueue()
        self._press, self._directory = press, directory
        self._spans_per_s, self._duration_s = spans_per_s, duration_s

    def run(self) -> None:
        """Until it is over; `None` ends the queue."""
        try:
            for made in self._segments():
                self.made.put(made)
        finally:
            self.made.put(None)

    def _segments(self) -> Iterator[Made]:
        bodies = max(1, round(self._spans_per_s / BODY_SPANS))
        period_s = bodies * BODY_SPANS / self._spans_per_s
        began = time.monotonic()
        for number in range(round(self._duration_s / period_s)):
            time.sleep(max(0.0, began + (number + 1) * period_s - time.monotonic()))
            if self.made.qsize() > QUEUED_MAX:
                return
            path, now_ns = self._directory / f"{number:010d}.native.lz4", time.time_ns()
            segment = self._press.segment(path, [now_ns] * bodies)
            yield Made(path, segment, bodies * BODY_SPANS, (now_ns // 10**6, now_ns // 10**6))


def sustain(
    spans_per_s: float, duration_s: float, directory: Path, log: Log, *, every_s: float = 10.0
) -> tuple[list[Moment], list[float], str]:
    """Feed it. How it stood in between, milliseconds of the INSERTs, and what to make of it."""
    table = Compared("ours", directory / "store")
    table.create()
    varied_spans = min(VARIED, round(spans_per_s * duration_s))
    feed = RequestStream(Press(varied_spans), directory, spans_per_s, duration_s)
    stored = Stored(table)
    watch = Watch(table, feed, stored)
    maker = threading.Thread(target=feed.run, name="maker", daemon=True)
    keeper = threading.Thread(target=stored.run, args=(feed.made,), name="keeper", daemon=True)
    maker.start()
    keeper.start()
    while keeper.is_alive():
        keeper.join(every_s)
        log(line_of(watch.look()))
    table.drop()
    table.store.close()
    whole = stored.rows >= WHOLE * spans_per_s * duration_s
    return watch.moments, stored.insert_ms, verdict_on(watch.moments, stored_all=whole)


class Stored:
    """Stores segments as the writer does."""

    def __init__(self, table: Compared) -> None:
        self._table = table
        self.rows = 0
        self.insert_ms: list[float] = []

    def run(self, made: queue.SimpleQueue[Made | None]) -> None:
        """Until the queue ends."""
        while one := made.get():
            self.insert_ms.append(self._table.insert(one.path).wall_s * 1e3)
            counted = self._table.store.counts([Held(one.segment, one.received_ms)])
            if sum(counted.get(one.segment, {}).values()) != one.rows:
                raise AssertionError(f"{counted} counted of segment {one.segment}; expected {one.rows} rows")
            self._table.store.sync()
            one.path.unlink()
            self.rows += one.rows


class Watch:
    """Looks at the engine while it works."""

    def __init__(self, table: Compared, feed: RequestStream, stored: Stored) -> None:
        self._table, self._feed, self._stored = table, feed, stored
        self._began = time.monotonic()
        self._cpu_s = time.process_time()
        self.moments: list[Moment] = []

    def look(self) -> Moment:
        """Now."""
        parts, disk_bytes, most = self._table.store.rows(_STANDING)[0]
        merges, merging_rows, merged_rows = self._table.store.rows(_MERGING)[0]
        self.moments.append(
            Moment(
                at_s=time.monotonic() - self._began,
                rows=self._stored.rows,
                queued=self._feed.made.qsize(),
                parts=parts,
                parts_of_today_max=most or 0,
                merges=merges,
                merging_rows=merging_rows,
                merged_rows=merged_rows or 0,
                disk_bytes=disk_bytes or 0,
                cpu_s=time.process_time() - self._cpu_s,
            )
        )
        return self.moments[-1]


def verdict_on(moments: list[Moment], *, stored_all: bool) -> str:
    """Flat or not: the last third against the middle one."""
    third = len(moments) // 3
    middle, last = moments[third : 2 * third], moments[2 * third :]
    if not stored_all:
        return "did not keep up: not all was stored in time"
    if not middle:
        return "too short to tell"
    grown = statistics.median(one.parts for one in last) / max(
        1, statistics.median(one.parts for one in middle)
    )
    queued = max(one.queued for one in last)
    flat = grown <= GROWTH_MAX and queued <= FLAT_QUEUE_MAX
    said = f"parts {grown:.2f} times those of the middle third, at most {queued} segments queued"
    return f"{'kept up' if flat else 'did not keep up'}: in the last third {said}"


def sustained(
    spans_per_s: float, duration_s: float, told: tuple[list[Moment], list[float], str], where: tuple[str, str]
) -> Sustained:
    """As it is kept."""
    moments, insert_ms, verdict = told
    ordered = sorted(insert_ms)
    said = [statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]] if ordered else []
    return Sustained(spans_per_s, duration_s, said, moments, verdict, *where)


def line_of(now: Moment) -> str:
    """One look, as it is told."""
    return (
        f"{now.at_s:7.0f} s  {now.rows:13,} rows  {now.queued:3} queued  {now.parts:4} parts  "
        f"{now.merges} merges of {now.merging_rows:,} rows  "
        f"{now.merged_rows / max(now.rows, 1):.1f} times merged  {now.disk_bytes >> 20:,} MiB  "
        f"{now.cpu_s / max(now.at_s, 1e-9):.2f} cores"
    )
