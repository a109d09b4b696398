"""What the writer has done and how it stands, for metrics and health. Only its own thread writes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from receiver.logs import limited
from receiver.model import SegmentId
from receiver.storage.case import SegmentFile
from receiver.storage.faults import Fault

FRESHNESS_KEPT = 1_000


@dataclass(slots=True)
class Progress:
    """Counts since start, and the state of now."""

    inserts: int = 0
    rows: int = 0
    segments: int = 0
    alarms: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    """By class of fault."""
    dead: Counter[str] = field(default_factory=Counter)
    """Segments set aside, by cause."""
    dead_rows: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    """Deliveries left out because they are stored already, by drain."""
    duplicate_spans: Counter[str] = field(default_factory=Counter)
    """Their spans, all that were received."""
    window_entries: int = 0
    window_reach_s: float = 0.0
    window_trouble: str = ""
    """Why redeliveries are recognised for less long than they should be."""
    backlog_segments: int = 0
    backlog_bytes: int = 0
    oldest_since_s: float | None = None
    """When the oldest segment that is not stored yet was sealed, seconds since 1970; `None`: none waits."""
    freshness_s: deque[float] = field(default_factory=lambda: deque(maxlen=FRESHNESS_KEPT))
    """From a segment's first receipt to its rows being stored; taken out by whoever reports."""
    trouble: str = ""
    """Why the oldest segment is not stored yet; empty: nothing is in the way."""
    stalled: dict[SegmentId, str] = field(default_factory=dict)
    """Segments that make no progress though the store accepts others, and why."""

    def backlog(self, segments: Sequence[SegmentFile], now_s: float) -> None:
        """Note what still waits."""
        bytes_waiting = sum(segment.bytes for segment in segments)
        self.waits(segments[0] if segments else None, len(segments), bytes_waiting, now_s)

    def waits(self, oldest: SegmentFile | None, segments: int, bytes_waiting: int, now_s: float) -> None:
        """Note the same, counted by whoever knows."""
        self.backlog_segments, self.backlog_bytes = segments, bytes_waiting
        self.oldest_since_s = None if oldest is None else _modified_s(oldest, now_s)

    def oldest_age_s(self, now_s: float) -> float:
        """Return how long the oldest segment has waited until now, also while it is being inserted."""
        return 0.0 if self.oldest_since_s is None else max(0.0, now_s - self.oldest_since_s)

    def stall(self, segment: SegmentId, why: str) -> None:
        """Note a segment that makes no progress, and raise an alarm."""
        self.stalled[segment] = why
        self.alarm("stalled", f"segment {segment} makes no progress: {why}")

    @property
    def stall_reason(self) -> str:
        """Describe the segments that make no progress; empty: there is none."""
        stalled = dict(self.stalled)
        if not stalled:
            return ""
        segment, why = next(iter(stalled.items()))
        more = f", and {len(stalled) - 1} more" if len(stalled) > 1 else ""
        return f"segment {segment}{more} makes no progress while others do: {why}"

    def met(self, fault: Fault, label: str) -> None:
        """Note trouble with the store."""
        self.troubles[fault] += 1
        self.trouble = f"{fault}: {label}"

    def stored(self, rows: int, received_ms: tuple[int, int], now_s: float) -> None:
        """Note a segment that is in the store."""
        self.segments += 1
        self.rows += rows
        if rows and received_ms[0]:
            self.freshness_s.append(max(0.0, now_s - received_ms[0] / 1_000))

    def window(self, entries: int, reach_s: float, trouble: str) -> None:
        """Note how redeliveries are recognised."""
        self.window_entries, self.window_reach_s, self.window_trouble = entries, reach_s, trouble

    def duplicate(self, drain: str, spans: int) -> None:
        """Note a delivery that was stored before."""
        self.duplicates[drain] += 1
        self.duplicate_spans[drain] += spans

    def set_aside(self, cause: str, rows: int) -> None:
        """Note a dead letter."""
        self.dead[cause] += 1
        self.dead_rows[cause] += rows

    def alarm(self, reason: str, text: str) -> None:
        """Note what the writer cannot mend alone, and call a human."""
        self.alarms += 1
        limited.error(f"writer: {reason}", text)


def _modified_s(segment: SegmentFile, now_s: float) -> float:
    try:
        return segment.path.stat().st_mtime
    except FileNotFoundError:
        return now_s
