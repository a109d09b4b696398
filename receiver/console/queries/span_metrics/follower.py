"""Follower of the recorded segments: adds the requests of each segment to the metrics, once.

    recorded ─▶ sums of some segments ─▶ sums and ids written as one file ─▶ published ─▶ discarded

The file is replaced atomically, so a kill between any two steps neither loses nor repeats a segment. Sums are
published only after they are on disk: a counter that Prometheus has seen never goes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from receiver.console.queries.span_metrics.series import SpanCounts
from receiver.console.queries.span_metrics.statement import requests_of
from receiver.durable.append_log import framed, unframed
from receiver.durable.files import DISK, Files, make_directories, write_durably
from receiver.engine.store import Store
from receiver.logs import limited
from receiver.reports import RecordedLog, RecordedSegment

ROWS_MAX: Final = 500_000
"""Rows of the segments that one statement sums up. A larger segment is summed up alone."""
SEGMENTS_MAX: Final = 64
MISSING_WAIT_S: Final = 60.0
"""Time since the receipt for which rows that the store does not show yet, as on a replica, are waited for."""
_MAGIC: Final = b"TDSM"
_DECODER: Final = msgspec.msgpack.Decoder(SpanCounts)


class Follower:
    """The sums of all counted segments. One thread calls `open` and `step`; any may read `counts`."""

    def __init__(
        self,
        store: Store,
        path: Path,
        series_max: int,
        now: Callable[[], float] = time.time,
        files: Files = DISK,
    ) -> None:
        self.counts: SpanCounts | None = None
        """The published sums, which are never changed; `None` until they are read."""
        self.waiting = 0
        """Number of recorded segments that are not counted yet."""
        self._store, self._path, self._series_max = store, path, series_max
        self._now, self._files = now, files
        self._stored = b""

    def open(self) -> None:
        """Read the stored sums. Without a file, counting begins now. Raises `OSError`."""
        make_directories(self._path.parent, self._files)
        content = b"" if self._files.size_bytes(self._path) is None else self._files.read(self._path)
        # A killed process may have left the name unsynced; from now on the sums are relied on.
        self._files.sync_directory(self._path.parent)
        counts = unframed(_MAGIC, content, _DECODER.decode).entries
        if content and not counts:
            limited.error(
                "span metrics", "stored metrics of spans are damaged; they begin at 0", path=str(self._path)
            )
        self._publish(counts[0] if counts else SpanCounts(self._now()))

    def step(self, log: RecordedLog) -> bool:
        """Count some of the recorded segments. Return whether more can be counted at once.

        Raises `StoreTrouble` or `OSError`; then nothing has changed, and the next step tries again.
        """
        listed = log.entries()
        # A copy, because readers have the published one.
        counts = _DECODER.decode(self._stored)
        counts.counted &= {(segment.id.epoch, segment.id.seq) for segment in listed}
        new = [segment for segment in listed if not counts.has_counted(segment.id)]
        self.waiting = len(new)
        batch = next(batches(new), [])
        if not batch:
            log.discard([segment.id for segment in listed])
            return False
        requests, now_s = requests_of(self._store, batch), self._now()
        missing = sum(segment.rows for segment in batch) - requests.rows
        if missing > 0:
            if now_s - max(segment.received_ms[1] for segment in batch) / 1e3 < MISSING_WAIT_S:
                return False
            counts.missing += missing
        counts.add(requests.groups, self._series_max, now_s)
        counts.counted.update((segment.id.epoch, segment.id.seq) for segment in batch)
        body = msgspec.msgpack.encode(counts)
        write_durably(self._path, framed(_MAGIC, [body]), files=self._files)
        self._stored, self.counts = body, counts
        self.waiting = len(new) - len(batch)
        log.discard([segment.id for segment in listed if counts.has_counted(segment.id)])
        return self.waiting > 0

    def _publish(self, counts: SpanCounts) -> None:
        self._stored, self.counts = msgspec.msgpack.encode(counts), counts


def batches(segments: list[RecordedSegment]) -> Iterator[list[RecordedSegment]]:
    """Divide segments so that one statement reads a limited number of rows."""
    batch: list[RecordedSegment] = []
    rows = 0
    for segment in segments:
        if batch and (rows + segment.rows > ROWS_MAX or len(batch) == SEGMENTS_MAX):
            yield batch
            batch, rows = [], 0
        batch.append(segment)
        rows += segment.rows
    if batch:
        yield batch
