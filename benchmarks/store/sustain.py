"""Sustained inserts at a rate: shows whether merges keep up, or parts and the queue grow.

One thread creates segments as large as the intake seals them at this rate, and puts them into a queue;
another stores them as the writer does: insert, count, sync, unlink.
"""

from __future__ import annotations

import itertools
import math
import queue
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.store.compare import Log
from benchmarks.store.results import Moment, Sustained
from benchmarks.store.segments import BODY_SPANS, SegmentMaker
from benchmarks.store.tables import ComparedTable
from receiver.engine.store import TABLE, RowLocation
from receiver.journal.appender import sealing_age_ms
from receiver.model import SegmentId
from receiver.settings import Journal

VARIED = 200_000
QUEUED_MAX = 600
"""Queued segments at which the run ends, because the store cannot keep up and the disk would fill."""
TICK_MS = 50
"""Interval at which the intake checks the age of its segment."""
GROWTH_MAX = 1.5
"""Largest ratio of parts at the end to parts in the middle that counts as flat."""
FLAT_QUEUE_MAX = 10
COMPLETE_SHARE = 0.98
"""Share of the planned spans that counts as all of them; the rest is rounding."""
_PARTS_QUERY = f"""
SELECT count(), sum(bytes_on_disk),
    (SELECT max(c) FROM (SELECT count() AS c FROM system.parts
                         WHERE active AND database = currentDatabase() AND table = '{TABLE}'
                         GROUP BY partition_id))
FROM system.parts WHERE active AND database = currentDatabase() AND table = '{TABLE}'
"""  # noqa: S608 - a constant
_MERGES_QUERY = """
SELECT count(), sum(rows_read), (SELECT sum(value) FROM system.events WHERE event = 'MergedRows')
FROM system.merges WHERE database = currentDatabase()
"""


def segment_s(spans_per_s: float, limits: Journal) -> float:
    """Return the age at which an intake with this rate seals its segments."""

    def is_due(age_ms: int) -> bool:
        fullness = spans_per_s * age_ms / 1_000 / limits.segment_rows_max
        return fullness >= 1 or age_ms >= sealing_age_ms(limits, fullness)

    return next(filter(is_due, itertools.count(TICK_MS, TICK_MS))) / 1_000


class QueuedSegment(NamedTuple):
    """A segment waiting to be inserted."""

    path: Path
    segment: SegmentId
    rows: int
    received_ms: tuple[int, int]


class SegmentSource:
    """Source of segments at a fixed rate, independently of how fast they are stored."""

    def __init__(self, maker: SegmentMaker, directory: Path, spans_per_s: float, duration_s: float) -> None:
        self.queue: queue.SimpleQueue[QueuedSegment | None] = queue.SimpleQueue()
        self._maker, self._directory = maker, directory
        self._spans_per_s, self._duration_s = spans_per_s, duration_s

    def run(self) -> None:
        """Create all segments; `None` marks the end of the queue."""
        try:
            for segments in self._segments():
                self.queue.put(segments)
        finally:
            self.queue.put(None)

    def _segments(self) -> Iterator[QueuedSegment]:
        bodies = max(1, round(self._spans_per_s * segment_s(self._spans_per_s, Journal()) / BODY_SPANS))
        period_s = bodies * BODY_SPANS / self._spans_per_s
        began = time.monotonic()
        for number in range(math.ceil(self._duration_s / period_s)):
            time.sleep(max(0.0, began + (number + 1) * period_s - time.monotonic()))
            if self.queue.qsize() > QUEUED_MAX:
                return
            path, now_ns = self._directory / f"{number:010d}.native.lz4", time.time_ns()
            segment = self._maker.segment(path, [now_ns] * bodies)
            yield QueuedSegment(path, segment, bodies * BODY_SPANS, (now_ns // 10**6, now_ns // 10**6))


def sustain(
    spans_per_s: float, duration_s: float, directory: Path, log: Log, *, every_s: float = 10.0
) -> tuple[list[Moment], list[float], str]:
    """Run at this rate. Return the observed states, the milliseconds of each INSERT, and a verdict."""
    table = ComparedTable("ours", directory / "store")
    table.create()
    varied_spans = min(VARIED, round(spans_per_s * duration_s))
    source = SegmentSource(SegmentMaker(varied_spans), directory, spans_per_s, duration_s)
    storer = SegmentStorer(table)
    watch = Watch(table, source, storer)
    maker = threading.Thread(target=source.run, name="maker", daemon=True)
    keeper = threading.Thread(target=storer.run, args=(source.queue,), name="keeper", daemon=True)
    maker.start()
    keeper.start()
    while keeper.is_alive():
        keeper.join(every_s)
        log(line_of(watch.observe()))
    table.drop()
    table.store.close()
    is_complete = storer.rows >= COMPLETE_SHARE * spans_per_s * duration_s
    return watch.moments, storer.insert_ms, verdict_on(watch.moments, stored_all=is_complete)


class SegmentStorer:
    """Stores segments as the writer does."""

    def __init__(self, table: ComparedTable) -> None:
        self._table = table
        self.rows = 0
        self.insert_ms: list[float] = []

    def run(self, segments: queue.SimpleQueue[QueuedSegment | None]) -> None:
        """Store segments until the queue ends."""
        while queued := segments.get():
            self.insert_ms.append(self._table.insert(queued.path).wall_s * 1e3)
            counts = self._table.store.counts([RowLocation(queued.segment, queued.received_ms)])
            if sum(counts.get(queued.segment, {}).values()) != queued.rows:
                raise AssertionError(
                    f"segment {queued.segment} has counts {counts}; expected {queued.rows} rows"
                )
            self._table.store.sync()
            queued.path.unlink()
            self.rows += queued.rows


class Watch:
    """Observer of the engine during the run."""

    def __init__(self, table: ComparedTable, source: SegmentSource, storer: SegmentStorer) -> None:
        self._table, self._source, self._storer = table, source, storer
        self._began = time.monotonic()
        self._cpu_s = time.process_time()
        self.moments: list[Moment] = []

    def observe(self) -> Moment:
        """Record and return the current state."""
        parts, disk_bytes, most = self._table.store.rows(_PARTS_QUERY)[0]
        merges, merging_rows, merged_rows = self._table.store.rows(_MERGES_QUERY)[0]
        self.moments.append(
            Moment(
                at_s=time.monotonic() - self._began,
                rows=self._storer.rows,
                queued=self._source.queue.qsize(),
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
    """Return whether the last third is flat relative to the middle third, as text."""
    third = len(moments) // 3
    middle, last = moments[third : 2 * third], moments[2 * third :]
    if not stored_all:
        return "did not keep up: not all spans were stored in time"
    if not middle:
        return "too short to tell"
    growth = statistics.median(moment.parts for moment in last) / max(
        1, statistics.median(moment.parts for moment in middle)
    )
    queued = max(moment.queued for moment in last)
    is_flat = growth <= GROWTH_MAX and queued <= FLAT_QUEUE_MAX
    detail = f"{growth:.2f} times the parts of the middle third, and at most {queued} queued segments"
    return f"{'kept up' if is_flat else 'did not keep up'}: the last third had {detail}"


def sustained(
    spans_per_s: float,
    duration_s: float,
    measured: tuple[list[Moment], list[float], str],
    environment: tuple[str, str],
) -> Sustained:
    """Return the result in its stored form."""
    moments, insert_ms, verdict = measured
    ordered = sorted(insert_ms)
    summary_ms = (
        [statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]] if ordered else []
    )
    return Sustained(spans_per_s, duration_s, summary_ms, moments, verdict, *environment)


def line_of(moment: Moment) -> str:
    """Return the progress line of a moment."""
    return (
        f"{moment.at_s:7.0f} s  {moment.rows:13,} rows  {moment.queued:3} queued  {moment.parts:4} parts  "
        f"{moment.merges} merges of {moment.merging_rows:,} rows  "
        f"{moment.merged_rows / max(moment.rows, 1):.1f} merges per row  {moment.disk_bytes >> 20:,} MiB  "
        f"{moment.cpu_s / max(moment.at_s, 1e-9):.2f} cores"
    )
