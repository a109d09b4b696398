"""Counters and state of the writer, for metrics and health. Only the writer's thread modifies them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from receiver.engine.error_codes import Fault
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.writer.segment_state import SegmentFile

FRESHNESS_KEPT = 1_000


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
    window_reach_s: float = 0.0
    window_trouble: str = ""
    """Why the deduplication window is shorter than configured; empty: it is not."""
    backlog_segments: int = 0
    backlog_bytes: int = 0
    oldest_since_s: float | None = None
    """When the oldest segment that is not stored yet was sealed, seconds since 1970; `None`: no backlog."""
    freshness_s: deque[float] = field(default_factory=lambda: deque(maxlen=FRESHNESS_KEPT))
    """Seconds from a segment's first delivery until its rows were stored; the metrics code removes them."""
    trouble: str = ""
    """Why the oldest segment is not stored yet; empty: no failure."""
    stalled: dict[SegmentId, str] = field(default_factory=dict)
    """Segments that make no progress though the store accepts others, and why."""

    def record_backlog(self, segments: Sequence[SegmentFile], now_s: float) -> None:
        """Record the segments that are not stored yet, oldest first."""
        bytes_waiting = sum(segment.bytes for segment in segments)
        self.record_backlog_sizes(segments[0] if segments else None, len(segments), bytes_waiting, now_s)

    def record_backlog_sizes(
        self, oldest: SegmentFile | None, segments: int, bytes_waiting: int, now_s: float
    ) -> None:
        """Record the backlog from its oldest segment and totals."""
        self.backlog_segments, self.backlog_bytes = segments, bytes_waiting
        self.oldest_since_s = None if oldest is None else _modified_s(oldest, now_s)

    def oldest_age_s(self, now_s: float) -> float:
        """Return how long the oldest segment has waited until now, also while it is being inserted."""
        return 0.0 if self.oldest_since_s is None else max(0.0, now_s - self.oldest_since_s)

    def stall(self, segment: SegmentId, reason: str) -> None:
        """Record a segment that makes no progress, and raise an alarm."""
        self.stalled[segment] = reason
        self.alarm("stalled", f"segment {segment} makes no progress: {reason}")

    @property
    def stall_reason(self) -> str:
        """Describe the segments that make no progress; empty if there are none."""
        stalled = dict(self.stalled)
        if not stalled:
            return ""
        segment, reason = next(iter(stalled.items()))
        more = f", and {len(stalled) - 1} more" if len(stalled) > 1 else ""
        return f"segment {segment}{more} makes no progress while others do: {reason}"

    def record_failure(self, fault: Fault, label: str) -> None:
        """Record a failure of the store."""
        self.troubles[fault] += 1
        self.trouble = f"{fault}: {label}"

    def record_stored(self, rows: int, received_ms: tuple[int, int], now_s: float) -> None:
        """Record a segment whose rows are in the store."""
        self.segments += 1
        self.rows += rows
        if rows and received_ms[0]:
            self.freshness_s.append(max(0.0, now_s - received_ms[0] / 1_000))

    def record_window(self, entries: int, reach_s: float, trouble: str) -> None:
        """Record the state of the deduplication window."""
        self.window_entries, self.window_reach_s, self.window_trouble = entries, reach_s, trouble

    def record_duplicate(self, drain: str, spans: int) -> None:
        """Record a duplicate delivery."""
        self.duplicates[drain] += 1
        self.duplicate_spans[drain] += spans

    def record_dead_letter(self, cause: str, rows: int) -> None:
        """Record a dead letter."""
        self.dead[cause] += 1
        self.dead_rows[cause] += rows

    def alarm(self, reason: str, text: str) -> None:
        """Count and log a failure that needs an operator."""
        self.alarms += 1
        limited.error(f"writer: {reason}", text)


def _modified_s(segment: SegmentFile, now_s: float) -> float:
    try:
        return segment.path.stat().st_mtime
    except FileNotFoundError:
        return now_s
