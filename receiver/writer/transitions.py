"""One segment, step by step: a count when there is any doubt, then at most one INSERT.

    look     count its rows             after any doubt, once none of its statements runs any more
    insert   the whole segment          the same token until a plain OK, then the next
    mend     the days that are missing  in groups, newest first, under tokens of their own
    finish   companion, sync, ledger,   only when every due row was counted
             digests

Invariant: whatever goes wrong in a step, the next one starts with a count.
Invariant: a step is bounded work: after one group of days it raises `Resting`, and other segments get a turn.
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
from receiver.writer.dead_lettering import unreadable
from receiver.writer.dedupe import digests_kept
from receiver.writer.environment import Environment
from receiver.writer.error_policy import ErrorPolicy, Resting
from receiver.writer.inserting import Inserter, given_up, query_id_of
from receiver.writer.ledger_entries import LedgerEntries
from receiver.writer.outcome import Finding, Found
from receiver.writer.poison import PoisonSearch
from receiver.writer.progress import Progress
from receiver.writer.segment_state import Reading, SegmentState, SetAside
from receiver.writer.splitting import SegmentSplitter

KILL_AFTER_S = 30.0
"""How long a statement whose answer was lost may run on before it is killed."""
QUIET_MAX_S = 120.0
"""How long the writer waits for such a statement to end before other segments get a turn."""
ODD_LOOKS_MAX = 2


@dataclass(frozen=True, slots=True)
class Carrier:
    """Takes one segment at a time as far as it goes."""

    store: Store
    core: Core
    window: Window
    booking: LedgerEntries
    progress: Progress
    around: Environment
    inserter: Inserter
    scales: ErrorPolicy
    poison: PoisonSearch
    cuts: SegmentSplitter

    def is_carried(self, case: SegmentState, delays: Delays) -> bool:
        """Make one step. Raises `SetAside`, or `Resting` when other segments should go first."""
        try:
            return self._step(case)
        except StoreTrouble as trouble:
            case.must_look = True
            # Too many partitions is refused before a row is written; `_look` notices if it was not so.
            case.in_doubt = case.in_doubt or fault_of(trouble) is not Fault.BY_DAY
            self.scales.weigh(case, trouble, delays)
            return False

    def has_rows(self, reading: Reading) -> bool:
        """Return whether the store holds rows of a segment. Raises `Resting` if only others get an answer."""
        delays = Delays(self.around.jitter)
        failures = 0
        while True:
            try:
                self.around.alive()
                self._wait_until_quiet(reading.file.id)
                return bool(self.store.counts([reading.held]))
            except StoreTrouble as trouble:
                failures += 1
                self.progress.met(fault_of(trouble), trouble.label)
                if fault_of(trouble) is Fault.HOLD:
                    self.progress.alarm(Fault.HOLD, f"store does not answer for a segment: {trouble.label}")
                self.scales.rest_if_others_pass(reading.file.id, trouble, failures)
                self.scales.pause(trouble, delays)

    def _step(self, case: SegmentState) -> bool:
        self.around.alive()
        is_counted = case.must_look
        try:
            finding = self._look(case) if case.must_look else _uncounted(case)
            if finding.found is Found.COMPLETE:
                self._finish(case)
                return True
            case.must_look = True
            if case.given_up is not None:
                raise case.given_up
            self._go_on(case, finding)
        except SetAside as reason:
            if not is_counted and case.days_left:
                return False  # rows were inserted since the last count: count before anything is given up
            case.given_up = reason
            # The rest goes to the dead letters: what is stored of it is closed as if it were all.
            if case.rows_stored:
                self._close(case)
            case.rest = "dead"
            self.booking.divide(case)
            if case.rows_stored:
                self._know(case)
            raise
        return False

    def _go_on(self, case: SegmentState, finding: Finding) -> None:
        self.poison.blame(case, finding)
        if case.search is not None:
            self.poison.go_on(case, finding)
        elif case.is_too_large and finding.found is not Found.ODD:
            self._cut_up(case, finding)
        elif finding.found is Found.ODD:
            self._look_again(case, finding)
        elif finding.found is Found.MISSING or case.by_day:
            self.inserter.days(case, finding)
        else:
            self.inserter.whole(case, finding)

    def _cut_up(self, case: SegmentState, finding: Finding) -> None:
        """Put what is not stored into smaller segments. What is stored of it is closed as if it were all."""
        if case.rows_stored:
            self._close(case)
        self.cuts.cut(case, finding)
        raise Resting(is_over_soon=True)

    def _look(self, case: SegmentState) -> Finding:
        """Count, once nothing can change the count any more. In doubt one day may be there for another."""
        if case.in_doubt:
            self._wait_until_quiet(case.file.id)
        counted = self._count(case)
        is_sum_right = case.rows_stored == case.rows
        if case.is_rotten and is_sum_right:
            limited.warning("writer: rot", f"segment {case.file.id} rotted, all its rows were stored before")
            return Finding(Found.COMPLETE)
        if case.is_rotten:
            text = f"{case.rows_stored} of {case.rows} rows are stored, and it rotted since"
            raise SetAside("odd", text)
        if is_sum_right and not (case.rows and case.in_doubt):
            return Finding(Found.COMPLETE)
        try:
            rows = outcome.rows_by_day(self.core.day_runs(case.file.read()))
        except ValueError as reason:
            if is_sum_right:
                return Finding(Found.COMPLETE)
            if not counted and not case.by_day:
                return Finding(Found.NOTHING)
            raise unreadable(case, reason) from reason
        due = outcome.due_days(rows, now_s=self.around.now(), retention_days=self.around.retention_days)
        answered = set(rows) if case.answered else case.days_answered
        return outcome.judge(rows, counted, due=due, answered=answered)

    def _count(self, case: SegmentState) -> DayRows:
        """Count its rows in the store, and note what that says."""
        counted = self.store.counts([case.held]).get(case.file.id, {}) if case.rows else {}
        case.rows_stored, case.days_stored, case.days_left = sum(counted.values()), tuple(counted), ()
        if not case.answered and counted.keys() - case.days_answered:
            case.in_doubt = True  # rows are stored of which no INSERT answered OK
        return counted

    def _wait_until_quiet(self, segment: SegmentId) -> None:
        """Wait for statements whose answer was lost; kill those that take too long.

        Raises `Resting` if one of them does not end.
        """
        waited_s = 0.0
        for delay_s in backoff_s(self.around.jitter, first_s=FIRST_S, ceiling_s=1.0):
            if not self.store.running(query_id_of(str(segment))):
                return
            if waited_s >= KILL_AFTER_S:
                self.store.kill(query_id_of(str(segment)))
            if waited_s >= QUIET_MAX_S:
                self.progress.stall(segment, f"an INSERT of it still runs after {waited_s:.0f} s")
                raise Resting
            self.around.sleep(delay_s)
            self.scales.inspect_if_due()
            self.around.alive()
            waited_s += delay_s

    def _look_again(self, case: SegmentState, finding: Finding) -> None:
        """Some days hold neither none nor all of their rows. No rule of ours mends that."""
        case.odd_looks += 1
        self.progress.alarm(
            "odd", f"segment {case.file.id}: neither none nor all rows on {', '.join(finding.days)}"
        )
        if case.odd_looks >= ODD_LOOKS_MAX:
            text = f"neither none nor all rows are stored on {', '.join(finding.days)}"
            raise given_up(finding, "odd", text)
        self.around.sleep(SLOWER_FIRST_S)

    def _close(self, case: SegmentState) -> None:
        """Fill a possible hole in the companion table, and sync everything onto the store's disk."""
        if case.rows and case.in_doubt:
            self._refill(case)
        self.store.sync()

    def _refill(self, case: SegmentState) -> None:
        """Write the traces of a group of days into the companion. Raises `Resting` if more days are left."""
        days = sorted(set(case.days_stored) - case.days_refilled, reverse=True)
        group = days[: case.days_per_statement]
        if group:
            self.store.refill_companion(case.held, group)
            case.failures = 0
            case.days_refilled.update(group)
        if len(days) > len(group):
            raise Resting(is_over_soon=True)

    def _finish(self, case: SegmentState) -> None:
        """See everything onto the store's disk, then book it, then know its deliveries."""
        self._close(case)
        self.booking.ended(case)
        self._know(case)

    def _know(self, case: SegmentState) -> None:
        """Know its deliveries from now on, once: a copy of what is partly stored would be stored twice."""
        decision = self.window.decision(case.file.id)
        if decision is None or decision.is_pending:
            promised = decision.kept if decision else ()
            self.window.end(case.file.id, {*promised, *digests_kept(case.deliveries, case.verdicts)})
            for one in case.duplicates:
                self.progress.duplicate(one.drain, sum(tally.received for tally in one.tallies))


def _uncounted(case: SegmentState) -> Finding:
    """Return what is known without a count: nothing was sent, or these days were not sent yet."""
    return Finding(Found.MISSING, case.days_left) if case.days_left else Finding(Found.NOTHING)
