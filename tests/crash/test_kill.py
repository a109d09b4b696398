"""Tests that kill an appending process: every acknowledged record is recovered once."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.crash.promises import CHILD, Promises
from tests.support.strace import ROOT


@pytest.mark.fault("kill -9 of an intake at any time")
def test_killed_intake_keeps_every_acknowledged_record_once(tmp_path: Path) -> None:
    children = []
    for lines_before_kill in (1, 2, 7, 12, 40):
        command = [sys.executable, "-B", "-m", CHILD, str(tmp_path), "100000", "3"]
        with Popen(command, stdout=PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            output = "".join(child.stdout.readline() for _ in range(lines_before_kill))
            child.kill()
            children.append(Promises.parse(output + child.stdout.read()))

    promises = Promises(*(set().union(*outcomes) for outcomes in zip(*children, strict=True)))

    assert len(promises.acknowledged) >= 20
    promises.assert_kept(tmp_path)
