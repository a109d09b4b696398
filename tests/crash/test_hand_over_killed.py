"""kill -9 at every single call of one commit and one hand-over: a real signal, a real call."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.aftermath import Said, assert_promises_are_kept
from tests.crash.recording import Call, counted, run

STRACE = shutil.which("strace")
CHILD = "tests.crash.hand_over_once"
KILLED = -9
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

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed; it injects the faults")


def leaves_a_trace(call: Call) -> bool:
    """Dying at any other call is dying at the next one that does."""
    return call.name != "close" and (call.name != "openat" or "O_CREAT" in call.flags)


@pytest.mark.fault("kill -9 by strace at every single call of one commit and one hand-over")
@pytest.mark.timeout(300)
def test_a_hand_over_killed_at_any_call_is_finished_by_the_next_receiver(tmp_path: Path) -> None:
    assert STRACE is not None
    whole = tmp_path / "whole"
    whole.mkdir()
    counts = counted(STRACE, CHILD, whole, tmp_path / "strace")
    calls = [(call, at) for call, at in counts if leaves_a_trace(call)]

    for number, (call, at) in enumerate(calls):
        data = tmp_path / str(number)
        data.mkdir()
        rules = (f"trace={call.name}", f"inject={call.name}:signal=SIGKILL:when={at}")
        done = run(STRACE, CHILD, data, tmp_path / "strace", *rules)

        assert done.returncode == KILLED, (call, at)
        assert_promises_are_kept(data, Said.read(done.stdout.splitlines()))

    assert {call.name for call, _ in calls} == CALLS
