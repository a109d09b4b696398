"""Tests of `tests/support/cpu_limit.py`: a test over the limit fails, also if a child used the time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cpu_limit import cpu_s

ROOT = Path(__file__).parents[2]
CHILD = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"


def run_with_limit(directory: Path, limit_s: str) -> tuple[int, str]:
    test = directory / "test_sum.py"
    test.write_text("def test_sum() -> None:\n    assert sum(range(1_000_000))\n")
    options = ["-q", "-c", os.devnull, "--rootdir", str(directory), "-p", "tests.support.cpu_limit"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--cpu-s-max", limit_s, str(test)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_test_over_the_limit_fails_and_names_the_limit(tmp_path: Path) -> None:
    code, output = run_with_limit(tmp_path, "0.001")

    assert code == 1
    assert "s of CPU time; expected at most 0.001 s" in output


def test_test_within_the_limit_passes(tmp_path: Path) -> None:
    assert run_with_limit(tmp_path, "60")[0] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the time of running children is read from /proc")
def test_time_of_a_running_child_is_counted() -> None:
    before_s = cpu_s()
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()

        assert cpu_s() - before_s > 0.25
        child.communicate(b"\n")
