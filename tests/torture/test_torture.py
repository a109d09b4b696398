"""The short run: processes are killed and frozen under load, and what was answered with 200 is there, right.

The long one is `make torture DURATION=30m SEED=7`. It runs in a process of its own: the embedded engine has
one directory for the life of a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = 20_260_115
DURATION_S = 60
DISK_MIB = 512


def torture(*flags: str, seed: int = SEED) -> None:
    """Run it and show what it said; the exit code is the verdict."""
    command = [
        sys.executable,
        "-m",
        "tests.torture",
        "--duration",
        str(DURATION_S),
        "--seed",
        str(seed),
        *flags,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.timeout(400)
def test_nothing_is_lost_or_invented_whatever_is_killed() -> None:
    torture()
