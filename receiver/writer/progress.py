"""Counters and state of the writer, for metrics and health. Only the writer's thread modifies them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from receiver.engine.error_codes import Fault
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.writer.units import Unit

FRESHNESS_KEPT = 1_000
"""Maximum number of freshness values between two reads of the metrics."""


@dataclass(slots=True)
class Progress:
    """Counters since start, and the current state."""

    inserts: int = 0
    rows: int = 0
    segments: int = 0
    alarms: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    """Failures of the store, by class."""
    dead: Counter[str] = field(default_factory=Counter)
    """Dead letters, by cause."""
    dead_rows: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    """Duplicate deliveries that were left out, by drain."""
    duplicate_spans: Counter[str] = field(default_factory=Counter)
    """Received spans of those deliveries, by drain."""
    window_entries: int = 0
    window_covered_s: float = 0.0
    window_trouble: str = ""
    """Reason that the deduplication window is shorter than configured; empty if it is not."""
    backlog_segments: int = 0
    backlog_bytes: int = 0
    oldest_since_s: float | None = None
    """Time when the oldest unstored segment was sealed, seconds since 1970; `None` without a backlog."""
    freshness_s: deque[float] = field(default_factory=lambda: deque(maxlen=FRESHNESS_KEPT))
    """Seconds from a segment's first delivery until its rows were stored; the metrics code removes them."""
    trouble: str = ""
    """Reason that the oldest segment is not stored yet; empty without a failure."""
    stalled: dict[SegmentId, str] = field(default_factory=dict)
    """Segments that make no progress although the store accepts other segments, each with the reason."""

    def oldest_age_s(self, now_s: float) -> float:
        """Return the age of the oldest segment in the backlog, which includes the segment being inserted."""
        return 0.0 if self.oldest_since_s is None else max(0.0, now_s - self.oldest_since_s)

    def stall(self, segment: SegmentId, reason: str) -> None:
        """Record a segment that makes no progress, and raise an alarm."""
        self.stalled[segment] = reason
        self.alarm("stalled", f"segment {segment} makes no progress: {reason}")

    @property
    def stall_reason(self) -> str:
        """Describe the segments that make no progress; empty if there are none."""
        # A copy, because the writer's thread may change the dictionary meanwhile.
        stalled = dict(self.stalled)
        if not stalled:
            return ""
        segment, reason = next(iter(stalled.items()))
        more = f", and {len(stalled) - 1} more" if len(stalled) > 1 else ""
        return f"segment {segment}{more} makes no progress: {reason}"

    def record_failure(self, fault: Fault, label: str) -> None:
        self.troubles[fault] += 1
        self.trouble = f"{fault}: {label}"

    def record_stored(self, rows: int, received_ms: tuple[int, int], now_s: float) -> None:
        self.segments += 1
        self.rows += rows
        if rows and received_ms[0]:
            self.freshness_s.append(max(0.0, now_s - received_ms[0] / 1_000))

    def record_window(self, entries: int, covered_s: float, trouble: str) -> None:
        self.window_entries, self.window_covered_s, self.window_trouble = entries, covered_s, trouble

    def record_duplicate(self, drain: str, spans: int) -> None:
        self.duplicates[drain] += 1
        self.duplicate_spans[drain] += spans

    def record_dead_letter(self, cause: str, rows: int) -> None:
        self.dead[cause] += 1
        self.dead_rows[cause] += rows

    def alarm(self, reason: str, text: str) -> None:
        """Count and log a failure that needs an operator."""
        self.alarms += 1
        limited.error(f"writer: {reason}", text)


class WaitingUnits:
    """The units that are not stored yet, oldest first. Reads the size of each once."""

    def __init__(self, units: Iterable[Unit], progress: Progress) -> None:
        self._waiting = {unit.id: (unit, unit.bytes) for unit in units}
        self._bytes = sum(size_bytes for _, size_bytes in self._waiting.values())
        self._progress = progress

    def remove(self, unit: Unit) -> None:
        """Remove a unit that is stored."""
        self._bytes -= self._waiting.pop(unit.id)[1]

    def report(self, now_s: float) -> None:
        """Record the size and age of the backlog."""
        oldest = next(iter(self._waiting.values()), (None, 0))[0]
        self._progress.backlog_segments, self._progress.backlog_bytes = len(self._waiting), self._bytes
        self._progress.oldest_since_s = None if oldest is None else _modified_s(oldest, now_s)


def _modified_s(segment: Unit, now_s: float) -> float:
    try:
        return segment.path.stat().st_mtime
    # Also if the disk cannot read the file: its own turn reports that.
    except OSError:
        return now_s
