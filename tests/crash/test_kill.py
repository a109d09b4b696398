"""Claims about death: a process that appends is killed, and what it promised is there, once."""

from __future__ import annotations

from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.crash.promises import CHILD, ROOT, Promises


@pytest.mark.fault("kill -9 of an intake at any time")
def test_a_killed_intake_keeps_every_promise_and_makes_none_twice(tmp_path: Path) -> None:
    children = []
    for lines_before_death in (1, 2, 7, 12, 40):
        command = [*CHILD, str(tmp_path), "100000", "3"]
        with Popen(command, stdout=PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            said = "".join(child.stdout.readline() for _ in range(lines_before_death))
            child.kill()
            children.append(Promises.read(said + child.stdout.read()))

    promises = Promises(*(set().union(*kinds) for kinds in zip(*children, strict=True)))

    assert len(promises.acknowledged) >= 20
    promises.assert_kept(tmp_path)
