"""Tests that kill a process, or fail its call, at every system call of two commits.

Each record is in its own segment: the second commit seals the first segment, closing the journal the second.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.promises import CHILD, Promises
from tests.support.strace import injection, needs_strace, run_child, was_injected

CALLS_MAX = 40
"""More calls of any kind than two commits make."""

pytestmark = needs_strace


def run(root: Path, call: str, fault: str) -> tuple[bool, Promises]:
    """Run a child with a fault. Returns whether it succeeded, and the outcomes of its records."""
    log = root / "strace"
    done = run_child(CHILD, str(root / "journal"), "2", "1", log=log, rules=injection(call, fault))
    return done.returncode == 0, Promises.parse(done.stdout)


@pytest.mark.fault("kill -9 at every system call of two commits")
@pytest.mark.parametrize(
    "call", ["mkdir", "flock", "pwrite64", "ftruncate", "fdatasync", "fsync", "rename", "unlink"]
)
def test_intake_killed_at_any_call_keeps_every_acknowledged_record(tmp_path: Path, call: str) -> None:
    for count in range(1, CALLS_MAX):
        root = tmp_path / str(count)
        root.mkdir()

        succeeded, promises = run(root, call, f"signal=SIGKILL:when={count}")

        promises.assert_kept(root / "journal")
        if not was_injected(root / "strace"):
            assert succeeded
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {call}; expected two commits to need fewer")


@pytest.mark.fault("ENOSPC or EIO at every system call of two commits, once or permanently")
@pytest.mark.parametrize("suffix", ["", "+"], ids=["once", "permanently"])
@pytest.mark.parametrize(
    ("call", "error"),
    [("pwrite64", "ENOSPC"), ("fdatasync", "EIO"), ("fsync", "EIO"), ("rename", "EIO"), ("ftruncate", "EIO")],
)
def test_intake_that_meets_an_error_at_any_call_keeps_every_acknowledged_record(
    tmp_path: Path, call: str, error: str, suffix: str
) -> None:
    for count in range(1, CALLS_MAX):
        root = tmp_path / str(count)
        root.mkdir()

        _, promises = run(root, call, f"error={error}:when={count}{suffix}")

        promises.assert_kept(root / "journal")
        if not was_injected(root / "strace"):
            assert len(promises.acknowledged) == 2
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {call}; expected two commits to need fewer")
