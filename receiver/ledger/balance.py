"""Balance: ledger and journal combined at one instant, so that every received span is counted once.

    watch the ledger ──▶ read the journal ──▶ copy the sums ──▶ omit segments that are in both

A segment that was recorded before the sums were copied is counted in the sums, even if its file was read too.
The spans of any other segment are counted as in the journal. Spans appended after the journal was read are
not counted at all.
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
from receiver.ledger.ledger import Ledger, Sums, Watch, deletion_path, is_first_on, read_sums
from receiver.ledger.line_sums import received_of
from receiver.model import Heading, SegmentId
from receiver.settings import Ledger as Limits

T = TypeVar("T")

_EPOCH = re.compile("[0-9a-f]{16}")


class Balance(NamedTuple):
    """Sums and journal at one instant."""

    sums: Sums
    journal: Mapping[Heading, int]
    """Number of spans in the journal that are not counted in `sums`."""
    waiting: AbstractSet[SegmentId]
    """Segments that are not recorded yet, including replayed segments, whose spans are in the sums."""
    part_epochs: frozenset[int] = frozenset()
    """Epochs of the parts of split segments that are not recorded yet."""
    is_deleting: bool = False
    """Whether the table may have rows that `sums` counts as deleted."""

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
        """Return the epochs in DATA/splits: rows of pieces may be stored before they are recorded."""
        names = (path.stem.rpartition(".")[2] for path in self._root.with_name("splits").glob("*.*.json"))
        return frozenset(int(name, 16) for name in names if _EPOCH.fullmatch(name))

    def segments(self) -> frozenset[SegmentId]:
        """Return the segments in the journal: also recorded ones, and those that cannot be read."""
        return frozenset(segment.id for segment in pending_segments(self._root))

    def is_deleting(self) -> bool:
        """Return whether the deletion of spans is not finished."""
        return deletion_path(self._root.parent).exists()

    def read(self) -> dict[SegmentId, Counter[Heading]]:
        """Count the spans in the journal by segment and heading."""
        with self._lock:
            segments: dict[SegmentId, tuple[ReadPosition, Counter[Heading]]] = {}
            for waiting in pending_segments(self._root):
                # Continuing at the last position keeps a read proportional to new data, not to the size of
                # the journal.
                mark, before = self._known.get(waiting.id, (None, Counter[Heading]()))
                read = waiting.read(mark)
                if read is not None:
                    new = received_of(read.deliveries)
                    segments[waiting.id] = (read.position, before + new if read.continues_previous else new)
            # Replace the whole dictionary, so that deleted segments do not accumulate.
            self._known = segments
            return {segment: spans for segment, (_, spans) in segments.items()}


class LiveBalanceSource:
    """Ledger and journal of a running receiver."""

    def __init__(self, ledger: Ledger, backlog: Backlog) -> None:
        self.ledger = ledger
        self.backlog = backlog

    def balance(self) -> Balance:
        with self.ledger.watching() as watch:
            return self._balance(watch)[0]

    def between_balances(self, call: Callable[[Balance], T]) -> tuple[T, Balance, Watch]:
        """Run `call` with a balance. Returns its result, a later balance and the entries in between."""
        with self.ledger.watching() as watch:
            result = call(self._balance(watch)[0])
            return result, *self._balance(watch)

    def _balance(self, watch: Watch) -> tuple[Balance, Watch]:
        # The journal first: a segment that is recorded in between is in the sums, and `seen` names it.
        waiting = self.backlog.read()
        sums, seen = self.ledger.sums(watch)
        return _balance(sums, waiting, seen.segments, self.backlog), seen


class OfflineBalanceSource:
    """Ledger and journal of a data directory while no receiver runs. Writes nothing."""

    def __init__(self, data_dir: Path, limits: Limits) -> None:
        self._data_dir = data_dir
        self._limits = limits

    def balance(self) -> Balance:
        is_first = is_first_on(self._data_dir)
        sums, recorded = read_sums(self._data_dir / "ledger", self._limits, is_first=is_first)
        backlog = Backlog(self._data_dir / "journal")
        return _balance(sums, backlog.read(), recorded, backlog)

    def between_balances(self, call: Callable[[Balance], T]) -> tuple[T, Balance, Watch]:
        """Run `call` with a balance. No entry is recorded in between, because no receiver runs."""
        balance = self.balance()
        return call(balance), balance, Watch(set())


BalanceSource = LiveBalanceSource | OfflineBalanceSource


def _balance(
    sums: Sums, waiting: dict[SegmentId, Counter[Heading]], recorded: set[SegmentId], backlog: Backlog
) -> Balance:
    unrecorded = waiting.keys() - recorded
    # The spans of a replayed segment are already in the sums, as dead.
    journal: Counter[Heading] = Counter()
    for segment in unrecorded - sums.replayed:
        journal.update(waiting[segment])
    return Balance(sums, journal, unrecorded, backlog.part_epochs(), backlog.is_deleting())
