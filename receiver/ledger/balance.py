"""Balance: ledger and journal combined at one instant, so that every received span is counted once.

    watch the ledger ──▶ read the journal ──▶ copy the sums ──▶ omit segments that are in both

A segment that was booked before the sums were copied is counted in the sums, even if its file was read too.
Any other segment is counted as in the journal. Spans appended after the journal was read are in neither.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple, TypeVar

from receiver.journal.heads import ReadPosition, pending_segments
from receiver.ledger.ledger import Ledger, Sums, Watch, is_first_on, read_sums
from receiver.ledger.line_sums import received_of
from receiver.model import Heading, SegmentId
from receiver.settings import Ledger as Limits

T = TypeVar("T")

_EPOCH = re.compile("[0-9a-f]{16}")


class Balance(NamedTuple):
    """Sums and journal at one instant."""

    sums: Sums
    journal: Mapping[Heading, int]
    """Spans that wait in the journal."""
    waiting: AbstractSet[SegmentId]
    """Segments that are not booked yet. They include replayed segments, whose spans are counted already."""
    part_epochs: frozenset[int] = frozenset()
    """Epochs of the parts of split segments that are not booked yet."""

    def totals(self) -> dict[str, Counter[str]]:
        """Return the spans by drain and outcome. Spans in the journal count as received."""
        totals: dict[str, Counter[str]] = {}
        for heading, counts in self.sums.lines.items():
            totals.setdefault(heading.drain, Counter()).update(counts.spans)
        for heading, spans in self.journal.items():
            totals.setdefault(heading.drain, Counter()).update({"journal": spans, "received": spans})
        return totals


class Backlog:
    """Spans in the journal by segment. Each read continues where the last read ended. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._known: dict[SegmentId, tuple[ReadPosition, Counter[Heading]]] = {}

    def part_epochs(self) -> frozenset[int]:
        """Return the epochs in DATA/cuts: rows of these parts may be in the store before they are booked."""
        names = (path.name.rpartition(".")[2] for path in self._root.with_name("cuts").glob("*.*"))
        return frozenset(int(name, 16) for name in names if _EPOCH.fullmatch(name))

    def read(self) -> dict[SegmentId, Counter[Heading]]:
        """Count the spans in the journal by segment and heading."""
        with self._lock:
            segments: dict[SegmentId, tuple[ReadPosition, Counter[Heading]]] = {}
            for waiting in pending_segments(self._root):
                mark, before = self._known.get(waiting.id, (None, Counter[Heading]()))
                read = waiting.read(mark)
                if read is not None:
                    new = received_of(read.deliveries)
                    segments[waiting.id] = (read.position, before + new if read.continues_previous else new)
            self._known = segments
            return {segment: spans for segment, (_, spans) in segments.items()}


class Accounts:
    """Ledger and journal of a running receiver."""

    def __init__(self, ledger: Ledger, backlog: Backlog) -> None:
        self.ledger = ledger
        self.backlog = backlog

    def balance(self) -> Balance:
        """Return the balance now."""
        with self.ledger.watching() as watch:
            return self._balance(watch)[0]

    def around(self, ask: Callable[[Balance], T]) -> tuple[T, Balance, Watch]:
        """Call `ask` between two balances. Returns its answer, the second balance and the bookings."""
        with self.ledger.watching() as watch:
            answer = ask(self._balance(watch)[0])
            return answer, *self._balance(watch)

    def _balance(self, watch: Watch) -> tuple[Balance, Watch]:
        waiting = self.backlog.read()
        sums, seen = self.ledger.sums(watch)
        return _balance(sums, waiting, seen.segments, self.backlog.part_epochs()), seen


class AccountsAtRest:
    """Ledger and journal of a data directory while no receiver runs. Writes nothing."""

    def __init__(self, data_dir: Path, limits: Limits) -> None:
        self._data_dir = data_dir
        self._limits = limits

    def balance(self) -> Balance:
        """Return the balance now."""
        is_first = is_first_on(self._data_dir)
        sums, booked = read_sums(self._data_dir / "ledger", self._limits, is_first=is_first)
        backlog = Backlog(self._data_dir / "journal")
        return _balance(sums, backlog.read(), booked, backlog.part_epochs())

    def around(self, ask: Callable[[Balance], T]) -> tuple[T, Balance, Watch]:
        """See `Accounts`. Nothing is booked in between, because no receiver runs."""
        balance = self.balance()
        return ask(balance), balance, Watch(set())


def _balance(
    sums: Sums,
    waiting: dict[SegmentId, Counter[Heading]],
    booked: set[SegmentId],
    part_epochs: frozenset[int],
) -> Balance:
    unbooked = waiting.keys() - booked
    journal: Counter[Heading] = Counter()
    for segment in unbooked - sums.replayed:
        journal.update(waiting[segment])
    return Balance(sums, journal, unbooked, part_epochs)
