"""Poison: rows that the store refuses are found, kept as a dead letter and left out; the rest is one INSERT.

    refused and not stored   search for the rows, a few trials a turn, while others have theirs
    found                    letter on the disk: the decision, which never changes
    left out                 the file is replaced; its tokens are new ones
    refused again            the rest, too, goes to the dead letters

Keeps: killed between any two of these, the next life finds the letter and goes on behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from receiver.errors import StoreTrouble
from receiver.journal.files import write_durably
from receiver.model import SegmentId
from receiver.storage.aside import Aside, unreadable
from receiver.storage.case import Case, Core, only_rows, runs_of
from receiver.storage.faults import TOO_LARGE, Fault, fault_of
from receiver.storage.inserting import given_up
from receiver.storage.outcome import Finding, Found
from receiver.storage.search import RowRange, Rows, Search, count_of, without
from receiver.storage.sifting import LeftOut
from receiver.storage.store import Store
from receiver.storage.surroundings import Surroundings
from receiver.storage.weighing import Resting

TRIES_A_TURN = 8
"""Trials before the other segments have their turn."""
FAILURES_MAX = 5
"""Of trials that say nothing about the rows and will not pass, as when we may not make the clone."""


@dataclass(frozen=True, slots=True)
class Poison:
    """What the writer does about rows that the store refuses."""

    store: Store
    core: Core
    aside: Aside
    around: Surroundings

    def blame(self, case: Case, finding: Finding) -> None:
        """Begin to search, or, where that was done, put the blame on all that is not stored."""
        reason, case.refused_for = case.refused_for, None
        if reason is None or case.search is not None or finding.found is Found.ODD:
            return
        if not case.is_searched:
            case.search = Search.among(
                self._rows_at_fault(case, finding), reason=str(reason), code=reason.code
            )
        else:
            self._blame_all(case, finding, str(reason))

    def go_on(self, case: Case, finding: Finding) -> None:
        """Make some trials. Raises `Resting` while there are more to make, `SetAside` if nothing is left."""
        search = case.search
        if search is None:
            return
        try:
            is_over = search.go_on(lambda rows: self._is_refused(case, search, rows), TRIES_A_TURN)
        except StoreTrouble as trouble:
            self._failed(finding, search, trouble)
            raise
        if not is_over:
            raise Resting(is_over_soon=True)
        case.search = None
        self._conclude(case, finding, search)

    @staticmethod
    def _failed(finding: Finding, search: Search, trouble: StoreTrouble) -> None:
        """Count what will not pass; after that, all that is not stored is at fault as a whole."""
        search.failures += fault_of(trouble) in {Fault.HOLD, Fault.POISON}
        if search.failures >= FAILURES_MAX:
            text = f"{search.reason}; its rows could not be tried one by one: {trouble.label}"
            raise given_up(finding, "refused", text) from trouble

    def left_out_of(self, segment: SegmentId) -> LeftOut:
        """What was decided in an earlier life, and perhaps not done yet."""
        reasons = [letter.reason for letter in self.aside.dead.of(segment) if letter.reason.left_out]
        return LeftOut(reasons[0].left_out, reasons[0].of_rows) if reasons else LeftOut()

    def recall(self, case: Case) -> None:
        """Go on behind what was decided in an earlier life.

        Whatever letter there is of a segment that goes on: what is missing of it lies there.
        """
        for letter in self.aside.dead.of(case.file.id):
            case.rest = "dead"
            case.is_searched = case.is_searched or bool(letter.reason.left_out)

    def _rows_at_fault(self, case: Case, finding: Finding) -> Rows:
        if finding.found is Found.NOTHING:
            return ((0, case.rows),)
        try:
            return tuple(runs_of(case.file.read(), finding.days, self.core))
        except ValueError as reason:
            raise unreadable(case, reason) from reason

    def _is_refused(self, case: Case, search: Search, rows: Rows) -> bool:
        """Try these rows alone. Raises `StoreTrouble` when that is no answer."""
        self.around.alive()
        trial = self.around.repair_dir / f"{case.file.id}.trial{''.join(case.file.path.suffixes)}"
        trial.parent.mkdir(parents=True, exist_ok=True)
        write_durably(trial, only_rows(case.file.read(), rows, self.core, case.file.codec))
        try:
            refusal = self.store.refusal_of(trial)
        finally:
            trial.unlink()
        self.around.alive()
        is_too_large = refusal is not None and refusal.code in TOO_LARGE and count_of(rows) > 1
        if (
            refusal is None
            or refusal.code == search.code
            or fault_of(refusal) is Fault.POISON
            or is_too_large
        ):
            case.failures = 0
            return refusal is not None
        raise refusal

    def _conclude(self, case: Case, finding: Finding, search: Search) -> None:
        """Nothing found: all is at fault as a whole. All found: the same. Else the rest goes in."""
        case.is_searched = True
        found = search.found()
        rows_missing = case.rows - case.rows_stored
        if not found:
            text = f"{search.reason}; an empty clone of the table takes all of it"
            self._blame_all(case, finding, text)
            return
        if count_of(found) >= rows_missing:
            raise given_up(finding, "poison", search.reason)
        self.aside.keep_rows(case, found, search.reason)
        self._leave_out(case, found)

    @staticmethod
    def _blame_all(case: Case, finding: Finding, text: str) -> None:
        """Blame the day that was sent, or all rows; of several days send fewer, to find the one at fault."""
        if len(case.days_sent) > 1:
            case.days_per_statement = len(case.days_sent) // 2
        elif case.days_sent:
            case.days_refused[case.days_sent[0]] = text
        elif finding.found is Found.NOTHING:
            raise given_up(finding, "refused", text)

    def _leave_out(self, case: Case, left_out: Sequence[RowRange]) -> None:
        kept = without([(0, case.rows)], left_out)
        try:
            content = only_rows(case.file.read(), kept, self.core, case.file.codec)
        except ValueError as reason:
            raise unreadable(case, reason) from reason
        case.file.replace(content)
        case.rows, case.rest = count_of(kept), "dead"
        case.in_doubt = case.must_look = True
