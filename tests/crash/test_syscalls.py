"""Claims about every system call of a commit: killed there, or failed there, promises are kept.

Two records, each in a segment of its own: the second commit seals the first's segment, leaving seals its own.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.crash.promises import CHILD, ROOT, Promises

STRACE = shutil.which("strace")
CALLS_MAX = 40
"""More calls of one kind than two commits make."""

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed; it injects the faults")


def run(root: Path, call: str, injected: str) -> tuple[bool, Promises]:
    """Let a child meet a fault; tells whether it ended well, and what it promised."""
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
    return done.returncode == 0, Promises.read(done.stdout)


def is_met(root: Path) -> bool:
    """Tell whether the fault was met: strace notes it."""
    noted = (root / "strace").read_text()
    return "(INJECTED)" in noted or "SIGKILL" in noted


@pytest.mark.fault("kill -9 by strace at every call of two commits")
@pytest.mark.parametrize(
    "call", ["mkdir", "flock", "pwrite64", "ftruncate", "fdatasync", "fsync", "rename", "unlink"]
)
def test_an_intake_killed_at_any_call_keeps_its_promises(tmp_path: Path, call: str) -> None:
    for count in range(1, CALLS_MAX):
        root = tmp_path / str(count)
        root.mkdir()

        ended_well, promises = run(root, call, f"signal=SIGKILL:when={count}")

        promises.assert_kept(root / "journal")
        if not is_met(root):
            assert ended_well
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {call}; expected two commits to need fewer")


@pytest.mark.fault("ENOSPC or EIO by strace at every call of two commits, once or for good")
@pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "for ever"])
@pytest.mark.parametrize(
    ("call", "error"),
    [("pwrite64", "ENOSPC"), ("fdatasync", "EIO"), ("fsync", "EIO"), ("rename", "EIO"), ("ftruncate", "EIO")],
)
def test_an_intake_that_meets_an_error_at_any_call_keeps_its_promises(
    tmp_path: Path, call: str, error: str, lasting: str
) -> None:
    for count in range(1, CALLS_MAX):
        root = tmp_path / str(count)
        root.mkdir()

        _, promises = run(root, call, f"error={error}:when={count}{lasting}")

        promises.assert_kept(root / "journal")
        if not is_met(root):
            assert len(promises.acknowledged) == 2
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {call}; expected two commits to need fewer")
