"""A writer whose store, journal, core and clock are test doubles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from receiver.dead_letters.directory import DeadLetters, Reason
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support.fake_clickhouse import (
    NOW_S,
    TODAY,
    FakeCore,
    FakeFile,
    FakeJournal,
    MemoryStore,
    open_ledger,
    open_window,
    segment_of,
)

ID = "0000000000000007-0000000001"
ROUNDS_MAX = 2_000
TWO_DAYS = segment_of([TODAY - 1] * 300 + [TODAY] * 200)


@dataclass
class WriterHarness:
    """A writer, and what it did to the store and the disk."""

    directory: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    files: list[FakeFile] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    core: FakeCore = field(default_factory=FakeCore)
    sleeps_max: int = 60
    heartbeat: Callable[[], None] = lambda: None
    between_turns_s: float = 0.0
    """Time that passed while no segment had a turn."""
    clock_step_s: float = 0.0
    """Difference by which the wall clock was set."""

    def file(self, content: bytes, *, seq: int = 1) -> FakeFile:
        """Add a segment to the journal."""
        file = FakeFile.make(self.directory, content, seq=seq)
        self.files.append(file)
        return file

    def sleep(self, delay_s: float) -> None:
        if delay_s:
            self.slept.append(round(delay_s, 3))
        if len(self.slept) >= self.sleeps_max:
            raise Stopping

    @property
    def writer(self) -> Writer:
        """A new writer."""
        environment = Environment(
            now=lambda: NOW_S + sum(self.slept) + self.between_turns_s + self.clock_step_s,
            monotonic=lambda: sum(self.slept) + self.between_turns_s,
            sleep=self.sleep,
            jitter=lambda: 0.0,
            repair_dir=self.directory / "repair",
            retention_days=30,
            heartbeat=self.heartbeat,
        )
        return Writer(
            FakeJournal(self.files),
            self.store,
            core=self.core,
            window=open_window(self.directory),
            ledger=open_ledger(self.directory),
            dead=DeadLetters(self.directory / "dead"),
            progress=self.progress,
            environment=environment,
        )

    def drain_first_segment(self, *, in_doubt: bool = False, turns_max: int = 1_000) -> None:
        """Run the writer until the first segment is deleted; time passes between the turns.

        `in_doubt`: the writer finds the segments at start, so their INSERTs may have been sent before.
        """
        writer, listed = self.writer, list(self.files)
        if not in_doubt:
            self.files.clear()
            writer.drain()
            self.files += listed
        for _ in range(turns_max):
            if not listed[0].path.exists():
                return
            self.between_turns_s += 0.0 if writer.drain() else 1.0

    def drain_all(self) -> None:
        """Run a writer that knows only the disk and the store, until the journal is empty."""
        writer = self.writer
        for _ in range(ROUNDS_MAX):
            if not any(file.path.exists() for file in self.files):
                return
            self.between_turns_s += 0.0 if writer.drain() else 60.0

    @property
    def stored(self) -> dict[str, int]:
        """Day → number of stored rows."""
        rows: Counter[str] = Counter()
        for _, day, count in self.store.parts:
            rows[day] += count
        return dict(rows)

    @property
    def tokens(self) -> list[str]:
        """Tokens of the INSERTs: `#0` for the segment, `piece#0` for a piece of it."""
        parts = (token.partition("#") for token in self.store.tokens)
        return [f"{'' if unit == ID else 'piece'}#{number}" for unit, _, number in parts]

    @property
    def reasons(self) -> list[Reason]:
        """Reasons of the dead letters."""
        paths = sorted((self.directory / "dead").glob("*.json"))
        return [msgspec.json.decode(path.read_bytes(), type=Reason) for path in paths]

    @property
    def dead(self) -> list[tuple[str, int | None]]:
        """Cause and number of rows of each dead letter."""
        return [(reason.cause, reason.rows) for reason in self.reasons]

    def dead_content(self, cause: str) -> bytes:
        """Return the bytes of the first segment's dead letter with this cause."""
        return (self.directory / "dead" / f"{ID}.{cause}.native.lz4").read_bytes()
