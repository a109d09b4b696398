"""Life of a store process on one data directory, in this process, with real files and a store in memory.

    start      lock, ledger, window, leftovers of a crash
    writer     a segment that must be split, a duplicate, two poisonous deliveries that become dead letters
    window     a tick that writes, generations that are closed
    operator   replays one dead letter and deletes the other

Delivery n has n + 1 rows, all n days old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from receiver import transcode
from receiver.dead_letters.directory import DeadLetterList
from receiver.dead_letters.replay import Replayer
from receiver.engine.opening import claimed
from receiver.errors import DeadLetterConflict, NoSuchDeadLetter
from receiver.journal.segments import Journal
from receiver.ledger.ledger import Ledger, Sums, read_sums
from receiver.redelivery.window import TICK_S, Window
from receiver.settings import Ledger as LedgerLimits
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.faults.commit_and_drain import WINDOW, commit_deliveries, new_writer, open_appender, open_ledger
from tests.faults.recovery import ChildOutput, copies_in
from tests.support.fake_clickhouse import NOW_S, MemoryStore
from tests.support.redelivery import POLICY
from tests.support.segments import DIGEST_KEY, day_of

SENT = [(1, 6), (2, 0), (3,), (4, 1)]
REPLAYED, DELETED = 2, 4
ROWS_MAX = 8
"""The first segment has more rows, so it is split."""
DRAINS_MAX = 45
ATTEMPTS = 2


@dataclass
class StoreLife:
    """A data directory with a filled journal, and what survives a process: files, rows, the time."""

    data: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    output: ChildOutput = field(default_factory=ChildOutput)
    clock_s: float = 0.0

    def fill_journal(self) -> None:
        """Accept deliveries, as an intake that stops afterwards."""
        intake = open_appender(self.data)
        for numbers in SENT:
            commit_deliveries(intake, self.output.parse_line, *numbers)
        intake.close()

    def run(self) -> None:
        """Run a store process from start to stop."""
        self.store.rows_max = ROWS_MAX
        self.store.poisonous_days = {day_of(REPLAYED), day_of(DELETED)}
        with self._process() as (writer, dead_letters, replayer):
            self._drain(writer)
            self.clock_s += 2 * TICK_S
            writer.run_maintenance()
            self.store.poisonous_days = set()
            letters = {letter.reason.rows: letter.id for letter in dead_letters.dead.listed()}
            _attempt(replayer.replay, letters.get(REPLAYED + 1, "missing"))
            self._drain(writer)
            _attempt(dead_letters.drop, letters.get(DELETED + 1, "missing"))

    def recover(self) -> None:
        """Run the next store process, without a fault, and replay every dead letter that is left."""
        with self._process() as (writer, dead_letters, replayer):
            self._drain(writer)
            self.store.poisonous_days = set()
            for entry in dead_letters.entries():
                replayer.replay(entry.id)
            self._drain(writer)
            assert dead_letters.entries() == []
        assert Journal(self.data / "journal").sealed() == []

    @property
    def copies(self) -> dict[int, float]:
        """Delivery → how often its rows are stored."""
        return copies_in(self.store, self.output.issued)

    @property
    def sums(self) -> Sums:
        """The ledger on the disk."""
        return read_sums(self.data / "ledger", LedgerLimits())[0]

    @contextmanager
    def _process(self) -> Iterator[tuple[Writer, DeadLetterList, Replayer]]:
        with ExitStack() as stack:
            stack.enter_context(claimed(self.data))
            ledger = stack.enter_context(closing(open_ledger(self.data)))
            window = Window(self.data / "redelivery", WINDOW, lambda: self.clock_s, extent_min=ledger.window)
            stack.enter_context(closing(window))
            dead_letters = DeadLetterList(self.data)
            dead_letters.dead.tidy()
            writer = new_writer(
                self.data, self.store, window, ledger, Progress(), now_s=lambda: NOW_S + self.clock_s
            )
            yield writer, dead_letters, self._replayer(dead_letters, ledger)

    def _replayer(self, dead_letters: DeadLetterList, ledger: Ledger) -> Replayer:
        return Replayer(
            dead_letter_list=dead_letters,
            journal=self.data / "journal",
            store=self.store,
            commit=partial(transcode.commit, POLICY, digest_key=DIGEST_KEY),
            body_bytes_max=lambda _drain: 1 << 20,
            now=lambda: NOW_S + self.clock_s,
            check=lambda: None,
            on_replay=ledger.record_replay,
        )

    def _drain(self, writer: Writer) -> None:
        for _ in range(DRAINS_MAX):
            writer.drain()
            if not Journal(self.data / "journal").sealed():
                return
            self.clock_s += 60.0


def _attempt(action: Callable[[str], object], name: str) -> None:
    """Perform an operator's action; repeat it after an error of the disk."""
    for _ in range(ATTEMPTS):
        with suppress(OSError, NoSuchDeadLetter, DeadLetterConflict):
            action(name)
            return
