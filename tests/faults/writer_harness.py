"""Harness that runs the product's writer, without its processes, against a failing server.

The writer's sleep takes almost no time. Events during a wait are keyed by the number of the wait: a fault
ends after a number of attempts, not after a number of seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from receiver.dead_letters.directory import DeadLetters
from receiver.engine.store import Store
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.faults.proxy import Proxy
from tests.support.fake_clickhouse import NOW_S, FakeFile, FakeJournal, open_ledger, open_window
from tests.support.segments import Segment, SegmentMaker, stored_days

RETRY_WAIT_S = 60.0
"""Simulated time between two drains, longer than the retry delay of a refused segment."""
WAITS_MAX = 150
WAIT_S = 0.02
"""Real duration of a wait: a statement whose response was lost continues meanwhile."""


@dataclass
class WriterHarness:
    """Segments, a store, and how the writer dealt with them."""

    store: Store
    direct_store: Store
    """The same database, not through the proxy and without short time-outs."""
    proxy: Proxy
    maker: SegmentMaker
    directory: Path
    clock_offset_s: float = 0.0
    progress: Progress = field(default_factory=Progress)
    segments: list[Segment] = field(default_factory=list)
    files: list[FakeFile] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """The writer's error at each wait."""
    on_wait: dict[int, Callable[[], object]] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a case with an empty journal and a healthy server."""
        self.proxy.heal()
        self.proxy.inserts.clear()
        self.progress = Progress()
        for record in (self.segments, self.files, self.waits, self.errors, self.on_wait):
            record.clear()

    def add_segment(self, *ages_days: int) -> Segment:
        """Add a segment to the journal."""
        segment = self.maker.make(*ages_days)
        self.segments.append(segment)
        self.files.append(FakeFile(segment.location.segment, segment.path))
        return segment

    def sleep(self, delay_s: float) -> None:
        if not delay_s:
            return
        self.waits.append(delay_s)
        self.errors.append(self.progress.trouble)
        if len(self.waits) > WAITS_MAX:
            raise Stopping
        self.on_wait.pop(len(self.waits), lambda: None)()
        time.sleep(WAIT_S)

    def wait_for_retry(self) -> None:
        """Let the retry delay of a refused segment pass."""
        self.clock_offset_s += RETRY_WAIT_S
        self.sleep(RETRY_WAIT_S)

    def start(self) -> Writer:
        """Create a writer as a new process does: it knows only the contents of the disk."""
        return Writer(
            FakeJournal(self.files),
            self.store,
            core=self.maker,
            ledger=open_ledger(self.directory),
            window=open_window(self.directory),
            dead=DeadLetters(self.directory / "dead"),
            progress=self.progress,
            environment=Environment(
                now=lambda: NOW_S + self.clock_offset_s,
                monotonic=lambda: self.clock_offset_s + sum(self.waits),
                sleep=self.sleep,
                jitter=lambda: 0.0,
                repair_dir=self.directory / "repair",
                retention_days=30,
            ),
        )

    def drain_journal(self, *, fresh: bool = True) -> None:
        """Run the writer until the journal is empty.

        `fresh`: this writer ran when the segments were sealed, so it knows that it has not inserted them.
        """
        writer = self.start()
        if fresh:
            pending, self.files[:] = self.files[:], []
            writer.drain()
            self.files[:] = pending
        is_soon = writer.drain()
        while any(file.path.exists() for file in self.files):
            if not is_soon:
                self.wait_for_retry()
            is_soon = writer.drain()

    @property
    def dead_letters(self) -> list[str]:
        """Names of the dead letters."""
        return sorted(path.name for path in (self.directory / "dead").glob("*.json"))

    def assert_stored_once(self) -> None:
        """Assert that every row of every segment is stored once and unchanged."""
        assert self.dead_letters == []
        for segment in self.segments:
            assert stored_days(self.direct_store, segment) == segment.days
            assert self.rows(segment) == expected_rows(segment)
            assert self.traces(segment) == sum(segment.days.values())
            assert not segment.path.exists()

    def rows(self, segment: Segment) -> list[tuple[object, ...]]:
        """Return the stored rows of a segment."""
        return self.direct_store.rows(
            "SELECT TraceId, SpanId, ServiceName, ProjectId, SpanAttributes['k'], Duration FROM otel_traces "
            "WHERE startsWith(TraceId, {trace:String}) ORDER BY SpanId",
            {"trace": f"{segment.location.segment.seq:016x}"},
        )

    def traces(self, segment: Segment) -> int:
        """Count the segment's traces in the companion table."""
        result = self.direct_store.rows(
            "SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts "
            "WHERE startsWith(TraceId, {start:String})",
            {"start": f"{segment.location.segment.seq:016x}"},
        )
        return int(result[0][0])


def expected_rows(segment: Segment) -> list[tuple[object, ...]]:
    """Return the rows that must be stored for a segment."""
    seq = segment.location.segment.seq
    return [
        (
            f"{seq:016x}{row:016x}",
            f"{row + 1:016x}",
            "shop" if row % 2 else "cart",
            f"prj_{row % 2}",
            f"v{row}",
            2**63 + row,
        )
        for row in range(sum(segment.days.values()))
    ]
