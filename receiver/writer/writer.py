"""Background writer: inserts sealed journal segments into the store, oldest first, one INSERT at a time.

`transitions.py` decides the next step of a segment, `steps.py` performs it, and this module gives each
segment its turns. Each round processes every new segment, then one piece or one segment that needs another
turn. A new segment therefore waits for at most one such turn, however many pieces and unfinished segments
there are.

Invariant: a segment is deleted only when all its rows were counted in the store or are in the dead letters.
Never: gives up on the store. While the store is unavailable the journal grows; senders get 503 when the
journal reaches its size limit, not when the writer runs out of retries.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import suppress

from receiver.dead_letters.directory import DeadLetters
from receiver.durable.files import remove_tree
from receiver.engine.store import Store
from receiver.journal.segment_core import Core
from receiver.journal.writer_notes import DeferredSegments, SegmentOutcomes
from receiver.ledger.ledger import Ledger
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery.window import Window
from receiver.writer.counting import RowCounter
from receiver.writer.dead_lettering import DeadLetterWriter
from receiver.writer.dedupe import Opener
from receiver.writer.environment import Environment, Stopping
from receiver.writer.ledger_entries import LedgerEntries
from receiver.writer.progress import Progress, WaitingUnits
from receiver.writer.reading import Reading, SealedJournal
from receiver.writer.segment_state import Evidence, Finished, Found, WaitingFor
from receiver.writer.shards import Shards
from receiver.writer.splitting import Splitter
from receiver.writer.steps import StepRunner, Turn
from receiver.writer.store_watch import Delays, StoreWatch
from receiver.writer.units import Piece, Unit, segment_of

IDLE_S = 0.1
"""Interval between two checks of an empty journal."""


class Writer:
    """Drains the journal until `sleep` raises `Stopping`."""

    def __init__(  # noqa: PLR0913 - each is a dependency that a test replaces
        self,
        journal: SealedJournal,
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
        self._window = window
        self._progress = progress
        self._ledger = ledger
        self._environment = environment
        data_dir = environment.repair_dir.parent
        self._shards = Shards(store, data_dir / "shards")
        self._splitter = Splitter(data_dir / "splits", core, self._shards)
        self._deferred = DeferredSegments(data_dir)
        self._watch = StoreWatch(journal, store, progress, environment)
        self._present_at_start: set[SegmentId] | None = None
        """Units of an earlier process, which may have inserted them."""
        self._unlisted_at_start: frozenset[SegmentId] = frozenset()
        """Segments whose pieces, perhaps inserted before, could not be listed at the start."""
        self._turns: dict[SegmentId, Turn] = {}
        """Pieces, and segments that had a turn and are not finished, in the order of their last turn."""
        dead_letters = DeadLetterWriter(dead, core, progress, environment.now)
        entries = LedgerEntries(ledger, store, self._splitter, window)

        def keep_damage(reading: Reading, rows_given_up: int) -> None:
            entries.record_damage(reading, dead_letters.keep_damaged(reading, rows_given_up))

        counter = RowCounter(store, core, environment, self._watch, self._shards)
        self._steps = StepRunner(
            store,
            core,
            window,
            ledger,
            progress,
            environment,
            Opener(core, window, counter.has_rows, keep_damage),
            self._splitter,
            dead_letters,
            entries,
            SegmentOutcomes(data_dir / "outcomes"),
            counter,
            self._watch,
            self._shards,
        )

    def run(self) -> None:
        """Process segments until stopped. Stopping between two steps loses nothing."""
        try:
            while True:
                if not self.drain():
                    self._environment.sleep(IDLE_S)
                self._watch.inspect_if_due()
                self._environment.heartbeat()
        except Stopping:
            return

    def drain(self) -> int:
        """Process every new segment, and one unit from `_turns`. Return the number of turns."""
        sealed = list(self._journal.sealed())
        units = list(self._splitter.units(sealed))
        present = {unit.id for unit in [*sealed, *units]}
        # Only the first listing can contain units that an earlier process may have inserted.
        if self._present_at_start is None:
            self._present_at_start = present
            self._unlisted_at_start = frozenset(self._splitter.unusable)
            # Segments of a newer version are not listed, but that version needs their state.
            self._recover(present | {*self._journal.newer})
        self._update_stalled(present)
        # A split segment whose plan cannot be read is not among the units.
        if not self._splitter.unusable:
            self._shards.adopt_if_changed(units)
        for unit in units:
            if isinstance(unit, Piece):
                # Pieces take turns like segments that failed, so that many pieces cannot delay a new segment.
                self._turns.setdefault(unit.id, self._first_turn(unit))
        deferred = {segment_of(unit) for unit in units if unit.id in self._turns}
        self._deferred.publish(deferred | self._splitter.unusable)
        waiting = WaitingUnits(units, self._progress)
        turn_count = 0
        for unit in self._in_turn(units):
            # A sleep of 0 s raises `Stopping` once the grace period of a stop is over.
            self._environment.sleep(0)
            self.run_maintenance()
            waiting.report(self._environment.now())
            turn_count += self._run_turn(unit)
            if unit.id not in self._turns:
                waiting.remove(unit)
        self.run_maintenance()
        waiting.report(self._environment.now())
        return turn_count

    def _update_stalled(self, present: Container[SegmentId]) -> None:
        """Forget segments that are not in the journal any more, and report those that cannot have a turn."""
        for unit in [unit for unit in self._turns if unit not in present]:
            del self._turns[unit]
        for segment in [segment for segment in self._progress.stalled if segment not in present]:
            self._progress.stalled.pop(segment, None)
        reasons = dict.fromkeys(
            self._splitter.unusable, "the plan of its pieces cannot be read, or not synced to disk"
        )
        for segment, turn in self._turns.items():
            if isinstance(turn.state, WaitingFor) and turn.state.other in self._journal.newer:
                reasons[segment] = (
                    f"it waits for segment {turn.state.other}, which only a newer version reads"
                )
        for segment in reasons.keys() - self._progress.stalled.keys():
            self._progress.stall(segment, reasons[segment])

    def _in_turn(self, units: Iterable[Unit]) -> list[Unit]:
        """Return the units of one round in order: new segments, then one unit from `_turns`.

        Segments that an earlier process began come first, because other segments may have to wait for them.
        """
        due = {unit.id: unit for unit in units if not self._must_wait(unit.id)}
        new = [unit for unit in due.values() if not self._had_turn(unit.id)]
        # The sort is stable, so that units of the same kind keep the order of the journal.
        new.sort(key=lambda unit: self._window.decision(unit.id) is None)
        return [*new, *[due[unit] for unit in self._turns if unit in due and self._had_turn(unit)][:1]]

    def _had_turn(self, unit: SegmentId) -> bool:
        turn = self._turns.get(unit)
        return turn is not None and not isinstance(turn.state, WaitingFor)

    def _must_wait(self, unit: SegmentId) -> bool:
        """Return whether the unit is not due yet, or waits for a segment that is not known to be stored."""
        turn = self._turns.get(unit)
        if turn is None:
            return False
        if isinstance(turn.state, WaitingFor):
            decision = self._window.decision(turn.state.other)
            return decision is not None and decision.is_pending
        return self._environment.monotonic() < turn.due_s

    def run_maintenance(self) -> None:
        """Run periodic work. Called between two segments, and while the store has no tables yet."""
        self._restore_deleted_files()
        self._window.tick()
        self._progress.record_window(len(self._window), self._window.covered_s, self._window.shortfall)

    def _recover(self, present: set[SegmentId]) -> None:
        """Recover the state of an earlier process.

        Temporary files in `repair` can be deleted: rows inserted from them are counted like those of any
        INSERT.
        """
        with suppress(FileNotFoundError):
            remove_tree(self._environment.repair_dir)
        # A crash came between the ledger entry and the end of the segment in the window, whose file was
        # deleted.
        for gone in self._ledger.stored_and_gone(present):
            self._window.end_if_pending(gone)
        # After the loop above, which needs the pending decisions.
        self._window.retain(present)
        self._splitter.delete_orphaned(present)
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
            except OSError as error:
                self._progress.trouble = f"{name} was deleted and cannot be rewritten: {error.strerror}"
                limited.error("writer: gone", self._progress.trouble)

    def _run_turn(self, unit: Unit) -> bool:
        """Run one turn of a unit. Return False if it only waits for another segment."""
        # Removing and adding the unit again moves it to the end of `_turns`.
        turn = self._turns.pop(unit.id, None) or self._first_turn(unit)
        action = self._steps.run_turn(unit, turn)
        if not isinstance(turn.state, Finished):
            self._turns[unit.id] = turn
            # At once, because a round can be long, and later spans wait in an open segment meanwhile.
            self._deferred.add(segment_of(unit))
            turn.due_s = self._environment.monotonic() + (0.0 if action.is_soon else next(turn.delays.slow))
        return not isinstance(turn.state, WaitingFor)

    def _first_turn(self, unit: Unit) -> Turn:
        in_doubt = unit.id in (self._present_at_start or ()) or segment_of(unit) in self._unlisted_at_start
        evidence = Evidence(unit.id, in_doubt=in_doubt)
        return Turn(Found(evidence), Delays(self._environment.jitter))
