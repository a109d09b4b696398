"""The writer: carries sealed segments from the journal into the store, oldest first, one INSERT at a time.

    settle   which deliveries are new   noted durably, the others left out: from then on its content is final
    carry    look, insert, mend         step by step until every due row was counted, or it is set aside
    unlink                              or let it rest while others go first

Keeps: a segment is let go of when all its rows were counted in the store, or lie in the dead letters with the
reason. Never: gives up on the store. While it is away the journal grows, and it is the journal's ceiling, not
the writer's patience, that makes senders wait.
"""

from __future__ import annotations

import shutil

from receiver.logs import limited
from receiver.model import SegmentId
from receiver.storage.aside import Aside, SetAside
from receiver.storage.backoff import SLOWER_FIRST_S, Delays
from receiver.storage.booking import Booking
from receiver.storage.carrying import Carrier
from receiver.storage.case import Case, Core, Journal, Reading, SegmentFile
from receiver.storage.cuts import Cuts
from receiver.storage.dead import DeadLetters
from receiver.storage.inserting import Inserter
from receiver.storage.ledger import Ledger
from receiver.storage.poison import Poison
from receiver.storage.progress import Progress
from receiver.storage.sifting import Postponed, opened
from receiver.storage.store import Store
from receiver.storage.surroundings import Stopping, Surroundings
from receiver.storage.weighing import Resting, Scales
from receiver.storage.window import Window

IDLE_S = 0.1
"""Between two looks at an empty journal."""


class Writer:
    """Drains the journal until `sleep` says there is no time left."""

    def __init__(  # noqa: PLR0913 - each is a neighbour that a test replaces
        self,
        journal: Journal,
        store: Store,
        *,
        core: Core,
        window: Window,
        ledger: Ledger,
        dead: DeadLetters,
        progress: Progress,
        around: Surroundings,
    ) -> None:
        self._journal = journal
        self._core = core
        self._window = window
        self._progress = progress
        self._ledger = ledger
        self._aside = Aside(dead, core, progress, around.now)
        self._cuts = Cuts(around.repair_dir.parent / "cuts", core)
        self._poison = Poison(store, core, self._aside, around)
        self._booking = Booking(ledger, store, self._cuts, window)
        self._around = around
        self._in_doubt: set[SegmentId] | None = None
        self._resting: dict[SegmentId, tuple[Case, Delays, float]] = {}
        """Segments the store takes no more, though it takes others, and until when they wait."""
        self._postponed: dict[SegmentId, SegmentId] = {}
        """Segments that hold a delivery of another one, and which they wait for."""
        self._scales = Scales(journal, store, progress, around)
        inserter = Inserter(store, core, progress, around)
        self._carrier = Carrier(
            store,
            core,
            window,
            self._booking,
            progress,
            around,
            inserter,
            self._scales,
            self._poison,
            self._cuts,
        )

    def run(self) -> None:
        """Carry segments until stopped. Stopping between two steps loses nothing."""
        try:
            while True:
                if not self.drain():
                    self._around.sleep(IDLE_S)
                self._scales.inspect_if_due()
                self._around.alive()
        except Stopping:
            return

    def drain(self) -> int:
        """Carry every segment that is sealed now and not resting. How many had their turn."""
        whole = list(self._journal.sealed())
        sealed = list(self._cuts.in_place(whole))
        if self._in_doubt is None:
            self._in_doubt = {segment.id for segment in sealed}
            self._begin(self._in_doubt | {segment.id for segment in whole} | {*self._journal.held})
        segments = [segment for segment in sealed if not self._rests(segment.id)]
        # What was begun comes first: others may have to wait for it.
        segments.sort(key=lambda segment: self._window.standing(segment.id) is None)
        carried, bytes_waiting = 0, sum(segment.bytes for segment in segments)
        for index, segment in enumerate(segments):
            self._around.sleep(0)
            self.look_after()
            self._progress.waits(segment, len(segments) - index, bytes_waiting, self._around.now())
            bytes_waiting -= segment.bytes
            carried += self._carry_if_readable(segment, self._in_doubt)
        self.look_after()
        waiting = [one for one in sealed if one.id in self._resting or one.id in self._postponed]
        self._progress.backlog(waiting, self._around.now())
        return carried

    def look_after(self) -> None:
        """See to what is due between two segments, and while the store has no tables to carry any into."""
        self._put_back()
        self._window.tick()
        self._progress.window(len(self._window), self._window.reach_s, self._window.shortfall)

    def _begin(self, present: set[SegmentId]) -> None:
        """Take over from an earlier life. What that sent out of `repair` is counted like any other INSERT."""
        shutil.rmtree(self._around.repair_dir, ignore_errors=True)
        for gone in self._ledger.stored_and_gone(present):
            self._window.keep_word(gone)
        self._window.retain(present)
        self._cuts.retain(present)
        self._ledger.retain(present)

    def _put_back(self) -> None:
        """What we know is in memory, too: it is written anew when somebody takes it away under us."""
        known: dict[str, Ledger | Window] = {"ledger": self._ledger, "redelivery window": self._window}
        for name, one in known.items():
            try:
                if one.put_back():
                    self._progress.alarm("gone", f"{name} was taken away while in use; it was written anew")
            except OSError as reason:
                self._progress.trouble = f"{name} was taken away and cannot be written: {reason.strerror}"
                limited.error("writer: gone", self._progress.trouble)

    def _rests(self, segment: SegmentId) -> bool:
        """Whether it, or the one it waits for, has to let others go first."""
        one = self._postponed.get(segment, segment)
        return one in self._resting and self._around.now() < self._resting[one][2]

    def _carry_if_readable(self, segment: SegmentFile, in_doubt: set[SegmentId]) -> bool:
        """Our own disk's trouble with one segment must not keep the others waiting. False: it had no turn.

        What was known of it is gone with its case, so the next try counts before it sends anything.
        """
        self._postponed.pop(segment.id, None)
        try:
            self.carry(segment, in_doubt=segment.id in in_doubt)
        except Postponed as reason:
            self._postponed[segment.id] = reason.by
            return False
        except OSError as error:
            in_doubt.add(segment.id)
            self._progress.trouble = f"segment {segment.id}: {error.strerror}"
            self._progress.alarm(
                "disk", f"segment {segment.id} cannot be read or let go of: {error.strerror}"
            )
            self._around.sleep(SLOWER_FIRST_S)
            return False
        in_doubt.discard(segment.id)
        return True

    def carry(self, segment: SegmentFile, *, in_doubt: bool) -> None:
        """Bring one segment to its end: stored, or set aside. Or let it rest while others go first.

        Raises `Postponed` before anything of it is decided: another one comes first.
        """
        if self._aside.is_done_with(segment.id):
            self._let_go(segment)
            return
        case, delays = self._begun(segment, in_doubt=in_doubt)
        try:
            while not self._carrier.is_carried(case, delays):
                pass
            self._let_go(segment)
            self._progress.stored(case.rows, case.received_ms, self._around.now())
        except SetAside as reason:
            # Booked before its letter is there: with the letter it is done with.
            self._booking.ended(case)
            self._aside.keep(case, reason)
            self._let_go(segment)
            self._progress.rows += case.rows_stored
        except Resting as reason:
            delay_s = 0.0 if reason.is_over_soon else next(delays.slow)
            self._resting[segment.id] = (case, delays, self._around.now() + delay_s)

    def _let_go(self, segment: SegmentFile) -> None:
        """Its rows are in the store, in its parts' care, or in a letter.

        Promised until it is gone: were the store to take it after all, a copy would be stored twice.
        """
        if self._aside.is_as_bad_as_its_copy(segment.id):
            self._window.keep_word(segment.id)
        segment.unlink()
        self._cuts.forget(segment.id)
        self._window.forget(segment.id)
        self._ledger.settle(segment.id)
        self._progress.trouble = ""

    def _begun(self, segment: SegmentFile, *, in_doubt: bool) -> tuple[Case, Delays]:
        if segment.id in self._resting:
            case, delays, _ = self._resting.pop(segment.id)
            return case, delays
        case = opened(
            segment,
            self._core,
            self._window,
            in_doubt=in_doubt,
            left_out=self._poison.left_out_of(segment.id),
            has_rows=self._carrier.has_rows,
            on_damage=self._on_damage,
        )
        if self._cuts.is_cut(segment.id):
            case.rows, case.rest, case.must_look = 0, "dead", True
        else:
            self._poison.recall(case)
        return case, Delays(self._around.jitter)

    def _on_damage(self, reading: Reading, rows_given_up: int) -> None:
        """Keep a copy of what the disk gave back damaged, and book what is lost."""
        self._booking.damaged(reading)
        self._aside.keep_damaged(reading, rows_given_up)
