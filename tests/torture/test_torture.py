"""Short torture run: processes are killed and frozen under load, and every acknowledged span is stored once.

The long run is `make torture DURATION=30m SEED=7`. A run needs its own process: the embedded engine can open
one directory during the life of a process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from tests.faults.small_disk import mount, unmount
from tests.support.strace import ROOT

SEED = 20_260_115
DURATION_S = 50
KILLS_MIN = 10
"""Also on a slow machine: with fewer, none may be during a commit, and the run shows nothing."""
TIMEOUT_S = 400
DISK_MIB = 512


def can_mount(path: Path) -> bool:
    is_mounted = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path))
    if is_mounted:
        unmount(path)
    return is_mounted


@pytest.mark.fault(
    "everything at once: kills, freezes, restarts and copies under load, "
    "on one small disk for journal and engine that fills up"
)
@pytest.mark.timeout(TIMEOUT_S + 100)
def test_no_span_is_lost_or_invented_whichever_process_is_killed(tmp_path: Path) -> None:
    """Shows the output of the run if it fails; the exit code is the verdict."""
    options = ("--duration", str(DURATION_S), "--kills", str(KILLS_MIN), "--seed", str(SEED))
    command = [sys.executable, "-m", "tests.torture", *options]
    if can_mount(tmp_path):
        command += ["--disk-mib", str(DISK_MIB)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=PIPE, stderr=STDOUT, text=True) as run:
        try:
            output, _ = run.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)  # so that it stops the receiver it started
            output, _ = run.communicate()
    assert run.returncode == 0, output
