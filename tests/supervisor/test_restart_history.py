"""A process that ends again and again is told, though the receiver goes on accepting."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.supervisor.restart_history import REPORTED_MIN, WITHIN_S, RestartHistory
from tests.supervisor.test_supervisor import Supervised, wait_until


def test_ends_are_told_when_there_are_many_and_forgotten_in_time() -> None:
    now_s = 0.0
    ends = RestartHistory(lambda: now_s)
    told = []
    for _ in range(REPORTED_MIN):
        now_s += 100.0
        ends.note()
        told.append(ends.reason)
    now_s += WITHIN_S - 100.0
    told.append(ends.reason)
    now_s += 1_000.0

    assert told == ["", "", "exited 3 times in the last 10 minutes", ""]
    assert ends.count == 0


@pytest.mark.fault("the store process exits repeatedly")
def test_a_store_that_ends_again_and_again_is_told_and_changes_nothing_for_senders(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path)
    try:
        supervised.start()
        assert supervised.admin("/readyz") == (200, "ok\n")
        for _ in range(REPORTED_MIN):
            before = supervised.state()["pids"]["store"]
            with supervised.connected("api") as connection:
                connection.sendall(b"crash\n")
                connection.recv(1)
            wait_until(lambda before=before: supervised.state()["pids"]["store"] not in {0, before})  # type: ignore[misc]

        told = "store ends: exited 3 times in the last 10 minutes"
        assert supervised.admin("/readyz") == (200, f"[-] {told}\nok\n")
        assert 'trace_drain_process_ends_recent{process="store"} 3.0' in supervised.admin("/metrics")[1]
        assert "process exits repeatedly" in (tmp_path / "log").read_text()
        assert supervised.ask()
    finally:
        supervised.clean_up()
