"""The supervisor's smaller rooms: locks, sockets, the certificate, pauses, what a reload takes over."""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from aiohttp import http_parser

from receiver.errors import OperatorError
from receiver.metrics import Metrics
from receiver.settings import Drain, Sampling, Settings, Store, Tls
from receiver.supervisor import data_dir
from receiver.supervisor.admin import Admin
from receiver.supervisor.banner import first_trace, startup_banner
from receiver.supervisor.certificate import with_certificate
from receiver.supervisor.child import backoff_s, environment
from receiver.supervisor.data_dir import DataDir, DirectoryTaken, Pids, State, read_state
from receiver.supervisor.health import Readiness
from receiver.supervisor.machine import check_machine
from receiver.supervisor.notify import notify
from receiver.supervisor.reload import applicable_settings, one_line
from receiver.supervisor.run import INTAKE_PAUSE_S_MAX
from receiver.supervisor.sockets import address_of, bind, bind_shared, open_sockets

PIDS = Pids(supervisor=1, intake=(2,), store=3)
STATE = State(
    listen="127.0.0.1:1",
    admin="127.0.0.1:2",
    api="127.0.0.1:3",
    urls={"listen": "http://127.0.0.1:1", "admin": "http://127.0.0.1:2", "api": "http://127.0.0.1:3"},
    pids=PIDS,
    version="0",
    started_at="2026-01-01T00:00:00+00:00",
)


@pytest.fixture
def children_lock(tmp_path: Path) -> Iterator[int]:
    """The lock as a child of an earlier supervisor holds it."""
    fd = os.open(tmp_path / "children.lock", os.O_RDWR | os.O_CREAT, 0o600)
    assert data_dir._lock(fd)  # noqa: SLF001 - the lock itself is what is tested
    yield fd
    os.close(fd)


async def test_a_data_directory_is_made_for_us_alone(tmp_path: Path) -> None:
    directory = DataDir(tmp_path / "a" / "b")

    await directory.take()

    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.release()


async def test_a_directory_that_was_let_go_can_be_taken_again(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path), DataDir(tmp_path)
    await first.take()
    with pytest.raises(DirectoryTaken):
        await second.take()

    first.release()

    await second.take()
    second.release()


async def test_children_that_do_not_end_are_named_after_a_while(tmp_path: Path, children_lock: int) -> None:
    assert children_lock
    directory = DataDir(tmp_path, children_wait_s=0.1)

    with pytest.raises(DirectoryTaken, match="processes of an earlier receiver have not exited"):
        await directory.take()


async def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OperatorError, match="cannot be used: Not a directory"):
        await DataDir(tmp_path / "file" / "data").take()


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    with pytest.raises(OperatorError, match="no receiver runs on"):
        read_state(tmp_path)

    directory.write_state(STATE)

    assert read_state(tmp_path) == STATE
    assert [path.name for path in tmp_path.iterdir()] == ["receiver.json"]


def test_the_sockets_of_all_intakes_share_a_port_that_was_free() -> None:
    sockets = bind_shared("listen", "127.0.0.1:0", 3)

    assert len({address_of(one) for one in sockets}) == 1
    for one in sockets:
        one.close()


def test_a_port_that_somebody_shares_already_is_not_shared_with_them() -> None:
    (theirs,) = bind_shared("listen", "127.0.0.1:0", 1)

    with theirs, pytest.raises(OperatorError, match="another program listens there"):
        bind_shared("listen", str(address_of(theirs)), 1)


def test_ports_that_are_taken_are_told_all_at_once() -> None:
    with bind("x", "127.0.0.1:0") as one, bind("x", "127.0.0.1:0") as other:
        taken, taken_too = str(address_of(one)), str(address_of(other))
        settings = Settings(listen=taken, admin_listen="127.0.0.1:0", api_listen=taken_too)
        with pytest.raises(OperatorError) as caught:
            open_sockets(settings, {})

    assert [line.partition(" cannot be bound")[0] for line in str(caught.value).splitlines()] == [
        f"listen = '{taken}'",
        f"api_listen = '{taken_too}'",
    ]


def test_a_name_that_does_not_resolve_is_told() -> None:
    with pytest.raises(OperatorError, match=r"api_listen = 'nowhere.invalid:1' cannot be resolved"):
        bind("api_listen", "nowhere.invalid:1")


def test_the_first_restart_is_immediate_and_pauses_grow_to_their_limit() -> None:
    assert list(islice(backoff_s(10.0), 9)) == [0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0]
    assert list(islice(backoff_s(INTAKE_PAUSE_S_MAX), 6)) == [0.0, 0.2, 0.5, 1.0, 1.0, 1.0]


PLAIN = Tls()
CERTIFIED = Tls(cert_file="a.pem", key_file="a.key")
RENEWED = Tls(cert_file="b.pem", key_file="b.key")
CLIENTS_ASKED = Tls(cert_file="a.pem", key_file="a.key", client_ca_file="ca.pem")


@pytest.mark.parametrize(
    ("running", "new", "waits"),
    [
        pytest.param(PLAIN, CERTIFIED, True, id="TLS on"),
        pytest.param(CERTIFIED, PLAIN, True, id="TLS off"),
        pytest.param(CERTIFIED, CLIENTS_ASKED, True, id="client certificates on"),
        pytest.param(CLIENTS_ASKED, CERTIFIED, True, id="client certificates off"),
        pytest.param(CERTIFIED, RENEWED, False, id="another certificate"),
    ],
)
def test_whether_tls_is_spoken_and_whom_it_asks_waits_for_the_next_start(
    running: Tls, new: Tls, *, waits: bool
) -> None:
    found = applicable_settings(Settings(tls=running), Settings(tls=new))

    assert found.settings.tls == (running if waits else new)
    assert (found.waiting, found.changed) == ((("tls",), ()) if waits else ((), ("tls",)))


ANYWHERE = "0.0.0.0:4318"
KNOWN, OPEN = (Drain(name="d", tokens=("s",)),), (Drain(name="d"),)


@pytest.mark.parametrize(
    ("running", "new"),
    [
        pytest.param(
            Settings(listen=ANYWHERE, tls=CERTIFIED, drain=KNOWN),
            Settings(listen=ANYWHERE, tls=CLIENTS_ASKED, drain=OPEN),
            id="client certificates for tokens",
        ),
        pytest.param(
            Settings(listen=ANYWHERE, tls=CERTIFIED, drain=KNOWN),
            Settings(drain=OPEN),
            id="loopback for tokens",
        ),
        pytest.param(
            Settings(api_listen="0.0.0.0:8318", api_token="s"),
            Settings(),
            id="loopback for the API's token",
        ),
    ],
)
def test_a_reload_may_not_open_what_is_still_listened_on(running: Settings, new: Settings) -> None:
    with pytest.raises(OperatorError, match="is beyond loopback"):
        applicable_settings(running, new)


def test_a_reload_takes_over_drains_and_leaves_what_sockets_and_tables_were_made_from() -> None:
    running = Settings(intakes=1)
    new = Settings(
        intakes=4, store=Store(retention_days=9), drain=(Drain(name="a"),), sampling=Sampling(rate=0.5)
    )

    found = applicable_settings(running, new)

    assert (found.settings.intakes, found.settings.store) == (1, Store())
    assert (found.settings.drain, found.settings.sampling) == (new.drain, new.sampling)
    assert found.changed == ("sampling", "drain")
    assert found.waiting == ("intakes", "store")


def test_the_first_trace_is_valid_json_of_now_and_read_back_by_its_id() -> None:
    settings = Settings(data_dir="the data", drain=(Drain(name="a", tokens=("canary",)),))

    _, send, _, read, _ = first_trace(settings, settings.drain[0], "http://h:1")

    words = shlex.split(send)
    body = json.loads(words[words.index("-d") + 1])
    span = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    age_s = datetime.now(UTC).timestamp() - int(span["endTimeUnixNano"]) / 1e9
    assert words[:3] == ["curl", "-sS", "http://h:1/v1/traces"]
    assert "authorization: Bearer $TOKEN" in words
    assert 0 <= age_s < 60
    assert shlex.split(read)[-4:] == ["trace", span["traceId"], "--data", "the data"]
    assert "canary" not in send


def test_the_line_that_reads_back_names_the_file_that_may_say_the_token_of_the_api() -> None:
    settings = Settings(data_dir="d", api_token="canary", drain=(Drain(name="a"),))

    told = startup_banner(settings, STATE, Path("my own.toml"))

    line = next(line for line in told.splitlines() if " trace " in line)
    assert shlex.split(line)[-4:] == ["--config", "my own.toml", "--data", "d"]
    assert "canary" not in told


def test_the_start_says_which_file_clients_of_a_self_signed_certificate_trust(tmp_path: Path) -> None:
    settings = with_certificate(Settings(tls=Tls(self_signed=True), drain=(Drain(name="a"),)), tmp_path)

    told = startup_banner(settings, STATE)

    assert f"OTEL_EXPORTER_OTLP_CERTIFICATE={tmp_path}/tls/ca.crt" in told
    assert f"--cacert {tmp_path}/tls/ca.crt" in told


def test_drains_that_ask_for_signatures_are_left_to_who_signs() -> None:
    signed = Drain(name="a", signature_header="x-signature", signature_secrets=("s",))

    assert "send a first trace from the platform that signs them" in startup_banner(
        Settings(drain=(signed,)), STATE
    )


def test_systemd_is_told_over_its_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))

        notify({"NOTIFY_SOCKET": str(tmp_path / "notify")}, "READY=1")
        notify({}, "READY=1")

        assert manager.recv(100) == b"READY=1"


def test_this_machine_can_run_a_receiver() -> None:
    check_machine(msgspec.structs.replace(Settings(), store=Store(url="http://h")))


async def test_without_the_c_parser_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiohttp.http_parser.HttpRequestParser", http_parser.HttpRequestParserPy)
    admin = Admin(lambda: Readiness(ready=True, checks=()), list, Settings(), Metrics("supervisor"))

    with bind("admin_listen", "127.0.0.1:0") as listening, pytest.raises(OperatorError, match="its C parser"):
        await admin.serve(listening)


def test_the_embedded_store_without_its_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.config.checks.find_spec", lambda _name: None)

    with pytest.raises(OperatorError, match=r"pip install '\.\[embedded\]'"):
        check_machine(Settings())


def test_only_linux_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    with pytest.raises(OperatorError, match="the platform is 'darwin'; expected Linux"):
        check_machine(Settings())


def test_a_process_keeps_memory_for_bodies_unless_the_operator_says_otherwise() -> None:
    operators = {"PATH": "/bin", "NOTIFY_SOCKET": "/run/notify", "MALLOC_TRIM_THRESHOLD_": "1"}

    kept = {"PATH": "/bin", "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1"}
    assert environment(operators) == kept


def test_why_a_reload_was_refused_is_one_line() -> None:
    many = OperatorError("the configuration cannot be used:\n  'a' is 1; expected 2\n  'b' is 3; expected 4")

    told = one_line(many)

    assert told == "the configuration cannot be used: 'a' is 1; expected 2; 'b' is 3; expected 4"
    assert one_line(OperatorError("one line")) == "one line"
