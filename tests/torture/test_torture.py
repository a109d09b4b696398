"""The short run: processes are killed and frozen under load, and what was answered with 200 is there, right.

The long one is `make torture DURATION=30m SEED=7`. It runs in a process of its own: the embedded engine has
one directory for the life of a process.
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
    """Run it and show what it said; the exit code is the verdict."""
    command = [sys.executable, "-m", "tests.torture", "--duration", str(DURATION_S), "--seed", str(seed)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, *flags], cwd=ROOT, env=environment, stdout=PIPE, stderr=STDOUT, text=True
    ) as run:
        try:
            said, _ = run.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)  # so that it stops the receiver it started
            said, _ = run.communicate()
    assert run.returncode == 0, said


@pytest.mark.fault("everything at once: kills, freezes, restarts, redelivery under load")
@pytest.mark.timeout(TIMEOUT_S + 100)
def test_nothing_is_lost_or_invented_whatever_is_killed() -> None:
    torture()


@pytest.fixture
def _mountable(tmp_path: Path) -> None:
    """Making a disk takes rights that not every machine gives."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a small disk of its own takes root and the right to mount a tmpfs")
    subprocess.run(["umount", str(tmp_path)], check=True)  # noqa: S607


@pytest.mark.fault("everything at once, on one small disk for journal and engine that fills")
@pytest.mark.timeout(TIMEOUT_S + 100)
@pytest.mark.usefixtures("_mountable")
def test_nothing_is_lost_or_invented_when_journal_and_engine_share_a_disk_that_fills() -> None:
    torture("--disk-mib", str(DISK_MIB))
