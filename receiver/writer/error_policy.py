"""Error policy for failed statements: wait for the store, or let other segments go first.

    the store refuses a probe row too     the store or its schema is at fault: wait and keep the order
    the store accepts the probe row       the segment is at fault: send fewer days at once, search for refused
                                          rows, split the segment, or process it later

Invariant: a segment that keeps failing while the store accepts other rows never delays other segments, and
raises an alarm.
"""

from __future__ import annotations

from typing import NoReturn

from receiver.engine.error_codes import FAULT_OF, OF_ONE_SEGMENT, SLOW, TOO_LARGE, Fault, fault_of
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.writer.backoff import Delays
from receiver.writer.environment import Environment
from receiver.writer.progress import Progress
from receiver.writer.segment_state import Journal, SegmentState

INSPECT_S = 60.0
"""Interval between two checks of the store for damaged parts."""
TOO_LARGE_MAX = 3
"""Failures for lack of time or memory, while a probe row is accepted, after which a segment is split."""
REFUSALS_MAX = 5
"""Refusals of one segment, while a probe row is accepted, after which its data is assumed to be at fault."""
FEWER_DAYS = 3
"""Divisor for the size of a group of days that was refused as too large."""
FAILURES_MAX = 4
"""Failures of one segment in a row, of any kind, after which the store is probed and an alarm is raised."""


class TurnEnded(Exception):  # noqa: N818 - not an error: ends the turn of a segment at any call depth
    """Other segments go first: the store refuses this segment, or (`retry_soon`) it needs several turns."""

    def __init__(self, *, retry_soon: bool = False) -> None:
        super().__init__()
        self.retry_soon = retry_soon


class ErrorPolicy:
    """Decides how to proceed after a failed statement."""

    def __init__(self, journal: Journal, store: Store, progress: Progress, environment: Environment) -> None:
        self._journal = journal
        self._store = store
        self._progress = progress
        self._environment = environment
        self._inspect_at_s = environment.now() + INSPECT_S

    def handle_failure(self, state: SegmentState, trouble: StoreTrouble, delays: Delays) -> None:
        """Handle a failed statement; wait if the store is at fault. Raises `TurnEnded`."""
        fault = fault_of(trouble)
        limited.warning(
            f"store: {fault} {trouble.label}",
            "a statement failed; the segment waits for the store",
            error=trouble.label,
        )
        self._progress.record_failure(fault, trouble.label)
        if _takes_fewer_days(state, trouble, fault):
            return
        if not state.failures:
            delays.restart()
        state.failures += 1
        is_suspect = fault in {Fault.HOLD, Fault.POISON} or trouble.code in OF_ONE_SEGMENT
        if (is_suspect or state.failures >= FAILURES_MAX) and self._store_accepts_probe():
            state.refusals += 1
            if not self._has_data_at_fault(state, trouble, fault):
                self._end_turn(state.file.id, trouble, state.failures)
            return
        if fault in {Fault.HOLD, Fault.POISON}:
            self._progress.alarm(fault, f"the store refuses every segment: {trouble.label}")
        self.pause(trouble, delays)

    def end_turn_if_store_accepts_others(
        self, segment: SegmentId, trouble: StoreTrouble, failures: int
    ) -> None:
        """Raise `TurnEnded` if statements about this segment fail while the store accepts a probe row."""
        if failures >= FAILURES_MAX and self._store_accepts_probe():
            self._end_turn(segment, trouble, failures)

    def pause(self, trouble: StoreTrouble, delays: Delays) -> None:
        """Sleep for the next delay of this class of failure."""
        fault = fault_of(trouble)
        self._progress.record_backlog(list(self._journal.sealed()), self._environment.now())
        self._environment.sleep(next(delays.slow if fault in SLOW else delays.fast))
        self.inspect_if_due()

    def inspect_if_due(self) -> None:
        """Check the store for damaged parts every minute.

        A bad merge can be repaired only from its source parts, which the store keeps for a few minutes.
        """
        if self._environment.now() < self._inspect_at_s:
            return
        self._inspect_at_s = self._environment.now() + INSPECT_S
        try:
            self._store.inspect()
        except StoreTrouble as trouble:
            limited.warning(
                f"store: {trouble.label}",
                "the store cannot be checked for damaged parts",
                error=trouble.label,
            )

    def _end_turn(self, segment: SegmentId, trouble: StoreTrouble, failures: int) -> NoReturn:
        """End the turn of a segment; raise an alarm if it failed too often or an operator is needed."""
        if failures >= FAILURES_MAX or fault_of(trouble) is Fault.HOLD:
            self._progress.stall(segment, f"the store refuses it and accepts other rows: {trouble.label}")
        raise TurnEnded

    @staticmethod
    def _has_data_at_fault(state: SegmentState, trouble: StoreTrouble, fault: Fault) -> bool:
        """Request a search or a split if the segment's data is at fault. Return whether it is.

        False if that was requested before: the failed statement is then a different one.
        """
        if state.refused_for is not None or state.is_too_large or state.search is not None:
            return False
        is_unknown_code = trouble.code not in {None, *FAULT_OF} and state.refusals >= REFUSALS_MAX
        if fault is Fault.POISON or is_unknown_code:
            state.refused_for = trouble
        elif trouble.code in TOO_LARGE and state.rows > 1:
            state.is_too_large = state.refusals >= TOO_LARGE_MAX
        return state.refused_for is not None or state.is_too_large

    def _store_accepts_probe(self) -> bool:
        """Return whether the store accepts a probe row."""
        try:
            self._store.probe()
        except StoreTrouble:
            return False
        return True


def _takes_fewer_days(state: SegmentState, trouble: StoreTrouble, fault: Fault) -> bool:
    """Reduce the days per statement if that may help. Return whether it may."""
    if fault is Fault.BY_DAY and not state.by_day:
        state.by_day = True
        return True
    is_too_much = fault is Fault.BY_DAY or (state.by_day and trouble.code in TOO_LARGE)
    if is_too_much and state.days_per_statement > 1:
        state.days_per_statement //= FEWER_DAYS
        return True
    return False
