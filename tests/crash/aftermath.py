"""What `hand_over` said before it ended, and whether the next receiver brings it to a good end.

The store outlived it. So the books must balance twice: with what is found on the disk, and once more after
every sender has sent everything again.
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
from tests.crash.hand_over import WINDOW, intake_of, ledger_of, take_in, writer_of
from tests.support.fake_clickhouse import MemoryStore
from tests.support.segments import day_of

DRAINS_MAX = 12


@dataclass
class Said:
    """Everything that was said aloud."""

    issued: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    stored: list[tuple[str, SegmentId, str, int]] = field(default_factory=list)
    """Token, segment, day, rows."""

    @classmethod
    def read(cls, lines: Iterable[str]) -> Self:
        """Understand whole lines, log lines left out."""
        said = cls()
        for line in lines:
            said.hear(line)
        return said

    def hear(self, line: str) -> None:
        """Understand one more."""
        match line.split():
            case ["issued", number]:
                self.issued.add(int(number))
            case ["acknowledged", number]:
                self.acknowledged.add(int(number))
            case ["stored", token, epoch, seq, day, rows]:
                self.stored.append((token, SegmentId(int(epoch), int(seq)), day, int(rows)))

    def store(self) -> MemoryStore:
        """The store, as it is found."""
        found = MemoryStore()
        found.parts = [(segment, day, rows) for _, segment, day, rows in self.stored]
        found.used_tokens = {(token, day) for token, _, day, _ in self.stored}
        return found


def assert_promises_are_kept(data: Path, said: Said) -> None:
    """Let the next receiver begin with this directory and this store."""
    store, progress = said.store(), Progress()
    window = Window(data / "redelivery", WINDOW, lambda: 0.0)
    drain(data, store, window, progress)
    for number, copies in copies_in(store, said.issued).items():
        assert copies in ({1.0} if number in said.acknowledged else {0.0, 1.0}), (number, copies)

    again = intake_of(data)
    take_in(again, said.hear, *sorted(said.issued))
    again.close()
    drain(data, store, window, progress)

    window.close()
    assert set(copies_in(store, said.issued).values()) <= {1.0}
    assert (window.shortfall, progress.alarms, list(progress.dead)) == ("", 0, [])


def drain(data: Path, store: MemoryStore, window: Window, progress: Progress) -> None:
    """Carry everything that lies there."""
    with closing(ledger_of(data)) as ledger:
        writer = writer_of(data, store, window, ledger, progress)
        for _ in range(DRAINS_MAX):
            writer.drain()
            if not Journal(data / "journal").sealed():
                return
    raise OperatorError(f"journal is not empty after {DRAINS_MAX} drains")


def copies_in(store: MemoryStore, numbers: Iterable[int]) -> dict[int, float]:
    """Delivery → how often its rows are stored: all of its rows are of a day of its own."""
    rows: Counter[str] = Counter()
    for _, day, count in store.parts:
        rows[day] += count
    return {number: rows[day_of(number)] / (number + 1) for number in numbers}
