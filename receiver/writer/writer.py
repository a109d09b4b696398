"""Background writer: inserts sealed journal segments into the store, oldest first, one INSERT at a time.

    open      decide which deliveries are new   recorded durably; the segment's content is final from then on
    process   count, insert, insert the rest    until every due row was counted or is a dead letter
    delete                                      or wait for the next turn while other segments go first

Each round processes every new segment, then one segment that needs several turns or was refused. So a new
segment waits for at most one such turn, however many of those segments there are.

Invariant: a segment is deleted only when all its rows were counted in the store or are in the dead letters.
Never: gives up on the store. While the store is unavailable the journal grows; senders get 503 when the
journal reaches its size limit, not when the writer runs out of retries.
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
from receiver.writer.dedupe import WaitingFor, open_segment
from receiver.writer.environment import Environment, Stopping
from receiver.writer.error_policy import ErrorPolicy, TurnEnded
from receiver.writer.inserting import Inserter
from receiver.writer.ledger_entries import LedgerEntries
from receiver.writer.poison import PoisonSearch
from receiver.writer.progress import Progress
from receiver.writer.segment_state import DeadLettered, Journal, Reading, SegmentFile, SegmentState
from receiver.writer.splitting import SegmentSplitter
from receiver.writer.transitions import SegmentProcessor

IDLE_S = 0.1
"""Interval between two checks of an empty journal."""


@dataclass(slots=True)
class Turn:
    """A segment that waits for its next turn."""

    delays: Delays
    state: SegmentState | None = None
    """`None`: the segment could not be read yet, so its rows are counted before any are sent."""
    due_s: float = 0.0
    """Earliest time of the turn, seconds since 1970."""


class Writer:
    """Drains the journal until `sleep` raises `Stopping`."""

    def __init__(  # noqa: PLR0913 - each is a dependency that a test replaces
        self,
        journal: Journal,
        store: Store,
        *,
        core: Core,
        window: Window,
        ledger: Ledger,
        dead: DeadLetters,
        progress: Progress,
        environment: Environment,
    ) -> None:
        self._journal = journal
        self._core = core
        self._window = window
        self._progress = progress
        self._ledger = ledger
        self._dead_letters = DeadLetterWriter(dead, core, progress, environment.now)
        self._outcomes = SegmentOutcomes(environment.repair_dir.parent / "outcomes")
        self._splitter = SegmentSplitter(environment.repair_dir.parent / "cuts", core)
        self._poison = PoisonSearch(store, core, self._dead_letters, environment)
        self._ledger_entries = LedgerEntries(ledger, store, self._splitter, window)
        self._environment = environment
        self._in_doubt: set[SegmentId] | None = None
        self._turns: dict[SegmentId, Turn] = {}
        """Segments that had a turn and are not stored, the least recent turn first."""
        self._postponed: dict[SegmentId, SegmentId] = {}
        """Segments that share a delivery with another segment, and the segment they wait for."""
        self._error_policy = ErrorPolicy(journal, store, progress, environment)
        inserter = Inserter(store, core, progress, environment)
        self._processor = SegmentProcessor(
            store,
            core,
            window,
            self._ledger_entries,
            progress,
            environment,
            inserter,
            self._error_policy,
            self._poison,
            self._splitter,
        )

    def run(self) -> None:
        """Process segments until stopped. Stopping between two steps loses nothing."""
        try:
            while True:
                if not self.drain():
                    self._environment.sleep(IDLE_S)
                self._error_policy.inspect_if_due()
                self._environment.alive()
        except Stopping:
            return

    def drain(self) -> int:
        """Process every new segment and one that waits for its next turn. Return the number of turns."""
        whole = list(self._journal.sealed())
        sealed = list(self._splitter.replace_with_parts(whole))
        if self._in_doubt is None:
            self._in_doubt = {segment.id for segment in sealed}
            self._recover(self._in_doubt | {segment.id for segment in whole} | {*self._journal.held})
        self._forget_deleted({segment.id for segment in [*whole, *sealed]})
        backlog = Backlog(sealed, self._progress)
        turn_count = 0
        for segment in self._in_turn(sealed):
            self._environment.sleep(0)
            self.run_maintenance()
            backlog.report(self._environment.now())
            turn_count += self._process_if_readable(segment, self._in_doubt)
            if segment.id not in self._turns and segment.id not in self._postponed:
                backlog.remove(segment)
        self.run_maintenance()
        backlog.report(self._environment.now())
        return turn_count

    def _forget_deleted(self, present: Container[SegmentId]) -> None:
        """Remove the turns of segments that were deleted by another process."""
        for segment in [segment for segment in self._turns if segment not in present]:
            del self._turns[segment]
            self._progress.stalled.pop(segment, None)

    def _in_turn(self, sealed: Iterable[SegmentFile]) -> list[SegmentFile]:
        """Return the segments of one round in order: new segments, then one that had a turn before.

        Segments that an earlier process began come first, because others may have to wait for them.
        """
        due = {segment.id: segment for segment in sealed if not self._must_wait(segment.id)}
        fresh = [segment for segment in due.values() if segment.id not in self._turns]
        fresh.sort(key=lambda segment: self._window.decision(segment.id) is None)
        return [*fresh, *[due[tried] for tried in self._turns if tried in due][:1]]

    def run_maintenance(self) -> None:
        """Run periodic work: between two segments, and while the store has no tables yet."""
        self._restore_deleted_files()
        self._window.tick()
        self._progress.record_window(len(self._window), self._window.reach_s, self._window.shortfall)

    def _recover(self, present: set[SegmentId]) -> None:
        """Recover the state of an earlier process.

        Its INSERTs out of `repair` are counted like any other, so the files are not needed.
        """
        shutil.rmtree(self._environment.repair_dir, ignore_errors=True)
        for gone in self._ledger.stored_and_gone(present):
            self._window.end_if_pending(gone)
        self._window.retain(present)
        self._splitter.delete_orphaned_parts(present)
        self._ledger.retain(present)

    def _restore_deleted_files(self) -> None:
        """Rewrite files of the ledger and the window that were deleted while in use, from memory."""
        in_memory: dict[str, Ledger | Window] = {"ledger": self._ledger, "redelivery window": self._window}
        for name, content in in_memory.items():
            try:
                if content.restore_files():
                    self._progress.alarm(
                        "gone", f"{name} was deleted while in use; it was rewritten from memory"
                    )
            except OSError as reason:
                self._progress.trouble = f"{name} was deleted and cannot be rewritten: {reason.strerror}"
                limited.error("writer: gone", self._progress.trouble)

    def _must_wait(self, segment: SegmentId) -> bool:
        """Return whether the segment, or the segment it waits for, is not due yet."""
        turn = self._turns.get(self._postponed.get(segment, segment))
        return turn is not None and self._environment.now() < turn.due_s

    def _process_if_readable(self, segment: SegmentFile, in_doubt: set[SegmentId]) -> bool:
        """Process a segment; defer it if the disk cannot read or delete it. Return whether it had a turn.

        A deferred segment loses its state, so its next turn counts its rows before it sends any.
        """
        self._postponed.pop(segment.id, None)
        try:
            self.process(segment, in_doubt=segment.id in in_doubt)
        except WaitingFor as reason:
            self._postponed[segment.id] = reason.by
            return False
        except (OSError, msgspec.DecodeError) as error:
            cause = (
                error.strerror if isinstance(error, OSError) else "the reason of its dead letter is damaged"
            )
            self._progress.trouble = f"segment {segment.id}: {cause}"
            self._progress.stall(segment.id, f"the disk cannot read or delete it: {cause}")
            turn = self._turns.pop(segment.id)
            turn.state = None
            self._schedule_turn(segment.id, turn, next(turn.delays.slow))
        if segment.id in self._turns and self._turns[segment.id].state is None:
            in_doubt.add(segment.id)
        else:
            in_doubt.discard(segment.id)
        return True

    def _schedule_turn(self, segment: SegmentId, turn: Turn, delay_s: float) -> None:
        """Queue a segment for its next turn, behind the segments that already wait."""
        turn.due_s = self._environment.now() + delay_s
        self._turns.pop(segment, None)
        self._turns[segment] = turn

    def process(self, segment: SegmentFile, *, in_doubt: bool) -> None:
        """Process a segment for one turn: it is stored, becomes a dead letter, or waits for its next turn.

        Raises `WaitingFor` before anything is decided if another segment must be stored first.
        """
        turn = self._turns.setdefault(segment.id, Turn(Delays(self._environment.jitter)))
        try:
            self._process(segment, turn, in_doubt=in_doubt)
        except TurnEnded as reason:
            self._schedule_turn(segment.id, turn, 0.0 if reason.retry_soon else next(turn.delays.slow))
        except WaitingFor:
            del self._turns[segment.id]
            raise
        else:
            del self._turns[segment.id]

    def _process(self, segment: SegmentFile, turn: Turn, *, in_doubt: bool) -> None:
        if self._dead_letters.is_dead_lettered(segment.id):
            self._delete_segment(segment)
            return
        if turn.state is None:
            turn.state = self._open_segment(segment, in_doubt=in_doubt)
        state = turn.state
        try:
            while not self._processor.advance(state, turn.delays):
                pass
            self._delete_segment(segment)
            self._progress.record_stored(state.rows, state.received_ms, self._environment.now())
        except DeadLettered as reason:
            # The ledger comes first: once the dead letter exists, the segment counts as finished.
            self._ledger_entries.record(state)
            self._dead_letters.keep(state, reason)
            self._delete_segment(segment)
            self._progress.rows += state.rows_stored

    def _delete_segment(self, segment: SegmentFile) -> None:
        """Delete a segment whose rows are in the store, in its parts or in a dead letter.

        The window entry goes last: without it a duplicate would be stored twice if the file survived.
        """
        if self._dead_letters.is_refused_by_store(segment.id):
            self._window.end_if_pending(segment.id)
        self._publish(segment.id)
        segment.unlink()
        self._splitter.delete_parts(segment.id)
        self._window.forget(segment.id)
        self._ledger.settle(segment.id)
        self._progress.stalled.pop(segment.id, None)
        self._progress.trouble = ""

    def _publish(self, segment: SegmentId) -> None:
        """Publish the outcome of a segment to the intakes, before its file is deleted."""
        try:
            outcome = self._dead_letters.outcome_of(segment, self._splitter.epoch_of(segment))
            self._outcomes.write(segment, outcome)
        except OSError as reason:
            limited.warning(
                "writer: outcome", "outcome of a segment cannot be written", error=reason.strerror
            )

    def _open_segment(self, segment: SegmentFile, *, in_doubt: bool) -> SegmentState:
        """Read a segment and decide which of its rows to store. Raises `WaitingFor`, `TurnEnded`."""
        state = open_segment(
            segment,
            self._core,
            self._window,
            in_doubt=in_doubt,
            left_out=self._poison.dead_rows_of(segment.id),
            has_rows=self._processor.has_rows,
            on_damage=self._on_damage,
        )
        if self._splitter.is_split(segment.id):
            state.rows, state.rest, state.must_count = 0, "dead", True
        else:
            self._poison.restore_progress(state)
        return state

    def _on_damage(self, reading: Reading, rows_given_up: int) -> None:
        """Record the rows that were lost to damage, and keep a copy of the damaged segment."""
        self._ledger_entries.record_damage(reading)
        self._dead_letters.keep_damaged(reading, rows_given_up)


class Backlog:
    """The sealed segments of one round that are not stored yet, oldest first."""

    def __init__(self, sealed: Sequence[SegmentFile], progress: Progress) -> None:
        self._waiting = {segment.id: (segment, segment.bytes) for segment in sealed}
        self._bytes = sum(size_bytes for _, size_bytes in self._waiting.values())
        self._progress = progress

    def remove(self, segment: SegmentFile) -> None:
        """Remove a segment that was deleted."""
        self._bytes -= self._waiting.pop(segment.id)[1]

    def report(self, now_s: float) -> None:
        """Report the size and age of the backlog."""
        oldest = next(iter(self._waiting.values()), (None, 0))[0]
        self._progress.record_backlog_sizes(oldest, len(self._waiting), self._bytes, now_s)
