"""A writer before a server that goes wrong: everything of the product but the processes.

Its sleep costs no time worth mentioning. What a test wants to happen while the writer waits is told by the
number of its nap: a fault is mended after so many tries, not after so many seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from receiver.dead_letters.letter_files import DeadLetters
from receiver.engine.store import Store
from receiver.ledger.ledger import Ledger
from receiver.redelivery.window import Window
from receiver.settings import Ledger as LedgerLimits
from receiver.settings import Redelivery
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.faults.proxy import Proxy
from tests.support.fake_clickhouse import NOW_S, FakeFile, FakeJournal
from tests.support.segments import Segment, SegmentMaker

REST_S = 60.0
"""Time that passes between two rounds of the writer, longer than a segment waits for its next turn."""
NAPS_MAX = 150
NAP_S = 0.02
"""What a nap really takes: a statement whose answer was lost goes on in the meantime."""


@dataclass
class Desk:
    """Segments, a store, and what the writer did about them."""

    store: Store
    past: Store
    """The same, past the proxy and with patience."""
    proxy: Proxy
    maker: SegmentMaker
    directory: Path
    clock_offset_s: float = 0.0
    progress: Progress = field(default_factory=Progress)
    segments: list[Segment] = field(default_factory=list)
    files: list[FakeFile] = field(default_factory=list)
    naps: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """What was in the way, at each nap."""
    on_nap: dict[int, Callable[[], object]] = field(default_factory=dict)

    def file(self, *ages_days: int) -> Segment:
        """Put a segment into the journal."""
        segment = self.maker.make(*ages_days)
        self.segments.append(segment)
        self.files.append(FakeFile(segment.held.segment, segment.path))
        return segment

    def sleep(self, delay_s: float) -> None:
        if not delay_s:
            return
        self.naps.append(delay_s)
        self.told.append(self.progress.trouble)
        if len(self.naps) > NAPS_MAX:
            raise Stopping
        self.on_nap.pop(len(self.naps), lambda: None)()
        time.sleep(NAP_S)

    def rest(self) -> None:
        """Let the time pass that a refused segment waits for its next turn."""
        self.clock_offset_s += REST_S
        self.sleep(REST_S)

    def start(self) -> Writer:
        """A writer as a new process has it: it remembers nothing but what is on the disk."""
        around = Environment(
            now=lambda: NOW_S + self.clock_offset_s,
            sleep=self.sleep,
            jitter=lambda: 0.0,
            repair_dir=self.directory / "repair",
            retention_days=30,
        )
        return Writer(
            FakeJournal(self.files),
            self.store,
            core=self.maker,
            ledger=Ledger(self.directory / "ledger", LedgerLimits(), lambda: NOW_S, is_first=True),
            window=Window(self.directory / "redelivery", Redelivery(), time.monotonic),
            dead=DeadLetters(self.directory / "dead"),
            progress=self.progress,
            environment=around,
        )

    def carry(self, *, fresh: bool = True) -> None:
        """Carry all that is there. `fresh`: sealed while this writer runs, so not in doubt from the start."""
        writer = self.start()
        if fresh:
            waiting, self.files[:] = self.files[:], []
            writer.drain()
            self.files[:] = waiting
        writer.drain()
        while any(file.path.exists() for file in self.files):
            self.rest()
            writer.drain()

    @property
    def letters(self) -> list[str]:
        """What was set aside."""
        return sorted(path.name for path in (self.directory / "dead").glob("*.json"))

    def assert_stored_once(self) -> None:
        """Every row of every segment, once, with the right fields; nothing left, nothing set aside."""
        assert self.letters == []
        for segment in self.segments:
            counted = self.past.counts([segment.held]).get(segment.held.segment, {})
            assert dict(counted) == segment.days
            assert self.rows(segment) == expected_rows(segment)
            assert self.traces(segment) == sum(segment.days.values())
            assert not segment.path.exists()

    def rows(self, segment: Segment) -> list[tuple[object, ...]]:
        """What is stored of a segment."""
        return self.past.rows(
            "SELECT TraceId, SpanId, ServiceName, ProjectId, SpanAttributes['k'], Duration FROM otel_traces "
            "WHERE SegmentSeq = {seq:UInt64} AND SegmentEpoch = {epoch:UInt64} ORDER BY SpanId",
            {"seq": segment.held.segment.seq, "epoch": segment.held.segment.epoch},
        )

    def traces(self, segment: Segment) -> int:
        """How many of its traces the companion knows."""
        found = self.past.rows(
            "SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts "
            "WHERE startsWith(TraceId, {start:String})",
            {"start": f"{segment.held.segment.seq:016x}"},
        )
        return int(found[0][0])


def expected_rows(segment: Segment) -> list[tuple[object, ...]]:
    """What must be stored of a segment."""
    seq = segment.held.segment.seq
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
