"""The supervisor over real intakes: what they cannot do without it when they stop, and when they start."""

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
from tests.intake.test_tls import client_context, write_certificates
from tests.supervisor.test_supervisor import Supervised, is_alive, wait_until
from tests.support.intake import request

WAITING = 200
ANYWHERE = "127.0.0.1:0"


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    found = Supervised(tmp_path)
    found.configure("intakes = 2\n[journal]\ndisk_free_min = '4MiB'\n")
    yield found
    found.clean_up()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def what_is_said(connection: socket.socket) -> bytes:
    """Everything until the other end closes; a reset is an error of the test."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def status_of(said: bytes) -> bytes:
    return said.split(b" ")[1]


def test_connections_in_the_backlog_when_the_receiver_is_stopped_are_answered_and_not_reset(
    supervised: Supervised,
) -> None:
    supervised.start(INTAKE="receiver.intake")
    intakes = supervised.state()["pids"]["intake"]
    for pid in intakes:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda pid=pid: is_stopped(pid))  # type: ignore[misc]

    with ExitStack() as open_until_the_end:
        waiting = [open_until_the_end.enter_context(supervised.connected("listen")) for _ in range(WAITING)]
        late = waiting[::10]
        for connection in waiting:
            if connection not in late:
                connection.sendall(request(one_span()))
        supervised.signal(signal.SIGTERM)
        wait_until(lambda: supervised.admin("/readyz")[0] == 503)
        for connection in late:
            connection.sendall(request(one_span()))
        for pid in intakes:
            os.kill(pid, signal.SIGCONT)
        statuses = {status_of(what_is_said(connection)) for connection in waiting}

    assert statuses == {b"200"}
    assert supervised.exit_code() == 0


def post(supervised: Supervised) -> bytes:
    """Send one delivery on a connection of its own, and return the status."""
    with supervised.connected("listen") as connection:
        connection.sendall(request(one_span(), connection="close"))
        return status_of(what_is_said(connection))


def test_deliveries_are_answered_while_a_store_that_hangs_is_being_stopped(supervised: Supervised) -> None:
    supervised.start(INTAKE="receiver.intake")
    store = supervised.state()["pids"]["store"]
    os.kill(store, signal.SIGSTOP)
    wait_until(lambda: is_stopped(store))

    supervised.signal(signal.SIGTERM)
    wait_until(lambda: supervised.admin("/readyz")[0] == 503)
    statuses = [post(supervised) for _ in range(10)]
    os.kill(store, signal.SIGKILL)

    assert statuses == [b"200"] * 10
    assert supervised.exit_code() == 0
    assert list(supervised.directory.glob("journal/*/*.lz4"))


def test_what_was_acknowledged_before_the_stop_is_sealed_before_the_store_stops(
    supervised: Supervised,
) -> None:
    supervised.configure("[journal]\ndisk_free_min = '4MiB'\nsegment_age_ms_max = 600000\n")
    supervised.start(INTAKE="receiver.intake")
    store = supervised.state()["pids"]["store"]
    assert post(supervised) == b"200"
    assert not list(supervised.directory.glob("journal/*/*.lz4"))
    os.kill(store, signal.SIGSTOP)
    wait_until(lambda: is_stopped(store))

    supervised.signal(signal.SIGTERM)
    wait_until(lambda: bool(list(supervised.directory.glob("journal/*/*.lz4"))))

    assert is_stopped(store)
    os.kill(store, signal.SIGKILL)
    assert supervised.exit_code() == 0


def test_an_intake_replaced_while_the_certificate_is_broken_shows_the_last_good_one(
    supervised: Supervised, tmp_path: Path
) -> None:
    files = write_certificates(tmp_path)
    tls = f'[tls]\ncert_file = "{files.cert_file}"\nkey_file = "{files.key_file}"\n'
    supervised.configure(f"intakes = 1\n{tls}[journal]\ndisk_free_min = '4MiB'\n")
    supervised.start(INTAKE="receiver.intake")
    (pid,) = supervised.state()["pids"]["intake"]
    Path(files.cert_file).write_text("not a certificate")

    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    with (
        supervised.connected("listen") as plug,
        client_context().wrap_socket(plug, server_hostname="localhost") as connection,
    ):
        connection.sendall(request(one_span(), connection="close"))
        said = what_is_said(connection)

    assert said.startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: "expected a PEM chain" in supervised.admin("/readyz?verbose")[1])


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    found = open_sockets(Settings(listen=ANYWHERE, admin_listen=ANYWHERE, api_listen=ANYWHERE, intakes=1), {})
    yield found
    found.close()


def test_a_socket_that_takes_no_more_hears_whom_it_has_and_nobody_new(sockets: Sockets) -> None:
    (listening,) = sockets.drain
    with socket.create_connection(listening.getsockname()) as known:
        sockets.stop_new_connections()
        with pytest.raises(TimeoutError):
            socket.create_connection(listening.getsockname(), timeout=0.2)
        accepted, _ = listening.accept()
        with accepted:
            known.sendall(b"hello")
            heard = accepted.recv(5)

    assert heard == b"hello"


def test_the_socket_of_systemd_goes_on_taking_connections(sockets: Sockets) -> None:
    given = bind("listen", ANYWHERE)
    passed = Sockets((given,), sockets.admin, sockets.api, drain_is_ours=False)

    passed.stop_new_connections()

    with given, socket.create_connection(given.getsockname(), timeout=5) as connected:
        assert connected.getpeername() == given.getsockname()
