"""The intake's end of the journal: one start directory, one segment open, records appended and synced.

    choose ──▶ (the core writes the segment's identity into every row) ──▶ append ──▶ the promise may be made
    retired: takes no more records ──▶ hand_over, beside all that ──▶ sealed, the writer's

Keeps: when `append` returns, the record outlives a power cut; when it raises, the record never comes back.
    The second half needs a disk that takes at least a cut or a mark (see `Place.cut`). Until it does, nothing
    else is acknowledged; a process that is killed in that state may leave a whole record that was answered
    503, and the writer knows the repetition by its digest.
Never: an event loop. All calls may block, except `choose`, `full_reason` and `is_stored`.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from receiver.durable.files import DISK
from receiver.errors import DiskTrouble, JournalFull, OperatorError, ShuttingDown
from receiver.journal.ceiling import Ceiling
from receiver.journal.names import Kind
from receiver.journal.outcomes import SegmentOutcomes
from receiver.journal.segment import Place, Segment
from receiver.journal.start import EpochDirectory
from receiver.logs import limited
from receiver.model import SegmentId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver import settings
    from receiver.durable.files import Files
    from receiver.journal.frame import Sums
    from receiver.journal.outcomes import SegmentOutcome

TROUBLE_S = 30.0
"""How long the last trouble is told without another try: who is sent elsewhere by it cannot try."""
RETRY_S = 1.0
"""How long a disk that refused to seal is left alone."""
ASK_S = 0.05
"""How long a predecessor is taken for not stored yet."""

TAIL_NOT_DROPPED = "journal's disk refuses to drop a record that was never acknowledged"
"""While this is so, nothing is acknowledged."""


class StaleSegment(Exception):  # noqa: N818 - a turn of events, not an error
    """The segment was closed since it was chosen. Nothing was written: choose and transcode again."""


@dataclass(slots=True)
class Retired:
    """A segment that takes no more records and is not sealed yet."""

    place: Place
    sums: Sums
    tail_dropped: bool
    """Nothing that was never acknowledged can come back."""
    tried_at_s: float = -math.inf
    """When the disk was last asked to seal it."""


class Appender:
    """One per intake start. Calls that write take turns; `choose`, `seal_retired` may be called beside them."""

    def __init__(
        self,
        root: Path,
        limits: settings.Journal,
        *,
        now: Callable[[], float] = time.monotonic,
        files: Files = DISK,
    ) -> None:
        try:
            self._start = EpochDirectory.create(root, files)
        except OSError as reason:
            found = reason.strerror or "unknown error"
            raise OperatorError(
                f"journal directory '{root}': {found}; expected a directory to write in"
            ) from reason
        self._limits = limits
        self._sealed_kind = Kind.ZSTD if limits.codec == "zstd" else Kind.LZ4
        self._now = now
        self._files = files
        self._outcomes = SegmentOutcomes(root.parent / "outcomes")
        self._ceiling = Ceiling(root, limits, files, now)
        self._ceiling.measure()
        self._writing = threading.Lock()
        self._choosing = threading.Lock()
        self._seq = 0
        self._seq_min = 0
        self._open: Segment | None = None
        self._opened_at_s = 0.0
        self._asked_at_s = 0.0
        self._retired: list[Retired] = []
        self._sealing = threading.Lock()
        self._error = ""
        self._error_at_s = 0.0
        self._closed = False

    @property
    def epoch(self) -> int:
        """The random bits of this start."""
        return self._start.epoch

    def choose(self) -> SegmentId:
        """Name the segment that the next record belongs to: the open one, or the next when that is due."""
        with self._choosing:
            current = self._open
            if current is not None and current.place.seq == self._seq and self._is_due(current):
                self._seq += 1
            return SegmentId(self.epoch, self._seq)

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """Put a record on the disk. A record of a later segment retires the open one: see `seal_retired`.

        Raises `JournalFull` or `DiskTrouble` (the sender must wait), `StaleSegment` (choose again).
        """
        with self._writing:
            if segment.epoch != self.epoch or segment.seq < self._seq_min:
                raise StaleSegment(str(segment))
            self._admit(len(record))
            try:
                self._open_segment(segment.seq).append(record, rows)
            except OSError as reason:
                raise self._failed(segment, reason) from reason
            self._error = ""
            self._ceiling.add(len(record))

    def retire_if_due(self) -> None:
        """Take no more records into what is due: see `seal_retired`. To be called when no group is in flight.

        Raises `OperatorError` when the start directory was removed: a new start has to draw another.
        """
        with self._writing:
            if self._start.is_gone():
                raise OperatorError(
                    f"start directory '{self._start.directory}' was removed; expected it to stay"
                )
            current = self._open
            if current is not None and (current.place.seq < self._seq or self._is_due(current)):
                self._retire(current, tail_dropped=True)
            self._ceiling.measure()

    def seal(self) -> None:
        """Hand the open segment over to the writer."""
        with self._writing:
            if self._open is not None:
                self._retire(self._open, tail_dropped=True)
        self.seal_retired()

    @property
    def has_retired(self) -> bool:
        """Whether a segment waits for `seal_retired`."""
        return bool(self._retired)

    def seal_retired(self) -> None:
        """Seal what takes no more records, for the writer. What the disk refuses is tried again, in time.

        No promise waits for this: what the segments hold is on the disk already. After `close` they are not
        ours any more, and nothing happens.
        """
        with self._sealing:
            if self._closed:
                return
            for retired in list(self._retired):
                if self._now() - retired.tried_at_s >= RETRY_S:
                    self._seal_one(retired)

    def close(self) -> None:
        """Seal and leave. What cannot be sealed is adopted later, as after a crash."""
        self.seal()
        with self._writing, self._sealing:
            self._closed = True
            self._start.leave()

    @property
    def trouble(self) -> str:
        """What the disk refused lately, if no append succeeded since."""
        return self._error if self._now() - self._error_at_s < TROUBLE_S else ""

    def full_reason(self, more_bytes: int = 0) -> str | None:
        """Return why a record of this size cannot be appended now; none: it probably can. Asks no disk."""
        if self._has_undropped_tail():
            return TAIL_NOT_DROPPED
        return self._ceiling.reason(more_bytes)

    def is_stored(self, segment: SegmentId) -> bool:
        """Whether the writer is done with this segment. When the disk does not say, it is not."""
        try:
            return self._place(segment.seq).is_stored() and not self._start.is_gone()
        except OSError:
            return False

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        """Return what became of a segment that is gone; `None`: the writer did not delete it."""
        return self._outcomes.read(segment)

    def _is_due(self, current: Segment) -> bool:
        limits = self._limits
        if current.sums.rows >= limits.segment_rows_max or current.bytes_good >= limits.segment_bytes_max:
            return True
        if (self._now() - self._opened_at_s) * 1000 < limits.segment_age_ms_max:
            return False
        return current.place.seq == 0 or self._is_predecessor_stored(current)

    def _is_predecessor_stored(self, current: Segment) -> bool:
        """Ask the disk, but not for each group of a backlog: an answer that is no is good for a moment."""
        if self._now() - self._asked_at_s < ASK_S:
            return False
        self._asked_at_s = self._now()
        return self.is_stored(SegmentId(self.epoch, current.place.seq - 1))

    def _admit(self, record_bytes: int) -> None:
        if self._closed:
            raise ShuttingDown("journal is closed; expected no more records")
        if self._has_undropped_tail():
            self.seal_retired()
        if self._has_undropped_tail():
            raise DiskTrouble(TAIL_NOT_DROPPED)
        self._ceiling.measure()
        reason = self._ceiling.reason(record_bytes)
        if reason is not None:
            raise JournalFull(reason)

    def _failed(self, segment: SegmentId, reason: OSError) -> DiskTrouble:
        """Leave the segment and remember the trouble."""
        if self._open is not None:
            self._retire(self._open, tail_dropped=False)
            self.seal_retired()
        self._error = f"journal segment {segment}: {reason.strerror}; expected a write"
        self._error_at_s = self._now()
        return DiskTrouble(self._error)

    def _open_segment(self, seq: int) -> Segment:
        if self._open is not None and self._open.place.seq < seq:
            self._retire(self._open, tail_dropped=True)
        if self._open is None:
            self._opened_at_s = self._now()
            self._seq_min = seq
            self._open = Segment(self._place(seq), self._start.is_gone)
        return self._open

    def _retire(self, target: Segment, *, tail_dropped: bool) -> None:
        """Take no more records into this segment."""
        target.close()
        self._open = None
        self._seq_min = target.place.seq + 1
        with self._choosing:
            self._seq = max(self._seq, self._seq_min)
        self._retired.append(Retired(target.place, target.sums, tail_dropped))

    def _seal_one(self, retired: Retired) -> None:
        retired.tried_at_s = self._now()
        try:
            if not retired.tail_dropped:
                retired.place.cut(retired.sums.bytes)
                retired.tail_dropped = True
            retired.place.seal(retired.sums.bytes, retired.sums.footer(), self._sealed_kind)
        except OSError as reason:
            segment = SegmentId(self.epoch, retired.place.seq)
            limited.warning("seal", "segment cannot be sealed yet", segment=str(segment), why=reason.strerror)
        else:
            self._retired.remove(retired)

    def _has_undropped_tail(self) -> bool:
        if not self._retired:
            return False
        return any(not retired.tail_dropped for retired in tuple(self._retired))

    def _place(self, seq: int) -> Place:
        return Place(self._start.directory, seq, self._files)
