"""Kills and disk errors at every call that changes a file, during one whole life of a store process."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from receiver.errors import OperatorError
from receiver.ledger.line_sums import Counts
from tests.faults.store_life import DELETED, SENT, StoreLife
from tests.support.faulty_disk import READ_CALLS, WRITE_CALLS, DiskFault, faults_at_each_call, process_with
from tests.support.redelivery import Killed

EIO = partial(OSError, errno.EIO, "refused")
ENOSPC = partial(OSError, errno.ENOSPC, "refused")
ROWS_SENT = sum(number + 1 for numbers in SENT for number in numbers)


def test_store_process_changes_files_in_every_way(quick_dir: Path) -> None:
    """Shows that the tests below, which inject faults at these calls, reach every kind of call."""
    life = StoreLife(quick_dir)
    life.fill_journal()
    calls: set[str] = set()

    with process_with(CallRecorder(calls)):
        life.run()

    assert calls == WRITE_CALLS - {"sync_file_system", "link"}
    assert life.copies == {number: float(number != DELETED) for number in life.output.issued}
    assert list((quick_dir / "dead").iterdir()) == []


class CallRecorder(DiskFault):
    """Fault that never happens and records the names of the calls."""

    def __init__(self, calls: set[str]) -> None:
        super().__init__(WRITE_CALLS, 0, is_permanent=False, error=None)
        self._met = calls

    def fails(self, call: str) -> bool:
        if call in WRITE_CALLS:
            self._met.add(call)
        return False


@pytest.mark.fault(
    "a kill, ENOSPC or EIO at every change of a file during a run of the store process; longer or shorter "
    "disk errors, and EIO at reads, at many calls"
)
@pytest.mark.parametrize(
    ("error", "calls", "is_permanent", "step"),
    [
        pytest.param(Killed, WRITE_CALLS, True, 1, id="killed"),
        pytest.param(EIO, WRITE_CALLS, False, 1, id="EIO once on writes"),
        pytest.param(ENOSPC, WRITE_CALLS, True, 1, id="ENOSPC permanently on writes"),
        # Not every call, because all of them would take minutes.
        pytest.param(EIO, READ_CALLS, False, 17, id="EIO once on reads"),
        pytest.param(EIO, WRITE_CALLS, True, 11, id="EIO permanently on writes"),
        pytest.param(ENOSPC, WRITE_CALLS, False, 5, id="ENOSPC once on writes"),
    ],
)
@pytest.mark.timeout(400)
def test_fault_at_any_call_keeps_every_row_once(
    quick_dir: Path,
    error: Callable[[], BaseException],
    calls: frozenset[str],
    step: int,
    *,
    is_permanent: bool,
) -> None:
    for fault in faults_at_each_call(calls, error, is_permanent=is_permanent, step=step):
        life = StoreLife(quick_dir / str(fault.at))
        life.data.mkdir()
        life.fill_journal()

        with process_with(fault), suppress(OSError, OperatorError, Killed):
            life.run()
        life.recover()

        assert_exact(life, f"fault at call {fault.at}")
        shutil.rmtree(life.data)


def assert_exact(life: StoreLife, context: str) -> None:
    """Every delivery is stored once, except the one that the operator may have deleted."""
    copies = dict(life.copies)
    assert copies.pop(DELETED) in {0.0, 1.0}, context
    assert set(copies.values()) == {1.0}, f"{context}: {copies}"
    recorded = Counts()
    for counts in life.sums.lines.values():
        recorded = recorded.plus(counts)
    stored = sum(rows for _, _, rows in life.store.parts)
    assert (recorded.received, recorded.stored) == (ROWS_SENT, stored), f"{context}: {recorded}"
    assert (recorded.unaccounted, life.sums.losses) == (0, ()), f"{context}: {recorded}"
