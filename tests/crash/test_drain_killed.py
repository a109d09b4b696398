"""Tests that kill a process with SIGKILL at every system call of one commit and one drain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.recording import Call, record
from tests.faults.recovery import ChildOutput, assert_promises_are_kept
from tests.support.strace import injection, needs_strace, run_child

CHILD = "tests.crash.commit_and_drain_once"
EXIT_SIGKILL = -9
CALLS = {
    "mkdir",
    "openat",
    "pwrite64",
    "write",
    "ftruncate",
    "fdatasync",
    "fsync",
    "rename",
    "unlink",
    "rmdir",
}

pytestmark = needs_strace


def changes_files(call: Call) -> bool:
    """Return whether the call changes files: a kill at any other call equals a kill at the next that does."""
    return call.name != "close" and (call.name != "openat" or "O_CREAT" in call.flags)


@pytest.mark.fault("kill -9 at every system call of one commit and one drain")
@pytest.mark.timeout(300)
def test_drain_killed_at_any_call_is_completed_by_the_next_receiver(tmp_path: Path) -> None:
    undisturbed = tmp_path / "whole"
    undisturbed.mkdir()
    counts = record(CHILD, undisturbed, tmp_path / "strace")
    calls = [(call, occurrence) for call, occurrence in counts if changes_files(call)]

    for number, (call, occurrence) in enumerate(calls):
        data = tmp_path / str(number)
        data.mkdir()
        rules = injection(call.name, f"signal=SIGKILL:when={occurrence}")
        done = run_child(CHILD, str(data), log=tmp_path / "strace", rules=rules)

        assert done.returncode == EXIT_SIGKILL, (call, occurrence)
        assert_promises_are_kept(data, ChildOutput.parse(done.stdout.splitlines()))

    assert {call.name for call, _ in calls} == CALLS
