"""Tests of the supervisor with real intakes: connections and data during a stop, and TLS after a restart."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from receiver.settings import Settings
from receiver.supervisor.sockets import Sockets, bind, open_sockets
from tests.intake.test_process import one_span
from tests.supervisor.supervised import (
    Supervised,
    is_alive,
    is_stopped,
    post,
    read_to_end,
    status_of,
    wait_until,
)
from tests.support.intake import request
from tests.support.tls import client_context, write_certificates

CONFIG = "intakes = 2\n[journal]\ndisk_free_min = '4MiB'\n"
QUEUED_CONNECTIONS = 200
ANY_PORT = "127.0.0.1:0"


def test_queued_connections_are_answered_when_the_receiver_stops(supervised: Supervised) -> None:
    supervised.start(INTAKE="receiver.processes.intake")
    intakes = supervised.state()["pids"]["intake"]
    for pid in intakes:
        supervised.stop_process(pid)

    with ExitStack() as stack:
        queued = [stack.enter_context(supervised.connect("listen")) for _ in range(QUEUED_CONNECTIONS)]
        late = queued[::10]
        for connection in queued:
            if connection not in late:
                connection.sendall(request(one_span()))
        supervised.signal(signal.SIGTERM)
        wait_until(lambda: supervised.admin("/readyz")[0] == 503)
        for connection in late:
            connection.sendall(request(one_span()))
        for pid in intakes:
            os.kill(pid, signal.SIGCONT)
        statuses = {status_of(read_to_end(connection)) for connection in queued}

    assert statuses == {b"200"}
    assert supervised.exit_code() == 0


def test_deliveries_are_answered_while_a_hung_store_process_is_stopped(supervised: Supervised) -> None:
    supervised.start(INTAKE="receiver.processes.intake")
    store = supervised.state()["pids"]["store"]
    supervised.stop_process(store)

    supervised.signal(signal.SIGTERM)
    wait_until(lambda: supervised.admin("/readyz")[0] == 503)
    statuses = [post(supervised) for _ in range(10)]
    os.kill(store, signal.SIGKILL)

    assert statuses == [b"200"] * 10
    assert supervised.exit_code() == 0
    assert list(supervised.directory.glob("journal/*/*.lz4"))


def test_acknowledged_deliveries_are_sealed_before_the_store_process_stops(supervised: Supervised) -> None:
    supervised.configure("[journal]\ndisk_free_min = '4MiB'\nsegment_age_ms_max = 600000\n")
    supervised.start(INTAKE="receiver.processes.intake")
    store = supervised.state()["pids"]["store"]
    assert post(supervised) == b"200"
    assert not list(supervised.directory.glob("journal/*/*.lz4"))
    supervised.stop_process(store)

    supervised.signal(signal.SIGTERM)
    wait_until(lambda: bool(list(supervised.directory.glob("journal/*/*.lz4"))))

    assert is_stopped(store)
    os.kill(store, signal.SIGKILL)
    assert supervised.exit_code() == 0


def test_replaced_intake_uses_the_last_valid_certificate(supervised: Supervised, tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    tls = f'[tls]\ncert_file = "{files.cert_file}"\nkey_file = "{files.key_file}"\n'
    supervised.configure(f"intakes = 1\n{tls}[journal]\ndisk_free_min = '4MiB'\n")
    supervised.start(INTAKE="receiver.processes.intake")
    (pid,) = supervised.state()["pids"]["intake"]
    Path(files.cert_file).write_text("not a certificate")

    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    with (
        supervised.connect("listen") as tcp_connection,
        client_context().wrap_socket(tcp_connection, server_hostname="localhost") as connection,
    ):
        connection.sendall(request(one_span(), connection="close"))
        answer = read_to_end(connection)

    assert answer.startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: "expected a PEM chain" in supervised.admin("/readyz?verbose")[1])


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    opened = open_sockets(
        Settings(listen=ANY_PORT, admin_listen=ANY_PORT, api_listen=ANY_PORT, intakes=1), {}
    )
    yield opened
    opened.close()


def test_socket_that_stops_accepting_keeps_queued_connections(sockets: Sockets) -> None:
    (listening,) = sockets.drain
    with socket.create_connection(listening.getsockname()) as queued_client:
        sockets.stop_new_connections()
        with pytest.raises(TimeoutError):
            socket.create_connection(listening.getsockname(), timeout=0.2)
        accepted, _ = listening.accept()
        with accepted:
            queued_client.sendall(b"hello")
            received = accepted.recv(5)

    assert received == b"hello"


def test_systemd_socket_keeps_accepting_connections(sockets: Sockets) -> None:
    systemd_socket = bind("listen", ANY_PORT)
    sockets_of_systemd = Sockets((systemd_socket,), sockets.admin, drain_is_ours=False, api=sockets.api)

    sockets_of_systemd.stop_new_connections()

    with systemd_socket, socket.create_connection(systemd_socket.getsockname(), timeout=5) as connected:
        assert connected.getpeername() == systemd_socket.getsockname()
