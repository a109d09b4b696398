"""Background writer: inserts sealed journal segments into the store, oldest first, one INSERT at a time.

    settle   which deliveries are new   written down durably; from then on the segment's content is final
    carry    count, insert, mend        step by step until every due row was counted, or is a dead letter
    unlink                              or wait for another turn while other segments go first

A round gives every segment that was not tried yet its turn, then one of those that need many turns or were
refused: however many of these there are, a new segment waits for one turn of them at most.

Invariant: a segment is deleted when all its rows were counted in the store, or lie in the dead letters with
the reason. Never: gives up on the store. While it is away the journal grows, and senders get 503 when the
journal reaches its ceiling, not when the writer runs out of retries.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from receiver.dead_letters.letter_files import DeadLetters
from receiver.engine.store import Store
from receiver.journal.outcomes import SegmentOutcomes
from receiver.journal.segment_core import Core
from receiver.ledger.ledger import Ledger
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery.window import Window
from receiver.writer.backoff import Delays
from receiver.writer.dead_lettering import DeadLetterWriter
from receiver.writer.dedupe import Postponed, opened
from receiver.writer.environment import Environment, Stopping
from receiver.writer.error_policy import ErrorPolicy, Resting
from receiver.writer.inserting import Inserter
from receiver.writer.ledger_entries import LedgerEntries
from receiver.writer.poison import PoisonSearch
from receiver.writer.progress import Progress
from receiver.writer.segment_state import Journal, Reading, SegmentFile, SegmentState, SetAside
from receiver.writer.splitting import SegmentSplitter
from receiver.writer.transitions import Carrier

IDLE_S = 0.1
"""Between two looks at an empty journal."""


@dataclass(slots=True)
class Turn:
    """A segment that waits for its next turn."""

    delays: Delays
    case: SegmentState | None = None
    """`None`: it could not be read yet, and is counted before anything of it is sent."""
    due_s: float = 0.0
    """Not before this time, seconds since 1970."""


class Writer:
    """Drains the journal until `sleep` says there is no time left."""

    def __init__(  # noqa: PLR0913 - each is a neighbour that a test replaces
        self,
        journal: Journal,
        store: Store,
        *,
        core: Core,
        window: Window,
        ledger: Ledger,
        dead: DeadLetters,
        progress: Progress,
        around: Environment,
    ) -> None:
        self._journal = journal
        self._core = core
        self._window = window
        self._progress = progress
        self._ledger = ledger
        self._aside = DeadLetterWriter(dead, core, progress, around.now)
        self._outcomes = SegmentOutcomes(around.repair_dir.parent / "outcomes")
        self._cuts = SegmentSplitter(around.repair_dir.parent / "cuts", core)
        self._poison = PoisonSearch(store, core, self._aside, around)
        self._booking = LedgerEntries(ledger, store, self._cuts, window)
        self._around = around
        self._in_doubt: set[SegmentId] | None = None
        self._turns: dict[SegmentId, Turn] = {}
        """Segments that had a turn and are not stored: the one whose turn was longest ago comes first."""
        self._postponed: dict[SegmentId, SegmentId] = {}
        """Segments that hold a delivery of another one, and which they wait for."""
        self._scales = ErrorPolicy(journal, store, progress, around)
        inserter = Inserter(store, core, progress, around)
        self._carrier = Carrier(
            store,
            core,
            window,
            self._booking,
            progress,
            around,
            inserter,
            self._scales,
            self._poison,
            self._cuts,
        )

    def run(self) -> None:
        """Carry segments until stopped. Stopping between two steps loses nothing."""
        try:
            while True:
                if not self.drain():
                    self._around.sleep(IDLE_S)
                self._scales.inspect_if_due()
                self._around.alive()
        except Stopping:
            return

    def drain(self) -> int:
        """Give every sealed segment its turn, and one of those that wait for another. How many had one."""
        whole = list(self._journal.sealed())
        sealed = list(self._cuts.in_place(whole))
        if self._in_doubt is None:
            self._in_doubt = {segment.id for segment in sealed}
            self._begin(self._in_doubt | {segment.id for segment in whole} | {*self._journal.held})
        self._forget_deleted({segment.id for segment in [*whole, *sealed]})
        backlog = Backlog(sealed, self._progress)
        carried = 0
        for segment in self._in_turn(sealed):
            self._around.sleep(0)
            self.look_after()
            backlog.report(self._around.now())
            carried += self._carry_if_readable(segment, self._in_doubt)
            if segment.id not in self._turns and segment.id not in self._postponed:
                backlog.remove(segment)
        self.look_after()
        backlog.report(self._around.now())
        return carried

    def _forget_deleted(self, present: Container[SegmentId]) -> None:
        """Forget the turns of segments that somebody else deleted."""
        for segment in [one for one in self._turns if one not in present]:
            del self._turns[segment]
            self._progress.stalled.pop(segment, None)

    def _in_turn(self, sealed: Iterable[SegmentFile]) -> list[SegmentFile]:
        """Choose the segments of one round, in order: first those never tried, begun ones before others.

        What was begun in an earlier life comes first, because others may have to wait for it.
        """
        due = {segment.id: segment for segment in sealed if not self._rests(segment.id)}
        fresh = [segment for segment in due.values() if segment.id not in self._turns]
        fresh.sort(key=lambda segment: self._window.decision(segment.id) is None)
        return [*fresh, *[due[tried] for tried in self._turns if tried in due][:1]]

    def look_after(self) -> None:
        """See to what is due between two segments, and while the store has no tables to carry any into."""
        self._put_back()
        self._window.tick()
        self._progress.window(len(self._window), self._window.reach_s, self._window.shortfall)

    def _begin(self, present: set[SegmentId]) -> None:
        """Take over from an earlier life. What that sent out of `repair` is counted like any other INSERT."""
        shutil.rmtree(self._around.repair_dir, ignore_errors=True)
        for gone in self._ledger.stored_and_gone(present):
            self._window.end_if_pending(gone)
        self._window.retain(present)
        self._cuts.retain(present)
        self._ledger.retain(present)

    def _put_back(self) -> None:
        """What we know is in memory, too: it is written anew when somebody takes it away under us."""
        known: dict[str, Ledger | Window] = {"ledger": self._ledger, "redelivery window": self._window}
        for name, one in known.items():
            try:
                if one.restore_files():
                    self._progress.alarm("gone", f"{name} was taken away while in use; it was written anew")
            except OSError as reason:
                self._progress.trouble = f"{name} was taken away and cannot be written: {reason.strerror}"
                limited.error("writer: gone", self._progress.trouble)

    def _rests(self, segment: SegmentId) -> bool:
        """Whether it, or the segment it waits for, has to let others go first."""
        turn = self._turns.get(self._postponed.get(segment, segment))
        return turn is not None and self._around.now() < turn.due_s

    def _carry_if_readable(self, segment: SegmentFile, in_doubt: set[SegmentId]) -> bool:
        """Give a segment its turn; one that our own disk cannot read lets others go first. False: no turn.

        What was known of it is dropped with its case, so the next try counts before it sends anything.
        """
        self._postponed.pop(segment.id, None)
        try:
            self.carry(segment, in_doubt=segment.id in in_doubt)
        except Postponed as reason:
            self._postponed[segment.id] = reason.by
            return False
        except (OSError, msgspec.DecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "the reason of its dead letter is damaged"
            self._progress.trouble = f"segment {segment.id}: {why}"
            self._progress.stall(segment.id, f"the disk does not let it be read or deleted: {why}")
            turn = self._turns.pop(segment.id)
            turn.case = None
            self._rest(segment.id, turn, next(turn.delays.slow))
        if segment.id in self._turns and self._turns[segment.id].case is None:
            in_doubt.add(segment.id)
        else:
            in_doubt.discard(segment.id)
        return True

    def _rest(self, segment: SegmentId, turn: Turn, delay_s: float) -> None:
        """Have a segment wait for its next turn, behind the others that do."""
        turn.due_s = self._around.now() + delay_s
        self._turns.pop(segment, None)
        self._turns[segment] = turn

    def carry(self, segment: SegmentFile, *, in_doubt: bool) -> None:
        """Give a segment its turn: it is stored, becomes a dead letter, or waits for another turn.

        Raises `Postponed` before anything of it is decided: another segment comes first.
        """
        turn = self._turns.setdefault(segment.id, Turn(Delays(self._around.jitter)))
        try:
            self._carry(segment, turn, in_doubt=in_doubt)
        except Resting as reason:
            self._rest(segment.id, turn, 0.0 if reason.is_over_soon else next(turn.delays.slow))
        except Postponed:
            del self._turns[segment.id]
            raise
        else:
            del self._turns[segment.id]

    def _carry(self, segment: SegmentFile, turn: Turn, *, in_doubt: bool) -> None:
        if self._aside.is_done_with(segment.id):
            self._let_go(segment)
            return
        if turn.case is None:
            turn.case = self._begun(segment, in_doubt=in_doubt)
        case = turn.case
        try:
            while not self._carrier.is_carried(case, turn.delays):
                pass
            self._let_go(segment)
            self._progress.stored(case.rows, case.received_ms, self._around.now())
        except SetAside as reason:
            # Recorded in the ledger before its dead letter is there: with the letter it is done with.
            self._booking.ended(case)
            self._aside.keep(case, reason)
            self._let_go(segment)
            self._progress.rows += case.rows_stored

    def _let_go(self, segment: SegmentFile) -> None:
        """Its rows are in the store, in its parts' care, or in a letter.

        Promised until it is gone: were the store to take it after all, a copy would be stored twice.
        """
        if self._aside.is_as_bad_as_its_copy(segment.id):
            self._window.end_if_pending(segment.id)
        self._publish(segment.id)
        segment.unlink()
        self._cuts.forget(segment.id)
        self._window.forget(segment.id)
        self._ledger.settle(segment.id)
        self._progress.stalled.pop(segment.id, None)
        self._progress.trouble = ""

    def _publish(self, segment: SegmentId) -> None:
        """Let intakes know what becomes of a segment whose file is about to go."""
        try:
            outcome = self._aside.outcome_of(segment, self._cuts.epoch_of(segment))
            self._outcomes.write(segment, outcome)
        except OSError as reason:
            limited.warning("writer: outcome", "outcome cannot be written", why=reason.strerror)

    def _begun(self, segment: SegmentFile, *, in_doubt: bool) -> SegmentState:
        """Read a segment and decide what of it is stored. Raises `Postponed`, `Resting`."""
        case = opened(
            segment,
            self._core,
            self._window,
            in_doubt=in_doubt,
            left_out=self._poison.left_out_of(segment.id),
            has_rows=self._carrier.has_rows,
            on_damage=self._on_damage,
        )
        if self._cuts.is_cut(segment.id):
            case.rows, case.rest, case.must_look = 0, "dead", True
        else:
            self._poison.recall(case)
        return case

    def _on_damage(self, reading: Reading, rows_given_up: int) -> None:
        """Keep a copy of what the disk gave back damaged, and book what is lost."""
        self._booking.damaged(reading)
        self._aside.keep_damaged(reading, rows_given_up)


class Backlog:
    """The sealed segments of one round that are not stored yet, oldest first."""

    def __init__(self, sealed: Sequence[SegmentFile], progress: Progress) -> None:
        self._waiting = {segment.id: (segment, segment.bytes) for segment in sealed}
        self._bytes = sum(size_bytes for _, size_bytes in self._waiting.values())
        self._progress = progress

    def remove(self, segment: SegmentFile) -> None:
        """Count a segment no longer: it was deleted."""
        self._bytes -= self._waiting.pop(segment.id)[1]

    def report(self, now_s: float) -> None:
        """Report how much waits, and since when."""
        oldest = next(iter(self._waiting.values()), (None, 0))[0]
        self._progress.waits(oldest, len(self._waiting), self._bytes, now_s)
