"""Log of recorded segments: which segments' stored rows the metrics of spans have yet to count.

    ledger entry ──▶ added here ──▶ segment deleted: settled
                              └───▶ counted by the reader, and durably stored there

An entry stays until its segment is both settled and counted. A segment may be recorded again until its file
is deleted; while its entry is here, that adds nothing. So a reader that remembers which of the entries it
counted counts each segment exactly once, wherever the process is killed.

Only the writer's thread adds and settles; the reader calls `entries` and `discard` from its own thread.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import msgspec

from receiver.durable.append_log import AppendLog, framed, unframed
from receiver.durable.files import DISK, Files, make_directories, write_durably
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.reports import RecordedSegment

DONE_MAX = 256
"""Number of entries that are settled and counted at which the log is rewritten without them."""
_MAGIC = b"TDRS"


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    seq: int
    received_ms: tuple[int, int]
    parts_epoch: int | None
    rows: int


_DECODER = msgspec.msgpack.Decoder(_Entry)


class RecordedSegments:
    """Implements `receiver.reports.RecordedLog`."""

    def __init__(self, path: Path, files: Files = DISK) -> None:
        """Read the log. Raises `OSError`."""
        self._path, self._files = path, files
        self._lock = threading.Lock()
        self._settled: set[SegmentId] = set()
        self._counted: set[SegmentId] = set()
        make_directories(path.parent, files)
        content = b"" if files.size_bytes(path) is None else files.read(path)
        log = unframed(_MAGIC, content, _DECODER.decode)
        if log.is_damaged:
            limited.error(
                "recorded", "log of recorded segments is damaged; metrics of spans lack some", path=str(path)
            )
        self._entries = {segment.id: segment for segment in map(_segment, log.entries)}
        # A killed process may have left entries unsynced that the reader relies on from now on.
        self._log = self._rewritten()

    def add(self, segment: RecordedSegment) -> None:
        """Add a segment durably, before its file is deleted. Adds nothing if it is here already."""
        with self._lock:
            if segment.id in self._entries:
                return
            if not self._log.is_in_place:
                make_directories(self._path.parent, self._files)
                self._replace()
            self._log.append(_encoded([segment]))
            self._entries[segment.id] = segment

    def settle(self, segment: SegmentId) -> None:
        """Note that the file of a segment was deleted, so that it is never added again."""
        with self._lock:
            if segment in self._entries:
                self._settled.add(segment)

    def retain(self, present: Collection[SegmentId]) -> None:
        """Settle the segments of an earlier run that are not in the journal any more."""
        with self._lock:
            self._settled.update(segment for segment in self._entries if segment not in present)

    def entries(self) -> list[RecordedSegment]:
        """Return all segments of the log, oldest first, also those that were counted."""
        with self._lock:
            return list(self._entries.values())

    def discard(self, counted: Collection[SegmentId]) -> None:
        """Remove segments that the reader has counted, as soon as they are settled, too."""
        with self._lock:
            self._counted.update(segment for segment in counted if segment in self._entries)
            done = self._counted & self._settled
            if len(done) < DONE_MAX:
                return
            before = self._entries
            self._entries = {segment: entry for segment, entry in before.items() if segment not in done}
            try:
                self._replace()
            except OSError as error:
                self._entries = before
                limited.warning("recorded", "log cannot be rewritten", error=error.strerror)
            else:
                self._settled -= done
                self._counted -= done

    def close(self) -> None:
        """Close the descriptor."""
        self._log.close()

    def _replace(self) -> None:
        log = self._rewritten()
        self._log.close()
        self._log = log

    def _rewritten(self) -> AppendLog:
        content = _encoded(self._entries.values())
        write_durably(self._path, content, files=self._files)
        return AppendLog(self._path, len(content), self._files)


def _encoded(segments: Collection[RecordedSegment]) -> bytes:
    return framed(
        _MAGIC,
        [
            msgspec.msgpack.encode(
                _Entry(each.id.epoch, each.id.seq, each.received_ms, each.parts_epoch, each.rows)
            )
            for each in segments
        ],
    )


def _segment(entry: _Entry) -> RecordedSegment:
    return RecordedSegment(
        SegmentId(entry.epoch, entry.seq), entry.received_ms, entry.parts_epoch, entry.rows
    )
