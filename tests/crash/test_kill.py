"""Claims about death: a process that appends is killed, and what it promised is there, once."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import PIPE, Popen

from tests.journal_support import recovered

ROOT = Path(__file__).parents[2]
CHILD = [sys.executable, "-m", "tests.crash.append_forever"]


def words(said: str, kind: str) -> set[str]:
    return {line.split()[1] for line in said.splitlines() if line.startswith(kind) and line.count(" ") == 1}


def test_a_killed_intake_keeps_every_promise_and_makes_none_twice(tmp_path: Path) -> None:
    issued: set[str] = set()
    acknowledged: set[str] = set()
    for lines_before_death in (1, 2, 7, 12, 40):
        with Popen([*CHILD, str(tmp_path), "100000"], stdout=PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            said = "".join(child.stdout.readline() for _ in range(lines_before_death))
            child.kill()
            said += child.stdout.read()
        issued |= words(said, "issued")
        acknowledged |= words(said, "acknowledged")

    found = recovered(root=tmp_path)

    assert len(acknowledged) >= 20
    assert len(found) == len(set(found))
    assert acknowledged <= set(found) <= issued
