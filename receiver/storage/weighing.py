"""What trouble with the store means for the segment that met it: wait, call a human, or look at the data.

the store refuses a row of our own too    it is the schema, or the store: hold
it refuses this segment only              the data is at fault, or it lets others go first
"""

from __future__ import annotations

from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.storage.backoff import Delays
from receiver.storage.case import Case, Journal
from receiver.storage.faults import FAULT_OF, SLOW, TOO_LARGE, Fault, fault_of
from receiver.storage.progress import Progress
from receiver.storage.store import Store
from receiver.storage.surroundings import Surroundings

INSPECT_S = 60.0
"""Between two looks at what the store's disk may have damaged."""
TOO_LARGE_MAX = 3
"""So often the store had neither time nor memory for a segment, but for a row of our own: it is cut up."""
REFUSALS_MAX = 5
"""Of one segment, while a row of our own is taken: then the segment is at fault, or lets others go first."""


class Resting(Exception):  # noqa: N818 - not an error: how a case gives up its turn from any depth
    """The store takes others, but not this segment; or there is much to do for it."""

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
        """Decide how long to wait, whether to alarm, and whether the data is at fault. Raises `Resting`."""
        fault = fault_of(trouble)
        limited.warning(f"store: {fault} {trouble.label}", "segment waits for the store", why=trouble.label)
        if fault is Fault.BY_DAY and not case.by_day:
            self._progress.met(fault, trouble.label)
            case.by_day = True
            return
        is_too_large = trouble.code in TOO_LARGE and self._accepts_our_own()
        if fault in {Fault.HOLD, Fault.POISON} or is_too_large:
            self._refused(case, trouble, fault)
        if case.refused_for or case.is_too_large:
            self._progress.met(fault, trouble.label)
            return
        self.pause(trouble, delays)

    def pause(self, trouble: StoreTrouble, delays: Delays) -> None:
        """Wait as long as such trouble takes."""
        fault = fault_of(trouble)
        self._progress.met(fault, trouble.label)
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

    def _refused(self, case: Case, trouble: StoreTrouble, fault: Fault) -> None:
        """Tell by a row of our own whether the store refuses everything, or this segment."""
        if not self._accepts_our_own():
            self._progress.alarm(fault, f"store refuses every segment: {trouble.label}")
            return
        case.refusals += 1
        is_strange = trouble.code not in {None, *FAULT_OF} and case.refusals >= REFUSALS_MAX
        if fault is Fault.POISON or is_strange:
            case.refused_for = trouble
            return
        if trouble.code in TOO_LARGE and case.rows > 1:
            case.is_too_large = case.refusals >= TOO_LARGE_MAX
            return
        self._progress.alarm(fault, f"store refuses segment {case.file.id}: {trouble.label}")
        if case.refusals >= REFUSALS_MAX:
            raise Resting

    def _accepts_our_own(self) -> bool:
        try:
            self._store.probe()
        except StoreTrouble:
            return False
        return True
