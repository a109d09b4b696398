"""strace: faults in the system calls of a child process, or of a process that runs already."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")
CHILD_S_MAX = 100

needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed; it injects the faults")


def injection(calls: str, fault: str) -> tuple[str, str]:
    """Return the rules that inject a fault into these system calls and log them."""
    return f"trace={calls}", f"inject={calls}:{fault}"


def _traced(rules: Sequence[str], log: Path) -> list[str]:
    return [str(STRACE), "-f", "-o", str(log), *(word for rule in rules for word in ("-e", rule))]


def run_child(
    module: str,
    *arguments: str,
    log: Path | None = None,
    rules: Sequence[str] = (),
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests to its end; with a log, under strace with these rules."""
    command = [sys.executable, "-B", "-m", module, *arguments]
    if log is not None:
        command = [*_traced(rules, log), "-qq", *options, *command]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=CHILD_S_MAX)


def was_injected(log: Path) -> bool:
    """Return whether strace injected the fault."""
    trace = log.read_text()
    return "(INJECTED)" in trace or "SIGKILL" in trace


@contextmanager
def attached(
    pid: int, log: Path, rules: Sequence[str], paths: Sequence[Path] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Attach strace to a process until the block ends. Skips the test where that is not permitted.

    `paths`: only calls that name these files.
    """
    only = [word for path in paths for word in ("-P", str(path))]
    command = [*_traced(rules, log), *only, "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        try:
            if b"attached" not in strace.stderr.readline():
                pytest.skip("strace may not attach here")
            yield strace
        finally:
            if strace.poll() is None:
                strace.send_signal(signal.SIGINT)
