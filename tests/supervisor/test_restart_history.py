"""Tests of the restart history: repeated exits are reported while the receiver keeps accepting."""

from __future__ import annotations

import pytest

from receiver.supervisor.restart_history import REPORTED_MIN, WITHIN_S, RestartHistory
from tests.supervisor.supervised import Supervised, wait_until


def test_repeated_exits_are_reported_until_they_are_old() -> None:
    now_s = 0.0
    history = RestartHistory(lambda: now_s)
    reasons = []
    for _ in range(REPORTED_MIN):
        now_s += 100.0
        history.note()
        reasons.append(history.reason)
    now_s += WITHIN_S - 100.0
    reasons.append(history.reason)
    now_s += 1_000.0

    assert reasons == ["", "", "exited 3 times in the last 10 minutes", ""]
    assert history.count == 0


@pytest.mark.fault("the store process exits repeatedly")
def test_repeated_exits_of_the_store_process_are_reported_and_senders_are_unaffected(
    supervised: Supervised,
) -> None:
    supervised.start()
    assert supervised.admin("/readyz") == (200, "ok\n")
    for _ in range(REPORTED_MIN):
        before = supervised.state()["pids"]["store"]
        with supervised.connect("api") as connection:
            connection.sendall(b"crash\n")
            connection.recv(1)
        wait_until(lambda before=before: supervised.state()["pids"]["store"] not in {0, before})  # type: ignore[misc]

    reason = "store ends: exited 3 times in the last 10 minutes"
    assert supervised.admin("/readyz") == (200, f"[-] {reason}\nok\n")
    assert 'trace_drain_process_ends_recent{process="store"} 3.0' in supervised.admin("/metrics")[1]
    assert "process exits repeatedly" in supervised.log
    assert supervised.send_command()
