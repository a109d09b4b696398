"""Memory of SQL: statements that need all memory of the store end with an error, and INSERTs go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from receiver.console.queries.limits import limit_exceeded
from receiver.errors import StoreTrouble

MEMORY_LIMIT_EXCEEDED = 241


def test_two_statements_that_need_all_memory_fail_and_inserts_go_on(tmp_path: Path) -> None:
    # A process of its own, because a process has one engine, and the limit applies to the whole engine.
    child = subprocess.run(
        [sys.executable, "-m", "tests.console.queries.sql_memory_child", str(tmp_path / "store")],
        check=True,
        stdout=subprocess.PIPE,
        timeout=300,
    )
    outcome = json.loads(child.stdout.splitlines()[-1])

    assert outcome["codes"] == [MEMORY_LIMIT_EXCEEDED] * 2
    assert outcome["stored"] > outcome["failed"], "an INSERT that fails for lack of memory is sent again"


def test_error_names_the_memory_limit() -> None:
    exceeded = limit_exceeded(StoreTrouble("(total) memory limit exceeded", code=MEMORY_LIMIT_EXCEEDED))

    assert exceeded is not None
    assert exceeded.field == "memory"
    assert "or the store has less left" in str(exceeded)
