"""Journal appender: writes and syncs records to the open segment of this intake's epoch directory.

    choose ──▶ (the core writes the segment's identity into every row) ──▶ append ──▶ acknowledge
    retired: accepts no more records ──▶ seal_retired, in another thread ──▶ sealed, read by the writer

Invariant: when `append` returns, the record survives a power failure; when it raises, the record never
reappears.
    The second half requires that the disk accepts a truncation or a marker file (see `Place.cut`). Until it
    does, no record is acknowledged. A process killed in that state may leave a complete record that was
    answered with 503; the writer recognizes the retry by its digest.
Never: uses an event loop. All calls may block, except `choose`, `full_reason` and `is_stored`.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from receiver.durable.files import DISK
from receiver.errors import DiskTrouble, JournalFull, OperatorError, ShuttingDown, StaleSegment
from receiver.journal.ceiling import Ceiling
from receiver.journal.epoch_directory import EpochDirectory
from receiver.journal.names import Kind
from receiver.journal.segment import Place, Segment
from receiver.journal.writer_notes import DeferredSegments, SegmentOutcomes
from receiver.logs import limited
from receiver.model import SegmentId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver import settings
    from receiver.durable.files import Files
    from receiver.journal.frame import Sums
    from receiver.journal.writer_notes import SegmentOutcome

TROUBLE_S = 30.0
"""Time for which the last error counts: after it, senders are accepted again, so that a write is tried."""
RETRY_S = 1.0
"""Delay before a failed seal is retried."""
PREDECESSOR_CHECK_S = 0.05
"""Interval between checks whether the previous segment is stored or deferred."""

GROWTH_SHARE = 1 / 3
"""Share of its maximum size that a segment reaches within `segment_growth_ms_max` if it may grow so long."""

TAIL_NOT_DROPPED = "the disk cannot remove a record that was never acknowledged from the journal"
"""Error while a record that was never acknowledged is still in the file. No record is acknowledged then."""


@dataclass(slots=True)
class Retired:
    """A segment that accepts no more records and is not sealed yet."""

    place: Place
    sums: Sums
    tail_dropped: bool
    """Whether every record that was never acknowledged is removed from the file."""
    tried_at_s: float = -math.inf
    """Time of the last attempt to seal it."""
    has_failed: bool = False
    """Whether an attempt to seal it has failed."""


def sealing_age_ms(limits: settings.Journal, fullness: float) -> float:
    """Return the age at which a segment is sealed that has reached this share of its maximum size."""
    growth_ms = limits.segment_growth_ms_max * min(1.0, fullness / GROWTH_SHARE)
    return max(limits.segment_age_ms_max, growth_ms)


class Appender:
    """Appender of one epoch. Writes are serialized; `choose` and `seal_retired` may run concurrently."""

    def __init__(
        self,
        root: Path,
        limits: settings.Journal,
        *,
        now: Callable[[], float] = time.monotonic,
        files: Files = DISK,
    ) -> None:
        try:
            self._directory = EpochDirectory.create(root, files)
        except OSError as error:
            cause = error.strerror or "unknown error"
            raise OperatorError(
                f"journal directory '{root}' cannot be used: {cause}; expected a writable directory"
            ) from error
        self._limits = limits
        self._sealed_kind = Kind.ZSTD if limits.codec == "zstd" else Kind.LZ4
        self._now = now
        self._files = files
        self._outcomes = SegmentOutcomes(root.parent / "outcomes")
        self._deferred = DeferredSegments(root.parent, files)
        self._ceiling = Ceiling(root, limits, files, now)
        self._ceiling.measure()
        # Lock order: `_writing` first, then `_sealing` or `_choosing`.
        self._writing = threading.Lock()
        # Separate from `_writing`, which is held during a sync: `choose` must not wait for one.
        self._choosing = threading.Lock()
        self._seq = 0
        self._seq_min = 0
        self._awaited_seq = -1
        """The newest segment with a delivery that is answered only when the segment is stored."""
        self._open: Segment | None = None
        self._opened_at_s = 0.0
        self._predecessor_checked_at_s = 0.0
        self._retired: list[Retired] = []
        self._sealing = threading.Lock()
        self._error = ""
        self._error_at_s = 0.0
        self._closed = False

    @property
    def epoch(self) -> int:
        """Random id of this intake start."""
        return self._directory.epoch

    def choose(self, *, is_awaited: bool = False) -> SegmentId:
        """Return the segment for the next record: the open segment, or its successor if it is full or old.

        `is_awaited`: a sender waits until the record is stored, so the segment must not grow longer for it.
        """
        with self._choosing:
            # Read once, because another thread may retire the segment meanwhile.
            current = self._open
            # The numbers differ while the chosen successor has no record yet: it must not advance twice.
            if current is not None and current.place.seq == self._seq and self._is_due(current):
                self._seq += 1
            if is_awaited:
                self._awaited_seq = self._seq
            return SegmentId(self.epoch, self._seq)

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """Write and sync a record. A record of a later segment retires the open segment: see `seal_retired`.

        Raises `JournalFull` or `DiskTrouble` (the sender must retry later), `StaleSegment` (choose again).
        """
        with self._writing:
            # The record cannot go into another segment: its rows already hold this segment's identity.
            if segment.epoch != self.epoch or segment.seq < self._seq_min:
                raise StaleSegment(str(segment))
            self._admit(len(record))
            try:
                self._open_segment(segment.seq).append(record, rows)
            except OSError as error:
                raise self._failed(segment, error) from error
            self._error = ""
            self._ceiling.add(len(record))

    def retire_if_due(self) -> None:
        """Retire the open segment if it is due: see `seal_retired`. Call it while no group commit is running.

        Raises `OperatorError` when the epoch directory was removed: the intake must restart with a new epoch.
        """
        with self._writing:
            if self._directory.is_gone():
                raise OperatorError(
                    f"epoch directory '{self._directory.directory}' was removed while the intake uses it"
                )
            current = self._open
            if current is not None and (current.place.seq < self._seq or self._is_due(current)):
                self._retire(current, tail_dropped=True)
            self._ceiling.measure()

    def seal(self) -> None:
        """Seal the open segment, so that the writer can insert it."""
        with self._writing:
            if self._open is not None:
                self._retire(self._open, tail_dropped=True)
        self.seal_retired()

    @property
    def has_retired(self) -> bool:
        return bool(self._retired)

    def seal_retired(self) -> None:
        """Seal retired segments for the writer. A failed seal is retried by a later call, after `RETRY_S`.

        No acknowledgement waits for this: the records are synced already. After `close` another process may
        have adopted the segments, so the call does nothing.
        """
        with self._sealing:
            if self._closed:
                return
            # A copy, because `_seal_one` removes items while other threads may add some.
            for retired in list(self._retired):
                if self._now() - retired.tried_at_s >= RETRY_S:
                    self._seal_one(retired)

    def close(self) -> None:
        """Seal and release the epoch directory. A failed seal is completed by adoption, as after a crash."""
        self.seal()
        # Always in this order, so that two threads cannot deadlock.
        with self._writing, self._sealing:
            self._closed = True
            self._directory.leave()

    @property
    def trouble(self) -> str:
        """Return the last disk error if it is recent and no append has succeeded since."""
        return self._error if self._now() - self._error_at_s < TROUBLE_S else ""

    @property
    def open_age_s(self) -> float:
        """Return the age of the open segment; 0 if there is none."""
        return 0.0 if self._open is None else self._now() - self._opened_at_s

    def full_reason(self, more_bytes: int = 0) -> str | None:
        """Return why a record of this size would be refused, or `None`. Does not access the disk."""
        if self._has_undropped_tail():
            return TAIL_NOT_DROPPED
        return self._ceiling.reason(more_bytes)

    def is_stored(self, segment: SegmentId) -> bool:
        """Return whether the writer has deleted this segment. False if the disk cannot be read."""
        try:
            # In a removed epoch directory the file is missing, too, although nothing was stored.
            return self._place(segment.seq).is_stored() and not self._directory.is_gone()
        except OSError:
            return False

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        return self._outcomes.read(segment)

    def _is_due(self, current: Segment) -> bool:
        limits = self._limits
        fullness = max(
            current.sums.rows / limits.segment_rows_max, current.bytes_good / limits.segment_bytes_max
        )
        if fullness >= 1:
            return True
        # A sender of an awaited segment should not wait longer for its answer.
        growth = 0 if current.place.seq == self._awaited_seq else fullness
        if (self._now() - self._opened_at_s) * 1000 < sealing_age_ms(limits, growth):
            return False
        # While the writer is behind, sealing by age would only add small segments, so the segment grows
        # further.
        return current.place.seq == 0 or not self._is_writer_behind(current)

    def _is_writer_behind(self, current: Segment) -> bool:
        """Return whether the previous segment still waits for its first turn of the writer.

        Checks the disk at most once in `PREDECESSOR_CHECK_S`, because every group commit calls it.
        """
        if self._now() - self._predecessor_checked_at_s < PREDECESSOR_CHECK_S:
            return True
        self._predecessor_checked_at_s = self._now()
        previous = SegmentId(self.epoch, current.place.seq - 1)
        return not (
            self.is_stored(previous) or self._deferred.has(previous) or self._is_only_failed_seal(previous)
        )

    def _is_only_failed_seal(self, segment: SegmentId) -> bool:
        """Return whether the disk refuses to seal this segment, and no other segment waits for its seal."""
        # A copy and no lock: the sealing thread may remove items meanwhile.
        retired = tuple(self._retired)
        return len(retired) == 1 and retired[0].place.seq == segment.seq and retired[0].has_failed

    def _admit(self, record_bytes: int) -> None:
        if self._closed:
            raise ShuttingDown("the journal is closed and the receiver is stopping; retry in a few seconds")
        if self._has_undropped_tail():
            self.seal_retired()
        if self._has_undropped_tail():
            raise DiskTrouble(TAIL_NOT_DROPPED)
        self._ceiling.measure()
        reason = self._ceiling.reason(record_bytes)
        if reason is not None:
            raise JournalFull(reason)

    def _failed(self, segment: SegmentId, reason: OSError) -> DiskTrouble:
        """Retire the segment after a write error and remember the error."""
        if self._open is not None:
            # Even if only the sync failed: what the failed write left in the file is unknown.
            self._retire(self._open, tail_dropped=False)
            self.seal_retired()
        self._error = f"journal segment {segment} cannot be written: {reason.strerror}"
        self._error_at_s = self._now()
        return DiskTrouble(self._error)

    def _open_segment(self, seq: int) -> Segment:
        if self._open is not None and self._open.place.seq < seq:
            self._retire(self._open, tail_dropped=True)
        if self._open is None:
            self._opened_at_s = self._now()
            # Records for older segments are refused from now on: the core wrote the segment's identity into
            # every row.
            self._seq_min = seq
            self._open = Segment(self._place(seq), self._directory.is_gone)
        return self._open

    def _retire(self, target: Segment, *, tail_dropped: bool) -> None:
        """Close this segment for records and queue it for `seal_retired`."""
        target.close()
        self._open = None
        self._seq_min = target.place.seq + 1
        with self._choosing:
            # `choose` may have moved on already, and a sequence number is never used twice.
            self._seq = max(self._seq, self._seq_min)
        self._retired.append(Retired(target.place, target.sums, tail_dropped))

    def _seal_one(self, retired: Retired) -> None:
        retired.tried_at_s = self._now()
        try:
            if not retired.tail_dropped:
                retired.place.cut(retired.sums.bytes)
                # Noted before the seal: records are accepted again as soon as the tail is gone.
                retired.tail_dropped = True
            retired.place.seal(retired.sums.bytes, retired.sums.footer(), self._sealed_kind)
        except OSError as error:
            retired.has_failed = True
            segment = SegmentId(self.epoch, retired.place.seq)
            limited.warning(
                "seal", "segment cannot be sealed yet", segment=str(segment), error=error.strerror
            )
        else:
            self._retired.remove(retired)

    def _has_undropped_tail(self) -> bool:
        if not self._retired:
            return False
        # A copy and no lock: the event loop calls this, and the sealing thread may remove items meanwhile.
        return any(not retired.tail_dropped for retired in tuple(self._retired))

    def _place(self, seq: int) -> Place:
        return Place(self._directory.directory, seq, self._files)
