"""Steps of a unit: the action of each state. Its observation decides the next state, see `transitions.py`.

    Found          open: read, deduplicate, make the content final
    Deduplicated   insert, with a token that changes only after an INSERT returned OK
    Doubtful       count the stored rows, once no statement of the unit runs any more
    Suspected      insert a probe row
    Closing        refill the companion table, or sync the store's tables
    Splitting      write the plan of the segment's pieces
    DeadLettered   write the dead rows to the plan
    Counted        write the ledger entry, the dead letters and the digests, in this order
    Recorded       delete

Invariant: a step sends at most one statement that changes the store, so a turn is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from receiver.durable.files import DISK, make_directories, write_durably
from receiver.engine.error_codes import fault_of
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.journal.segment_core import Core
from receiver.journal.writer_notes import SegmentOutcomes
from receiver.ledger.ledger import Ledger
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery.window import Window
from receiver.writer.counting import RowCounter
from receiver.writer.dead_lettering import DeadLetterWriter
from receiver.writer.dedupe import Opener, digests_kept
from receiver.writer.environment import Environment
from receiver.writer.ledger_entries import LedgerEntries
from receiver.writer.progress import Progress
from receiver.writer.segment_state import (
    CannotSplit,
    Closing,
    Counted,
    DeadLettered,
    Deduplicated,
    DiskFailed,
    Done,
    Doubtful,
    EndTurn,
    Failed,
    Found,
    Observation,
    Opened,
    Pause,
    ProbeAnswered,
    Recorded,
    Resumed,
    SegmentState,
    Splitting,
    Suspected,
    Unusable,
)
from receiver.writer.shards import Shards
from receiver.writer.splitting import Splitter
from receiver.writer.store_watch import Delays, StoreWatch
from receiver.writer.transitions import next_step
from receiver.writer.units import OpenUnit, Piece, Plan, Unit, query_id_of, row_count, segment_of

REFUSED_CAUSES = frozenset({"poison", "refused"})
"""Causes of dead rows that the store refused, and would refuse again in a duplicate."""


@dataclass(slots=True)
class Turn:
    state: SegmentState
    delays: Delays
    due_s: float = -math.inf
    """Earliest time of its next turn, by the monotonic clock."""
    content: OpenUnit | None = None


@dataclass(frozen=True, slots=True)
class StepRunner:
    store: Store
    core: Core
    window: Window
    ledger: Ledger
    progress: Progress
    environment: Environment
    opener: Opener
    splitter: Splitter
    dead_letters: DeadLetterWriter
    ledger_entries: LedgerEntries
    outcomes: SegmentOutcomes
    counter: RowCounter
    watch: StoreWatch
    shards: Shards

    def run_turn(self, unit: Unit, turn: Turn) -> EndTurn:
        """Run the steps of a unit until it must let other segments go first, or is finished."""
        step = next_step(turn.state, Resumed())
        while True:
            turn.state = step.state
            if step.alarm is not None:
                self.progress.alarm(step.alarm.kind, step.alarm.text)
            if isinstance(step.action, EndTurn):
                if step.action.stall:
                    self.progress.stall(segment_of(unit), step.action.stall)
                return step.action
            if isinstance(step.action, Pause):
                self.watch.pause(turn.delays, is_slow=step.action.is_slow)
            step = next_step(turn.state, self._observe(unit, turn))

    def _observe(self, unit: Unit, turn: Turn) -> Observation:
        """Perform the action of the state. A failure is an observation, too."""
        self.environment.heartbeat()
        try:
            return self._perform(unit, turn)
        except StoreTrouble as trouble:
            # The first failure in a row starts again with the shortest delay.
            if not turn.state.evidence.failures:
                turn.delays.restart()
            fault = fault_of(trouble)
            limited.warning(f"store: {fault} {trouble.label}", "a statement failed", error=trouble.label)
            self.progress.record_failure(fault, trouble.label)
            return Failed(fault, trouble.code, trouble.label, str(trouble))
        except OSError as error:
            return self._disk_failed(unit, turn, error.strerror or "")
        except msgspec.DecodeError:
            return self._disk_failed(unit, turn, "the reason of its dead letter is damaged")
        finally:
            self.environment.heartbeat()

    def _disk_failed(self, unit: Unit, turn: Turn, cause: str) -> DiskFailed:
        # The file may have changed, so it is read again.
        turn.content = None
        self.progress.trouble = f"segment {segment_of(unit)}: {cause}"
        return DiskFailed(cause)

    def _perform(self, unit: Unit, turn: Turn) -> Observation:
        state, content = turn.state, turn.content
        if isinstance(state, Suspected):
            return ProbeAnswered(self._is_probe_accepted())
        if isinstance(state, Found) or content is None:
            return self._open(unit, turn)
        return _STEPS[type(state)](self, content, state)

    def _is_probe_accepted(self) -> bool:
        try:
            self.store.probe()
        except StoreTrouble:
            return False
        return True

    def _open(self, unit: Unit, turn: Turn) -> Observation:
        in_doubt = turn.state.evidence.in_doubt
        if isinstance(unit, Piece):
            plan = unit.plan
            turn.content = OpenUnit(unit, row_count(unit.rows), plan.received_ms)
            return Opened(turn.content.rows, in_doubt, plan.may_split, plan.refused_code)
        in_doubt = in_doubt or self.window.decision(unit.id) is not None
        # An INSERT of an earlier process may still run in the server and would make every count wrong.
        running = self.counter.wait_for_statements(turn.state.evidence) if in_doubt else None
        if running is not None:
            return running
        # The segment was split and is listed again only because no piece is left: nothing remains to insert.
        if self.splitter.plan_of(unit.id) is not None:
            turn.content = self.opener.reopen_split(unit)
            return Opened(0, in_doubt=True)
        opened = self.opener.open(unit, in_doubt=in_doubt)
        if not isinstance(opened, OpenUnit):
            return opened
        turn.content = opened
        return Opened(opened.rows, in_doubt)

    def insert(self, content: OpenUnit, state: Deduplicated) -> Observation:
        """Send one INSERT and check that the engine read every row: it returns OK for a truncated file."""
        self.shards.check()
        self.progress.inserts += 1
        # ClickHouse ignores a second INSERT with the same token, so a retry cannot duplicate rows. The token
        # changes only after an INSERT returned OK and its rows are nevertheless missing.
        token = f"{content.unit.id}#{state.evidence.inserts_ok}"
        try:
            with self._file_of(content.unit) as path:
                read = self.store.insert(path, token=token, query_id=query_id_of(token))
        except ValueError as error:
            return _unreadable(content, error)
        if read != content.rows:
            cause = f"the store read {read} rows of segment {content.unit.id}; expected {content.rows}"
            raise StoreTrouble(cause, cause=cause)
        return Done()

    @contextmanager
    def _file_of(self, unit: Unit) -> Iterator[Path]:
        """Return the file to insert: for a piece a temporary one. Raises `ValueError` if it is unreadable."""
        if not isinstance(unit, Piece):
            yield unit.path
            return
        path = self.environment.repair_dir / f"{unit.id}{''.join(unit.path.suffixes)}"
        make_directories(path.parent)
        write_durably(path, unit.read())
        try:
            yield path
        finally:
            DISK.unlink(path)

    def count(self, content: OpenUnit, state: Doubtful) -> Observation:
        """Compare the stored rows with the content."""
        return self.counter.count(content, state.evidence)

    def close(self, content: OpenUnit, state: Closing) -> Observation:
        """Refill the companion table for a group of days, or sync the store's tables to disk."""
        if state.refill:
            self.store.refill_companion(content.location, state.refill[: state.days_per_statement])
        else:
            self.store.sync()
        return Done()

    def split(self, content: OpenUnit, state: Splitting) -> Observation:
        """Write the plan of the pieces."""
        try:
            if not self.splitter.split(content, state):
                return CannotSplit()
        except ValueError as error:
            return _unreadable(content, error)
        self.progress.rows += content.rows_stored
        return Done()

    def keep_dead(self, content: OpenUnit, state: DeadLettered) -> Observation:
        """Write the dead rows to the plan. The dead letter follows when the segment is recorded."""
        self.splitter.keep_dead(content, state)
        self.progress.rows += content.rows_stored
        return Done()

    def record(self, content: OpenUnit, _state: Counted) -> Observation:
        """Write the result to disk. The digests come last: a known delivery is never stored again."""
        unit = content.unit
        if isinstance(unit, Piece):
            self.splitter.remove_stored(unit)
            return Done()
        plan = self.splitter.plan_of(unit.id)
        is_rest_dead = plan is not None or self.dead_letters.has_any_of(unit.id)
        # Before the dead letters: they complete the segment, so no later step would record it.
        rows_stored = self.ledger_entries.record(content, "dead" if is_rest_dead else "duplicate")
        if plan is not None and plan.dead:
            self.dead_letters.keep(unit, content, plan)
        if _is_known_from_now_on(plan, rows_stored):
            self._remember_deliveries(content)
        return Done()

    def _remember_deliveries(self, content: OpenUnit) -> None:
        """Add the deliveries to the deduplication window once, even if stored only partly."""
        decision = self.window.decision(content.unit.id)
        if decision is None or decision.is_pending:
            # The decision may hold digests that a damaged file does not list any more.
            promised = decision.kept if decision else ()
            self.window.end(content.unit.id, {*promised, *digests_kept(content.deliveries, content.verdicts)})
            for delivery in content.duplicates:
                self.progress.record_duplicate(
                    delivery.drain, sum(tally.received for tally in delivery.tallies)
                )

    def delete(self, content: OpenUnit, _state: Recorded) -> Observation:
        """Delete a segment.

        The file is deleted before the window forgets the decision: if the file survived a crash without its
        decision, its rows could be stored twice.
        """
        unit = content.unit
        if not isinstance(unit, Piece):
            # The intakes read this file when the segment disappears, so it must exist before.
            self._publish(unit.id)
            unit.unlink()
            # After the segment, which without its plan would be inserted again as a whole.
            self.splitter.delete(unit.id)
            self.window.forget(unit.id)
            # Only now that the file is gone: a segment that exists may have to be recorded again.
            self.ledger.settle(unit.id)
        self.progress.stalled.pop(segment_of(unit), None)
        self.progress.trouble = ""
        self.progress.record_stored(content.rows, content.received_ms, self.environment.now())
        return Done()

    def _publish(self, segment: SegmentId) -> None:
        """Publish the outcome of a segment to the intakes, before its file is deleted."""
        try:
            self.outcomes.write(segment, self.dead_letters.outcome_of(segment))
        except OSError as error:
            limited.warning("writer: outcome", "outcome of a segment cannot be written", error=error.strerror)


def _is_known_from_now_on(plan: Plan | None, rows_stored: int) -> bool:
    """Return whether to drop later duplicates: rows are stored, or the store would refuse them again."""
    dead = plan.dead if plan else ()
    # After damage, a copy may be the only intact one, so it is stored.
    return not dead or rows_stored > 0 or any(rows.cause in REFUSED_CAUSES for rows in dead)


def _unreadable(content: OpenUnit, error: ValueError) -> Unusable:
    return Unusable("unreadable", f"{error}; {content.stored_text}")


_STEPS: dict[type, Callable[[StepRunner, OpenUnit, Any], Observation]] = {
    Deduplicated: StepRunner.insert,
    Doubtful: StepRunner.count,
    Closing: StepRunner.close,
    Splitting: StepRunner.split,
    DeadLettered: StepRunner.keep_dead,
    Counted: StepRunner.record,
    Recorded: StepRunner.delete,
}
