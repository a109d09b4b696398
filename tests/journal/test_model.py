"""The journal against a model of it: a list of names. Every move is random: errors, deaths, power cuts too.

Invariants: acknowledged ⊆ recovered ⊆ issued, each once; and what was refused with an error never comes back,
except after a death in the one state in which the journal could not drop it and said so.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from receiver.errors import DiskTrouble, JournalFull, OperatorError
from receiver.journal.appender import TAIL_NOT_DROPPED, Appender, StaleSegment
from receiver.journal.segments import Journal, SegmentFile
from tests.support.journal import ROOT, Clock, appender, names_in
from tests.support.memory_disk import Killed, MemoryDisk
from tests.support.record_layout import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.model import SegmentId

CODES = st.sampled_from([errno.EIO, errno.ENOSPC, errno.EROFS])
CALLS = st.integers(min_value=1, max_value=12)


class JournalMachine(RuleBasedStateMachine):
    """One intake at a time, one writer, a disk that does its worst."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.clock = Clock()
        self.intake: Appender | None = None
        self.issued = 0
        self.acknowledged: set[str] = set()
        self.unresolved: set[str] = set()
        self.at_large: set[str] = set()
        self.stored: dict[SegmentId, list[str]] = {}

    @precondition(lambda self: self.intake is None)
    @rule()
    def start(self) -> None:
        try:
            self.intake = appender(self.disk, clock=self.clock, segment_rows_max=4)
        except OperatorError:
            self.disk.heal()
        except Killed:
            self.disk.kill()

    @precondition(lambda self: self.intake is not None)
    @rule(rows=st.integers(min_value=0, max_value=3), padding_bytes=st.integers(min_value=0, max_value=99))
    def append(self, rows: int, padding_bytes: int) -> None:
        assert self.intake is not None
        self.issued += 1
        name = f"r{self.issued}"
        segment = self.intake.choose()
        content = record(name, epoch=segment.epoch, seq=segment.seq, rows=rows, padding_bytes=padding_bytes)
        try:
            self.intake.append(segment, content, rows)
            self.acknowledged.add(name)
        except DiskTrouble:
            self.at_large.add(name)
        except (JournalFull, StaleSegment):
            pass
        except Killed:
            self.unresolved.add(name)
            self.die(power=False, kept=0)

    @precondition(lambda self: self.intake is not None)
    @rule(seconds=st.floats(min_value=0, max_value=3))
    def idle(self, seconds: float) -> None:
        assert self.intake is not None
        self.clock.now_s += seconds
        self.survive(self.intake.retire_if_due)

    @precondition(lambda self: self.intake is not None)
    @rule()
    def seal_retired(self) -> None:
        assert self.intake is not None
        self.survive(self.intake.seal_retired)

    @precondition(lambda self: self.intake is not None)
    @rule()
    def seal(self) -> None:
        assert self.intake is not None
        self.survive(self.intake.seal)

    @precondition(lambda self: self.intake is not None)
    @rule()
    def stop(self) -> None:
        assert self.intake is not None
        self.remember_what_may_come_back()
        self.survive(self.intake.close)
        self.intake = None

    @rule(power=st.booleans(), kept=st.integers(min_value=0, max_value=4))
    def die(self, *, power: bool, kept: int) -> None:
        self.remember_what_may_come_back()
        self.intake = None
        if power:
            self.disk.cut_power(lambda waiting: min(kept, waiting))
        else:
            self.disk.kill()

    @rule(count=CALLS, code=CODES, for_ever=st.booleans())
    def break_the_disk(self, count: int, code: int, *, for_ever: bool) -> None:
        self.disk.fail_nth(count, lambda: OSError(code, os.strerror(code)), for_ever=for_ever)

    @rule(count=CALLS)
    def plan_a_death(self, count: int) -> None:
        self.disk.fail_nth(count, Killed)

    @rule()
    def mend_the_disk(self) -> None:
        self.disk.heal()

    @rule()
    def store_one(self) -> None:
        try:
            for found in Journal(ROOT, self.disk).sealed()[:1]:
                self.store(found)
        except OSError:
            self.disk.heal()
        except Killed:
            self.die(power=False, kept=0)

    def store(self, found: SegmentFile) -> None:
        """Insert once, then let go; a segment that comes back is the same as it was."""
        scan = found.scan()
        names = names_in(found)
        assert found.damage(scan) == []
        assert self.stored.setdefault(found.id, names) == names
        found.unlink()

    def survive(self, move: Callable[[], None]) -> None:
        try:
            move()
        except Killed:
            self.die(power=False, kept=0)

    def remember_what_may_come_back(self) -> None:
        """Expect that what failed is dropped by now, unless the journal says that it could not."""
        if self.intake is not None and self.intake.full_reason() == TAIL_NOT_DROPPED:
            self.unresolved |= self.at_large
        self.at_large.clear()

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        names = [name for names in self.stored.values() for name in names]
        assert len(names) == len(set(names))

    def teardown(self) -> None:
        """Cut the power and let the writer finish: now the books must balance."""
        self.die(power=True, kept=0)
        for found in Journal(ROOT, self.disk).sealed():
            self.store(found)
        Journal(ROOT, self.disk).sealed()

        names = {name for names in self.stored.values() for name in names}
        self.nothing_is_stored_twice()
        assert self.acknowledged <= names <= self.acknowledged | self.unresolved
        assert self.disk.size_bytes(ROOT) is None or self.disk.names(ROOT) == []


JournalMachine.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestJournalAgainstItsModel = JournalMachine.TestCase
