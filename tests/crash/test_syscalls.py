"""Tests that kill a process, or fail its call, at every system call of two commits.

Each record is in its own segment: the second commit seals the first segment, closing the journal the second.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.crash.promises import CHILD, ROOT, Promises

STRACE = shutil.which("strace")
CALLS_MAX = 40
"""More calls of any kind than two commits make."""

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed; it injects the faults")


def run(root: Path, call: str, injected: str) -> tuple[bool, Promises]:
    """Run a child with a fault. Returns whether it succeeded, and the outcomes of its records."""
    assert STRACE is not None
    fault = ["-e", f"trace={call}", "-e", f"inject={call}:{injected}"]
    command = [
        STRACE,
        "-f",
        "-qq",
        "-o",
        str(root / "strace"),
        *fault,
        *CHILD,
        str(root / "journal"),
        "2",
        "1",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode == 0, Promises.parse(done.stdout)


def was_injected(root: Path) -> bool:
    """Return whether strace injected the fault."""
    trace = (root / "strace").read_text()
    return "(INJECTED)" in trace or "SIGKILL" in trace


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
        if not was_injected(root):
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
        if not was_injected(root):
            assert len(promises.acknowledged) == 2
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {call}; expected two commits to need fewer")
