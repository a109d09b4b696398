"""Test that many connections to the admin port do not exhaust the supervisor's memory or descriptors."""

from __future__ import annotations

import os
import resource
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

from tests.supervisor.supervised import Supervised, is_alive, wait_until

CONNECTIONS = 300
DESCRIPTORS_MAX = 128
UNFINISHED_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + (b"X: " + b"a" * 4_000 + b"\r\n") * 7
GROWTH_KIB_MAX = 64 * 1024
LOG_BYTES_MAX = 64 * 1024


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_killed_intake_is_replaced_despite_many_admin_connections(supervised: Supervised) -> None:
    supervised.start()
    state = supervised.state()
    supervisor_pid, (killed,) = state["pids"]["supervisor"], state["pids"]["intake"]
    resource.prlimit(supervisor_pid, resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, DESCRIPTORS_MAX))
    before_kib = resident_kib(supervisor_pid)
    with ExitStack() as connections:
        for _ in range(CONNECTIONS):
            connection = connections.enter_context(supervised.connect("admin"))
            _send(connection)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not is_alive(killed))

        wait_until(lambda: supervised.state()["pids"]["intake"] != [killed])
        assert supervised.admin("/livez") == (200, "ok\n")
        assert resident_kib(supervisor_pid) - before_kib < GROWTH_KIB_MAX

    assert (supervised.directory / "log").stat().st_size < LOG_BYTES_MAX


def _send(connection: socket.socket) -> None:
    """Send most of a head; the supervisor may have closed the connection already."""
    try:
        connection.sendall(UNFINISHED_HEAD)
    except OSError:
        return
