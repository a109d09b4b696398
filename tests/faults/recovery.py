"""Checks after a crash of `commit_and_drain`: parses what it printed, and lets the next receiver recover.

The store survives the crash. The rows must be right twice: with what was on the disk, and again after every
sender has sent everything once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from receiver.errors import OperatorError
from receiver.journal.segments import Journal
from receiver.model import SegmentId
from receiver.redelivery.window import Window
from receiver.writer.progress import Progress
from tests.faults.commit_and_drain import WINDOW, commit_deliveries, new_writer, open_appender, open_ledger
from tests.support.fake_clickhouse import MemoryStore
from tests.support.segments import day_of

DRAINS_MAX = 12


@dataclass
class ChildOutput:
    """Lines that the child printed."""

    issued: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    stored: list[tuple[str, SegmentId, str, int]] = field(default_factory=list)
    """Token, segment, day, row count."""

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Self:
        """Parse whole lines; log lines are ignored."""
        output = cls()
        for line in lines:
            output.parse_line(line)
        return output

    def parse_line(self, line: str) -> None:
        """Parse one line."""
        match line.split():
            case ["issued", number]:
                self.issued.add(int(number))
            case ["acknowledged", number]:
                self.acknowledged.add(int(number))
            case ["stored", token, epoch, seq, day, rows]:
                self.stored.append((token, SegmentId(int(epoch), int(seq)), day, int(rows)))

    def store(self) -> MemoryStore:
        """Return a store with the rows that the child inserted."""
        store = MemoryStore()
        store.parts = [(segment, day, rows) for _, segment, day, rows in self.stored]
        store.used_tokens = {(token, day) for token, _, day, _ in self.stored}
        return store


def assert_promises_are_kept(data: Path, output: ChildOutput) -> None:
    """Let the next receiver start with this directory and this store, and check its rows."""
    store, progress = output.store(), Progress()
    window = Window(data / "redelivery", WINDOW, lambda: 0.0)
    drain(data, store, window, progress)
    for number, copies in copies_in(store, output.issued).items():
        assert copies in ({1.0} if number in output.acknowledged else {0.0, 1.0}), (number, copies)

    intake = open_appender(data)
    commit_deliveries(intake, output.parse_line, *sorted(output.issued))
    intake.close()
    drain(data, store, window, progress)

    window.close()
    assert set(copies_in(store, output.issued).values()) <= {1.0}
    assert (window.shortfall, progress.alarms, list(progress.dead)) == ("", 0, [])


def drain(data: Path, store: MemoryStore, window: Window, progress: Progress) -> None:
    """Run a writer until the journal is empty."""
    with closing(open_ledger(data)) as ledger:
        writer = new_writer(data, store, window, ledger, progress)
        for _ in range(DRAINS_MAX):
            writer.drain()
            if not Journal(data / "journal").sealed():
                return
    raise OperatorError(f"journal is not empty after {DRAINS_MAX} drains")


def copies_in(store: MemoryStore, numbers: Iterable[int]) -> dict[int, float]:
    """Return how often each delivery is stored; each delivery's rows belong to a separate day."""
    rows: Counter[str] = Counter()
    for _, day, count in store.parts:
        rows[day] += count
    return {number: rows[day_of(number)] / (number + 1) for number in numbers}
