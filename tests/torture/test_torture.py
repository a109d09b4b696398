"""Short torture runs: processes are killed and frozen under load, and every acknowledged span is stored once.

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

ROOT = Path(__file__).parents[2]
SEED = 20_260_115
DURATION_S = 50
TIMEOUT_S = 400
DISK_MIB = 512


def torture(*flags: str, seed: int = SEED) -> None:
    """Run the torture and show its output if it fails; the exit code is the verdict."""
    command = [sys.executable, "-m", "tests.torture", "--duration", str(DURATION_S), "--seed", str(seed)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, *flags], cwd=ROOT, env=environment, stdout=PIPE, stderr=STDOUT, text=True
    ) as run:
        try:
            output, _ = run.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)  # so that it stops the receiver it started
            output, _ = run.communicate()
    assert run.returncode == 0, output


@pytest.mark.fault("everything at once: kills, freezes, restarts, copies under load")
@pytest.mark.timeout(TIMEOUT_S + 100)
def test_no_span_is_lost_or_invented_whichever_process_is_killed() -> None:
    torture()


@pytest.fixture
def _mountable(tmp_path: Path) -> None:
    """Skip where mounting a tmpfs is not permitted."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a small disk needs root and permission to mount a tmpfs")
    subprocess.run(["umount", str(tmp_path)], check=True)  # noqa: S607


@pytest.mark.fault("everything at once, on one small disk for journal and engine that fills up")
@pytest.mark.timeout(TIMEOUT_S + 100)
@pytest.mark.usefixtures("_mountable")
def test_no_span_is_lost_or_invented_on_a_full_disk_shared_by_journal_and_engine() -> None:
    torture("--disk-mib", str(DISK_MIB))
