"""State transitions of one segment: a step counts rows if in doubt, then sends at most one INSERT.

    count    rows in the store         after any failure, when no statement for the segment runs any more
    insert   the whole segment         with the same token until an INSERT returns OK, then with the next one
    insert   the missing days          in groups, newest first, with tokens of their own
    finish   companion table, sync,    only when every due row was counted
             ledger, digests

Invariant: after a failed step the next one starts with a count.
Invariant: a step is bounded: after one group of days it raises `TurnEnded`, and other segments get a turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from receiver.engine.error_codes import Fault, fault_of
from receiver.engine.store import DayRows, Store
from receiver.errors import StoreTrouble
from receiver.journal.segment_core import Core
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery.window import Window
from receiver.writer import outcome
from receiver.writer.backoff import FIRST_S, SLOWER_FIRST_S, Delays, backoff_s
from receiver.writer.dead_lettering import unreadable_segment
from receiver.writer.dedupe import digests_kept
from receiver.writer.environment import Environment
from receiver.writer.error_policy import ErrorPolicy, TurnEnded
from receiver.writer.inserting import Inserter, missing_rows_dead, query_id_of
from receiver.writer.ledger_entries import LedgerEntries
from receiver.writer.outcome import Comparison, Completeness
from receiver.writer.poison import PoisonSearch
from receiver.writer.progress import Progress
from receiver.writer.segment_state import DeadLettered, Reading, SegmentState
from receiver.writer.splitting import SegmentSplitter

KILL_AFTER_S = 30.0
"""How long a statement whose response was lost may keep running before it is killed."""
STATEMENT_WAIT_MAX_S = 120.0
"""How long the writer waits for such a statement before other segments get a turn."""
INCONSISTENT_COUNTS_MAX = 2


@dataclass(frozen=True, slots=True)
class SegmentProcessor:
    """Moves a segment from one state to the next."""

    store: Store
    core: Core
    window: Window
    ledger_entries: LedgerEntries
    progress: Progress
    environment: Environment
    inserter: Inserter
    error_policy: ErrorPolicy
    poison: PoisonSearch
    splitter: SegmentSplitter

    def advance(self, state: SegmentState, delays: Delays) -> bool:
        """Make one step and return whether the segment is finished.

        Raises `DeadLettered`, or `TurnEnded` if other segments should go first.
        """
        try:
            return self._step(state)
        except StoreTrouble as trouble:
            state.must_count = True
            # The store refuses too many partitions before it writes a row; if not, `_count` notices.
            state.in_doubt = state.in_doubt or fault_of(trouble) is not Fault.BY_DAY
            self.error_policy.handle_failure(state, trouble, delays)
            return False

    def has_rows(self, reading: Reading) -> bool:
        """Return whether the store holds rows of a segment, retrying until it answers.

        Raises `TurnEnded` if the count keeps failing although the store accepts a probe row.
        """
        delays = Delays(self.environment.jitter)
        failures = 0
        while True:
            try:
                self.environment.alive()
                self._wait_for_statements(reading.file.id)
                return bool(self.store.counts([reading.held]))
            except StoreTrouble as trouble:
                failures += 1
                self.progress.record_failure(fault_of(trouble), trouble.label)
                if fault_of(trouble) is Fault.HOLD:
                    self.progress.alarm(
                        Fault.HOLD,
                        f"store cannot count the rows of segment {reading.file.id}: {trouble.label}",
                    )
                self.error_policy.end_turn_if_store_accepts_others(reading.file.id, trouble, failures)
                self.error_policy.pause(trouble, delays)

    def _step(self, state: SegmentState) -> bool:
        self.environment.alive()
        is_counted = state.must_count
        try:
            comparison = (
                self._count_and_compare(state) if state.must_count else _comparison_without_count(state)
            )
            if comparison.completeness is Completeness.COMPLETE:
                self._finish(state)
                return True
            state.must_count = True
            if state.pending_dead_letter is not None:
                raise state.pending_dead_letter
            self._take_action(state, comparison)
        except DeadLettered as reason:
            if not is_counted and state.days_left:
                return False  # rows were inserted since the last count: count again first
            state.pending_dead_letter = reason
            # The missing rows become a dead letter; the stored rows are finished as usual.
            if state.rows_stored:
                self._close(state)
            state.rest = "dead"
            self.ledger_entries.query_stored_by_heading(state)
            if state.rows_stored:
                self._remember_deliveries(state)
            raise
        return False

    def _take_action(self, state: SegmentState, comparison: Comparison) -> None:
        self.poison.start_search(state, comparison)
        if state.search is not None:
            self.poison.advance(state, comparison)
        elif state.is_too_large and comparison.completeness is not Completeness.INCONSISTENT:
            self._split(state, comparison)
        elif comparison.completeness is Completeness.INCONSISTENT:
            self._count_again(state, comparison)
        elif comparison.completeness is Completeness.MISSING or state.by_day:
            self.inserter.insert_days(state, comparison)
        else:
            self.inserter.insert_whole(state, comparison)

    def _split(self, state: SegmentState, comparison: Comparison) -> None:
        """Split the rows that are not stored into smaller segments, after finishing the stored rows."""
        if state.rows_stored:
            self._close(state)
        self.splitter.split(state, comparison)
        raise TurnEnded(retry_soon=True)

    def _count_and_compare(self, state: SegmentState) -> Comparison:
        """Count rows once no running statement can change the result, and compare them with the segment.

        In doubt, a correct sum is not enough: a day stored twice could hide a missing day.
        """
        if state.in_doubt:
            self._wait_for_statements(state.file.id)
        counted = self._count(state)
        is_sum_correct = state.rows_stored == state.rows
        if state.is_damaged_after_insert and is_sum_correct:
            limited.warning(
                "writer: rot",
                f"segment {state.file.id} was damaged after all its rows were stored; nothing is lost",
            )
            return Comparison(Completeness.COMPLETE)
        if state.is_damaged_after_insert:
            text = f"{state.rows_stored} of {state.rows} rows are stored; the segment was damaged afterwards"
            raise DeadLettered("odd", text)
        if is_sum_correct and not (state.rows and state.in_doubt):
            return Comparison(Completeness.COMPLETE)
        try:
            rows = outcome.rows_by_day(self.core.day_runs(state.file.read()))
        except ValueError as reason:
            if is_sum_correct:
                return Comparison(Completeness.COMPLETE)
            if not counted and not state.by_day:
                return Comparison(Completeness.NOTHING)
            raise unreadable_segment(state, reason) from reason
        due = outcome.due_days(
            rows, now_s=self.environment.now(), retention_days=self.environment.retention_days
        )
        answered = set(rows) if state.answered else state.days_answered
        return outcome.judge(rows, counted, due=due, answered=answered)

    def _count(self, state: SegmentState) -> DayRows:
        """Count the segment's rows in the store and update the state."""
        counted = self.store.counts([state.held]).get(state.file.id, {}) if state.rows else {}
        state.rows_stored, state.days_stored, state.days_left = sum(counted.values()), tuple(counted), ()
        if not state.answered and counted.keys() - state.days_answered:
            state.in_doubt = True  # the store holds rows although no INSERT of them returned OK
        return counted

    def _wait_for_statements(self, segment: SegmentId) -> None:
        """Wait for statements whose response was lost; kill those that take too long.

        Raises `TurnEnded` if a statement does not end.
        """
        waited_s = 0.0
        for delay_s in backoff_s(self.environment.jitter, first_s=FIRST_S, ceiling_s=1.0):
            if not self.store.running(query_id_of(str(segment))):
                return
            if waited_s >= KILL_AFTER_S:
                self.store.kill(query_id_of(str(segment)))
            if waited_s >= STATEMENT_WAIT_MAX_S:
                self.progress.stall(segment, f"an INSERT of it is still running after {waited_s:.0f} s")
                raise TurnEnded
            self.environment.sleep(delay_s)
            self.error_policy.inspect_if_due()
            self.environment.alive()
            waited_s += delay_s

    def _count_again(self, state: SegmentState, comparison: Comparison) -> None:
        """Wait and count again: some days are stored partly, which no INSERT can repair."""
        state.inconsistent_counts += 1
        self.progress.alarm(
            "odd", f"segment {state.file.id} is stored only partly on {', '.join(comparison.days)}"
        )
        if state.inconsistent_counts >= INCONSISTENT_COUNTS_MAX:
            text = f"the number of stored rows is wrong on {', '.join(comparison.days)}; expected none or all"
            raise missing_rows_dead(comparison, "odd", text)
        self.environment.sleep(SLOWER_FIRST_S)

    def _close(self, state: SegmentState) -> None:
        """Fill a possible gap in the companion table, and sync the store's tables to disk."""
        if state.rows and state.in_doubt:
            self._refill(state)
        self.store.sync()

    def _refill(self, state: SegmentState) -> None:
        """Refill the companion table for a group of days. Raises `TurnEnded` if more days remain."""
        days = sorted(set(state.days_stored) - state.days_refilled, reverse=True)
        group = days[: state.days_per_statement]
        if group:
            self.store.refill_companion(state.held, group)
            state.failures = 0
            state.days_refilled.update(group)
        if len(days) > len(group):
            raise TurnEnded(retry_soon=True)

    def _finish(self, state: SegmentState) -> None:
        """Sync the store, write the ledger entry, then remember the deliveries: the crash-safe order."""
        self._close(state)
        self.ledger_entries.record(state)
        self._remember_deliveries(state)

    def _remember_deliveries(self, state: SegmentState) -> None:
        """Add the deliveries to the deduplication window once, even if stored only partly."""
        decision = self.window.decision(state.file.id)
        if decision is None or decision.is_pending:
            promised = decision.kept if decision else ()
            self.window.end(state.file.id, {*promised, *digests_kept(state.deliveries, state.verdicts)})
            for delivery in state.duplicates:
                self.progress.record_duplicate(
                    delivery.drain, sum(tally.received for tally in delivery.tallies)
                )


def _comparison_without_count(state: SegmentState) -> Comparison:
    """Return the comparison for a state that needs no count: nothing was sent, or days are still unsent."""
    return (
        Comparison(Completeness.MISSING, state.days_left)
        if state.days_left
        else Comparison(Completeness.NOTHING)
    )
