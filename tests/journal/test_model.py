"""Stateful test of the journal against a model, a list of names, with random errors, crashes and power cuts.

Invariants: acknowledged ⊆ recovered ⊆ issued, each once; a record refused with an error is never recovered,
except after a crash while the journal reported that it could not drop the record.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from receiver.errors import DiskTrouble, JournalFull, OperatorError, StaleSegment
from receiver.journal.appender import TAIL_NOT_DROPPED, Appender
from receiver.journal.segments import Journal, SegmentFile
from tests.support.cases import RANDOM_CASES
from tests.support.clock import Clock
from tests.support.journal import ROOT, appender, names_in
from tests.support.memory_disk import Killed, MemoryDisk
from tests.support.record_layout import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.model import SegmentId

CODES = st.sampled_from([errno.EIO, errno.ENOSPC, errno.EROFS])
CALLS = st.integers(min_value=1, max_value=12)


class JournalMachine(RuleBasedStateMachine):
    """State machine with at most one intake, one writer, and a failing disk."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.clock = Clock()
        self.intake: Appender | None = None
        self.issued = 0
        self.acknowledged: set[str] = set()
        self.unresolved: set[str] = set()
        self.not_dropped: set[str] = set()
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
            self.not_dropped.add(name)
        except (JournalFull, StaleSegment):
            pass
        except Killed:
            self.unresolved.add(name)
            self.crash(power=False, kept=0)

    @precondition(lambda self: self.intake is not None)
    @rule(seconds=st.floats(min_value=0, max_value=3))
    def idle(self, seconds: float) -> None:
        assert self.intake is not None
        self.clock.now_s += seconds
        self.run_or_crash(self.intake.retire_if_due)

    @precondition(lambda self: self.intake is not None)
    @rule()
    def seal_retired(self) -> None:
        assert self.intake is not None
        self.run_or_crash(self.intake.seal_retired)

    @precondition(lambda self: self.intake is not None)
    @rule()
    def seal(self) -> None:
        assert self.intake is not None
        self.run_or_crash(self.intake.seal)

    @precondition(lambda self: self.intake is not None)
    @rule()
    def stop(self) -> None:
        assert self.intake is not None
        self.note_unresolved_records()
        self.run_or_crash(self.intake.close)
        self.intake = None

    @rule(power=st.booleans(), kept=st.integers(min_value=0, max_value=4))
    def crash(self, *, power: bool, kept: int) -> None:
        self.note_unresolved_records()
        self.intake = None
        if power:
            self.disk.cut_power(lambda waiting: min(kept, waiting))
        else:
            self.disk.kill()

    @rule(count=CALLS, code=CODES, is_permanent=st.booleans())
    def inject_errors(self, count: int, code: int, *, is_permanent: bool) -> None:
        self.disk.fail_nth(count, lambda: OSError(code, os.strerror(code)), is_permanent=is_permanent)

    @rule(count=CALLS)
    def schedule_crash(self, count: int) -> None:
        self.disk.fail_nth(count, Killed)

    @rule()
    def heal_disk(self) -> None:
        self.disk.heal()

    @rule()
    def store_oldest(self) -> None:
        try:
            for segment in Journal(ROOT, self.disk).sealed()[:1]:
                self.store(segment)
        except OSError:
            self.disk.heal()
        except Killed:
            self.crash(power=False, kept=0)

    def store(self, segment: SegmentFile) -> None:
        """Store a segment and delete it; a segment that is listed again must be unchanged."""
        scan = segment.scan()
        names = names_in(segment)
        assert segment.damage(scan) == []
        assert self.stored.setdefault(segment.id, names) == names
        segment.unlink()

    def run_or_crash(self, operation: Callable[[], None]) -> None:
        try:
            operation()
        except Killed:
            self.crash(power=False, kept=0)

    def note_unresolved_records(self) -> None:
        """Expect failed records to be dropped, unless the journal reports that it could not drop them."""
        if self.intake is not None and self.intake.full_reason() == TAIL_NOT_DROPPED:
            self.unresolved |= self.not_dropped
        self.not_dropped.clear()

    @invariant()
    def no_record_is_stored_twice(self) -> None:
        names = [name for names in self.stored.values() for name in names]
        assert len(names) == len(set(names))

    def teardown(self) -> None:
        """Cut the power, let the writer finish, and compare the stored records with the model."""
        self.crash(power=True, kept=0)
        for segment in Journal(ROOT, self.disk).sealed():
            self.store(segment)
        Journal(ROOT, self.disk).sealed()

        names = {name for names in self.stored.values() for name in names}
        self.no_record_is_stored_twice()
        assert self.acknowledged <= names <= self.acknowledged | self.unresolved
        assert self.disk.size_bytes(ROOT) is None or self.disk.names(ROOT) == []


@pytest.mark.random_cases
def test_journal_agrees_with_its_model() -> None:
    profile = settings(
        max_examples=4 * RANDOM_CASES, stateful_step_count=40, suppress_health_check=list(HealthCheck)
    )

    run_state_machine_as_test(JournalMachine, settings=profile)
