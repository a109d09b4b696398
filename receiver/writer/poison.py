"""Poison rows: finds the rows that the store refuses, makes them a dead letter and inserts the others.

    refused and not stored   search for the rows, a few trials per turn, so that other segments proceed
    found                    write the dead letter: the decision, which never changes
    removed                  replace the segment's file; its tokens are new
    refused again            the remaining rows become a dead letter, too

Invariant: if the process is killed between two of these steps, the next process finds the dead letter and
continues after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from receiver.durable.files import write_durably
from receiver.engine.error_codes import TOO_LARGE, Fault, fault_of
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.journal.segment_core import Core, RowRange
from receiver.model import SegmentId
from receiver.writer.dead_lettering import DeadLetterWriter, unreadable_segment
from receiver.writer.dedupe import DeadRows
from receiver.writer.environment import Environment
from receiver.writer.error_policy import TurnEnded
from receiver.writer.inserting import missing_rows_dead
from receiver.writer.outcome import Comparison, Completeness
from receiver.writer.row_search import Rows, RowSearch, row_count, subtract
from receiver.writer.segment_state import SegmentState, extract_rows, ranges_of_days

TRIALS_PER_TURN = 8
"""Trials per turn of a segment."""
FAILURES_MAX = 5
"""Limit of trials that fail without a verdict on the rows, as without the right to create the clone."""


@dataclass(frozen=True, slots=True)
class PoisonSearch:
    """Searches refused segments for poison rows and removes them."""

    store: Store
    core: Core
    dead_letters: DeadLetterWriter
    environment: Environment

    def start_search(self, state: SegmentState, comparison: Comparison) -> None:
        """Start a search for refused rows. After a search, treat all rows that are not stored as refused."""
        reason, state.refused_for = state.refused_for, None
        if reason is None or state.search is not None or comparison.completeness is Completeness.INCONSISTENT:
            return
        if not state.is_searched:
            state.search = RowSearch.among(
                self._suspect_rows(state, comparison), reason=str(reason), code=reason.code
            )
        else:
            self._give_up_as_a_whole(state, comparison, str(reason))

    def advance(self, state: SegmentState, comparison: Comparison) -> None:
        """Make some trials. Raises `TurnEnded` if more remain, `DeadLettered` if no row can be stored."""
        search = state.search
        if search is None:
            return
        try:
            is_over = search.advance(lambda rows: self._is_refused(state, search, rows), TRIALS_PER_TURN)
        except StoreTrouble as trouble:
            self._failed(comparison, search, trouble)
            raise
        if not is_over:
            raise TurnEnded(retry_soon=True)
        state.search = None
        self._conclude(state, comparison, search)

    @staticmethod
    def _failed(comparison: Comparison, search: RowSearch, trouble: StoreTrouble) -> None:
        """Count permanent failures. Raises `DeadLettered` for all rows that are not stored after too many."""
        search.failures += fault_of(trouble) in {Fault.HOLD, Fault.POISON}
        if search.failures >= FAILURES_MAX:
            text = f"{search.reason}; the rows could not be tried individually: {trouble.label}"
            raise missing_rows_dead(comparison, "refused", text) from trouble

    def dead_rows_of(self, segment: SegmentId) -> DeadRows:
        """Return the rows that an earlier process moved to a dead letter, and perhaps did not remove yet."""
        reasons = [
            letter.reason for letter in self.dead_letters.directory.of(segment) if letter.reason.left_out
        ]
        return DeadRows(reasons[0].left_out, reasons[0].of_rows) if reasons else DeadRows()

    def restore_progress(self, state: SegmentState) -> None:
        """Restore the state of an earlier process from the dead letters of the segment.

        A segment that is still processed has its missing rows in those dead letters.
        """
        for letter in self.dead_letters.directory.of(state.file.id):
            state.rest = "dead"
            state.is_searched = state.is_searched or bool(letter.reason.left_out)

    def _suspect_rows(self, state: SegmentState, comparison: Comparison) -> Rows:
        if comparison.completeness is Completeness.NOTHING:
            return ((0, state.rows),)
        try:
            return tuple(ranges_of_days(state.file.read(), comparison.days, self.core))
        except ValueError as reason:
            raise unreadable_segment(state, reason) from reason

    def _is_refused(self, state: SegmentState, search: RowSearch, rows: Rows) -> bool:
        """Try these rows in an empty clone of the table. Raises `StoreTrouble` without a verdict."""
        self.environment.alive()
        trial = self.environment.repair_dir / f"{state.file.id}.trial{''.join(state.file.path.suffixes)}"
        trial.parent.mkdir(parents=True, exist_ok=True)
        write_durably(trial, extract_rows(state.file.read(), rows, self.core, state.file.codec))
        try:
            refusal = self.store.refusal_of(trial)
        finally:
            trial.unlink()
        self.environment.alive()
        is_too_large = refusal is not None and refusal.code in TOO_LARGE and row_count(rows) > 1
        if (
            refusal is None
            or refusal.code == search.code
            or fault_of(refusal) is Fault.POISON
            or is_too_large
        ):
            state.failures = 0
            return refusal is not None
        raise refusal

    def _conclude(self, state: SegmentState, comparison: Comparison, search: RowSearch) -> None:
        """Move the refused rows to a dead letter; all missing rows if no row or every row is refused."""
        state.is_searched = True
        refused = search.refused_rows()
        rows_missing = state.rows - state.rows_stored
        if not refused:
            text = f"{search.reason}; an empty clone of the table accepts all of its rows"
            self._give_up_as_a_whole(state, comparison, text)
            return
        if row_count(refused) >= rows_missing:
            raise missing_rows_dead(comparison, "poison", search.reason)
        self.dead_letters.keep_rows(state, refused, search.reason)
        self._leave_out(state, refused)

    @staticmethod
    def _give_up_as_a_whole(state: SegmentState, comparison: Comparison, text: str) -> None:
        """Give up the day that was sent, or all rows. After several days, send fewer to find the bad day."""
        if len(state.days_sent) > 1:
            state.days_per_statement = len(state.days_sent) // 2
        elif state.days_sent:
            state.days_refused[state.days_sent[0]] = text
        elif comparison.completeness is Completeness.NOTHING:
            raise missing_rows_dead(comparison, "refused", text)

    def _leave_out(self, state: SegmentState, left_out: Sequence[RowRange]) -> None:
        kept = subtract([(0, state.rows)], left_out)
        try:
            content = extract_rows(state.file.read(), kept, self.core, state.file.codec)
        except ValueError as reason:
            raise unreadable_segment(state, reason) from reason
        state.file.replace(content)
        state.rows, state.rest = row_count(kept), "dead"
        state.in_doubt = state.must_count = True
