"""What a failed statement means for its segment: wait for the store, or let other segments go first.

    the store refuses a probe row too     the store or its schema is at fault: wait, the order stays
    it accepts the probe row              this segment is at fault: fewer days at once, a search for
                                          poison, a cut into smaller segments, or its turn comes later

Invariant: a segment that fails again and again while the store accepts other rows never keeps others waiting,
and raises an alarm.
"""

from __future__ import annotations

from typing import NoReturn

from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.storage.backoff import Delays
from receiver.storage.case import Case, Journal
from receiver.storage.faults import FAULT_OF, OF_ONE_SEGMENT, SLOW, TOO_LARGE, Fault, fault_of
from receiver.storage.progress import Progress
from receiver.storage.store import Store
from receiver.storage.surroundings import Surroundings

INSPECT_S = 60.0
"""Between two looks at what the store's disk may have damaged."""
TOO_LARGE_MAX = 3
"""So often the store had neither time nor memory for a segment, but for a row of our own: it is cut up."""
REFUSALS_MAX = 5
"""Refusals of one segment, while a probe row is accepted, after which its data is taken to be at fault."""
FEWER_DAYS = 3
"""A group of days that was refused for its size is so many times smaller at the next try."""
FAILURES_MAX = 4
"""Failures of one segment in a row, of whatever kind, after which the store is probed and an alarm raised."""


class Resting(Exception):  # noqa: N818 - not an error: ends the turn of a segment from any depth
    """Other segments go first: the store refuses this one, or (`is_over_soon`) it needs many turns."""

    def __init__(self, *, is_over_soon: bool = False) -> None:
        super().__init__()
        self.is_over_soon = is_over_soon


class Scales:
    """Weighs what the store says against a segment."""

    def __init__(self, journal: Journal, store: Store, progress: Progress, around: Surroundings) -> None:
        self._journal = journal
        self._store = store
        self._progress = progress
        self._around = around
        self._inspect_at_s = around.now() + INSPECT_S

    def weigh(self, case: Case, trouble: StoreTrouble, delays: Delays) -> None:
        """Decide what to do about a failed statement, and wait if the store is at fault. Raises `Resting`."""
        fault = fault_of(trouble)
        limited.warning(f"store: {fault} {trouble.label}", "segment waits for the store", why=trouble.label)
        self._progress.met(fault, trouble.label)
        if _takes_fewer_days(case, trouble, fault):
            return
        if not case.failures:
            delays.restart()
        case.failures += 1
        is_suspect = fault in {Fault.HOLD, Fault.POISON} or trouble.code in OF_ONE_SEGMENT
        if (is_suspect or case.failures >= FAILURES_MAX) and self._accepts_our_own():
            case.refusals += 1
            if not self._is_blamed(case, trouble, fault):
                self._rest(case.file.id, trouble, case.failures)
            return
        if fault in {Fault.HOLD, Fault.POISON}:
            self._progress.alarm(fault, f"store refuses every segment: {trouble.label}")
        self.pause(trouble, delays)

    def rest_if_others_pass(self, segment: SegmentId, trouble: StoreTrouble, failures: int) -> None:
        """Raise `Resting` if statements about this segment fail while the store accepts a probe row."""
        if failures >= FAILURES_MAX and self._accepts_our_own():
            self._rest(segment, trouble, failures)

    def pause(self, trouble: StoreTrouble, delays: Delays) -> None:
        """Wait as long as such trouble takes."""
        fault = fault_of(trouble)
        self._progress.backlog(list(self._journal.sealed()), self._around.now())
        self._around.sleep(next(delays.slow if fault in SLOW else delays.fast))
        self.inspect_if_due()

    def inspect_if_due(self) -> None:
        """A merge that went wrong is mended by what it was made of, and that is kept for minutes only."""
        if self._around.now() < self._inspect_at_s:
            return
        self._inspect_at_s = self._around.now() + INSPECT_S
        try:
            self._store.inspect()
        except StoreTrouble as trouble:
            limited.warning(f"store: {trouble.label}", "store cannot be inspected", why=trouble.label)

    def _rest(self, segment: SegmentId, trouble: StoreTrouble, failures: int) -> NoReturn:
        """End the turn of a segment; raise the alarm if it failed too often, or a human is needed."""
        if failures >= FAILURES_MAX or fault_of(trouble) is Fault.HOLD:
            self._progress.stall(segment, f"the store refuses it and accepts other rows: {trouble.label}")
        raise Resting

    @staticmethod
    def _is_blamed(case: Case, trouble: StoreTrouble, fault: Fault) -> bool:
        """Have its rows searched for poison, or the segment cut up, where its data is at fault.

        False where that was decided before: it did not come to it, so this is about another statement.
        """
        if case.refused_for is not None or case.is_too_large or case.search is not None:
            return False
        is_unknown_code = trouble.code not in {None, *FAULT_OF} and case.refusals >= REFUSALS_MAX
        if fault is Fault.POISON or is_unknown_code:
            case.refused_for = trouble
        elif trouble.code in TOO_LARGE and case.rows > 1:
            case.is_too_large = case.refusals >= TOO_LARGE_MAX
        return case.refused_for is not None or case.is_too_large

    def _accepts_our_own(self) -> bool:
        """Return whether the store accepts a probe row."""
        try:
            self._store.probe()
        except StoreTrouble:
            return False
        return True


def _takes_fewer_days(case: Case, trouble: StoreTrouble, fault: Fault) -> bool:
    """Send fewer days in the next statement, if that may help."""
    if fault is Fault.BY_DAY and not case.by_day:
        case.by_day = True
        return True
    is_too_much = fault is Fault.BY_DAY or (case.by_day and trouble.code in TOO_LARGE)
    if is_too_much and case.days_per_statement > 1:
        case.days_per_statement //= FEWER_DAYS
        return True
    return False
