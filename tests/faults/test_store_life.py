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
from tests.support.faulty_disk import READ_CALLS, WRITE_CALLS, DiskFault, process_with
from tests.support.redelivery import Killed

CALLS_MAX = 4_000
ROWS_SENT = sum(number + 1 for numbers in SENT for number in numbers)


def test_store_process_changes_files_in_every_way(quick_dir: Path) -> None:
    """Shows that the tests below, which inject faults at these calls, reach every kind of call."""
    life = StoreLife(quick_dir)
    life.fill_journal()
    calls: set[str] = set()

    with process_with(CallRecorder(calls)):
        life.run()

    assert calls == WRITE_CALLS - {"sync_file_system"}
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


@pytest.mark.fault("a kill, ENOSPC or EIO at every change of a file during a run of the store process")
@pytest.mark.parametrize(
    ("error", "is_permanent"),
    [
        pytest.param(Killed, True, id="killed"),
        pytest.param(partial(OSError, errno.EIO, "refused"), False, id="EIO once"),
        pytest.param(partial(OSError, errno.ENOSPC, "refused"), True, id="ENOSPC permanently"),
    ],
)
@pytest.mark.timeout(400)
def test_fault_at_any_change_of_a_file_keeps_every_row_once(
    quick_dir: Path, error: Callable[[], BaseException], *, is_permanent: bool
) -> None:
    for at in range(1, CALLS_MAX):
        directory = quick_dir / str(at)
        directory.mkdir()
        life = StoreLife(directory)
        life.fill_journal()
        fault = DiskFault(WRITE_CALLS, at, is_permanent, error)

        with process_with(fault), suppress(OSError, OperatorError, Killed):
            life.run()
        life.recover()

        assert_exact(life, f"fault at call {at}")
        shutil.rmtree(directory)
        if not fault.is_reached:
            return
    pytest.fail(f"more than {CALLS_MAX} calls; expected the scenario to need fewer")


@pytest.mark.fault(
    "EIO at reads, and longer or shorter disk errors at changes, during a run of the store process"
)
@pytest.mark.parametrize(
    ("code", "calls", "is_permanent", "step"),
    [
        # Not every call, because all of them would take minutes.
        pytest.param(errno.EIO, READ_CALLS, False, 17, id="EIO once on reads"),
        pytest.param(errno.EIO, WRITE_CALLS, True, 11, id="EIO permanently on writes"),
        pytest.param(errno.ENOSPC, WRITE_CALLS, False, 5, id="ENOSPC once on writes"),
    ],
)
@pytest.mark.timeout(400)
def test_disk_error_at_many_calls_keeps_every_row_once(
    quick_dir: Path, code: int, calls: frozenset[str], step: int, *, is_permanent: bool
) -> None:
    for at in range(1, CALLS_MAX, step):
        life = StoreLife(quick_dir / str(at))
        life.data.mkdir()
        life.fill_journal()
        fault = DiskFault(calls, at, is_permanent, partial(OSError, code, "refused"))

        with process_with(fault), suppress(OSError, OperatorError):
            life.run()
        life.recover()

        assert_exact(life, f"fault at call {at}")
        shutil.rmtree(life.data)
        if not fault.is_reached:
            return
    pytest.fail(f"more than {CALLS_MAX} calls; expected the scenario to need fewer")


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
