"""A disk that refuses the n-th call while deliveries are committed and drained, for every n, once or always.

The scenario is that of `commit_and_drain`. It accesses files through `Disk`, so a call can be refused in this
process, hundreds of times a minute. An error that the code cannot handle ends the scenario as it would end
the process, and the next receiver starts.
"""

from __future__ import annotations

import errno
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from receiver.durable.files import Files
from receiver.errors import OperatorError
from tests.faults.commit_and_drain import run_scenario
from tests.faults.recovery import ChildOutput, assert_promises_are_kept
from tests.support.faulty_disk import (
    READ_CALLS,
    SYNC_CALLS,
    UNAFFECTED_CALLS,
    WRITE_CALLS,
    DiskFault,
    faults_at_each_call,
    process_with,
)

SHORT = 0
"""No error: the write accepts half of the bytes."""


def test_every_call_of_the_interface_can_fail() -> None:
    calls = {name for name in vars(Files) if not name.startswith("_")}

    assert calls == READ_CALLS | WRITE_CALLS | UNAFFECTED_CALLS


def fail_and_recover(directory: Path, fault: DiskFault) -> None:
    """Run the scenario with the fault, then let the next receiver recover on a healthy disk."""
    output = ChildOutput()
    with process_with(fault), suppress(OSError, OperatorError):
        run_scenario(directory, output.parse_line)
        assert fault.is_permanent or output.acknowledged == output.issued
    assert_promises_are_kept(directory, output)


@pytest.mark.fault("ENOSPC, EIO, EMFILE, EROFS or a short write at any file operation of commits and drains")
@pytest.mark.parametrize("is_permanent", [False, True], ids=["once", "permanently"])
@pytest.mark.parametrize(
    ("code", "calls"),
    [
        pytest.param(errno.ENOSPC, WRITE_CALLS - {"unlink", "remove_directory", "truncate"}, id="ENOSPC"),
        pytest.param(errno.EIO, WRITE_CALLS, id="EIO on writes"),
        pytest.param(errno.EIO, READ_CALLS, id="EIO on reads"),
        pytest.param(errno.EMFILE, frozenset({"create", "open", "read", "sync_directory"}), id="EMFILE"),
        pytest.param(errno.EROFS, WRITE_CALLS - SYNC_CALLS | {"open"}, id="EROFS"),
        pytest.param(SHORT, frozenset({"write"}), id="short write"),
    ],
)
def test_promises_hold_whichever_file_operation_is_refused(
    quick_dir: Path, code: int, calls: frozenset[str], *, is_permanent: bool
) -> None:
    error = partial(OSError, code, "refused") if code else None
    for fault in faults_at_each_call(calls, error, is_permanent=is_permanent):
        directory = quick_dir / str(fault.at)
        directory.mkdir()

        fail_and_recover(directory, fault)

        shutil.rmtree(directory)
