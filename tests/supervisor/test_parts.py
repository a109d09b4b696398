"""Tests of the supervisor's smaller modules: locks, sockets, certificate, backoff, reload, banner."""

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

from receiver.cli.receiver.serve import check_machine
from receiver.durable.files import DISK
from receiver.errors import OperatorError
from receiver.metrics import Metrics
from receiver.settings import Access, Drain, Sampling, Settings, Store, Tls
from receiver.supervisor.admin import Admin
from receiver.supervisor.banner import first_trace, startup_banner
from receiver.supervisor.child import pauses_s
from receiver.supervisor.child_command import environment, import_options
from receiver.supervisor.data_dir import DataDir, DirectoryTaken
from receiver.supervisor.health import Readiness
from receiver.supervisor.reload import applicable_settings, one_line
from receiver.supervisor.run import INTAKE_PAUSE_S_MAX, notify
from receiver.supervisor.sockets import address_of, bind, bind_shared, open_sockets
from receiver.supervisor.state import Pids, ReceiverState, read_state
from tests.supervisor.supervised import ROOT
from tests.support.cases import each_case

PIDS = Pids(supervisor=1, intake=(2,), store=3)
STATE = ReceiverState(
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
    """Hold the lock like a child of an earlier supervisor."""
    fd = os.open(tmp_path / "children.lock", os.O_RDWR | os.O_CREAT, 0o600)
    assert DISK.lock(fd)
    yield fd
    os.close(fd)


async def test_data_directory_is_created_private(tmp_path: Path) -> None:
    directory = DataDir(tmp_path / "a" / "b")

    await directory.take()

    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.release()


async def test_released_data_directory_can_be_taken_again(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path), DataDir(tmp_path)
    await first.take()
    with pytest.raises(DirectoryTaken):
        await second.take()

    first.release()

    await second.take()
    second.release()


async def test_children_of_an_earlier_receiver_that_do_not_exit_are_reported(
    tmp_path: Path, children_lock: int
) -> None:
    assert children_lock
    directory = DataDir(tmp_path, children_wait_s=0.1)

    with pytest.raises(DirectoryTaken, match="processes of an earlier receiver have not exited"):
        await directory.take()


async def test_data_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OperatorError, match="cannot be used: Not a directory"):
        await DataDir(tmp_path / "file" / "data").take()


def test_state_file_is_written_and_read(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    with pytest.raises(OperatorError, match="no receiver runs on"):
        read_state(tmp_path)

    directory.write_state(STATE)

    assert read_state(tmp_path) == STATE
    assert [path.name for path in tmp_path.iterdir()] == ["receiver.json"]


def test_sockets_of_all_intakes_share_a_free_port() -> None:
    sockets = bind_shared("listen", "127.0.0.1:0", 3)

    assert len({address_of(listening) for listening in sockets}) == 1
    for listening in sockets:
        listening.close()


def test_port_shared_by_another_program_is_refused() -> None:
    (foreign,) = bind_shared("listen", "127.0.0.1:0", 1)

    with foreign, pytest.raises(OperatorError, match="another program listens there"):
        bind_shared("listen", str(address_of(foreign)), 1)


def test_all_ports_in_use_are_reported_together() -> None:
    with bind("x", "127.0.0.1:0") as listening, bind("x", "127.0.0.1:0") as other:
        first_address, second_address = str(address_of(listening)), str(address_of(other))
        settings = Settings(listen=first_address, admin_listen="127.0.0.1:0", api_listen=second_address)
        with pytest.raises(OperatorError) as caught:
            open_sockets(settings, {})

    assert [line.partition(" cannot be bound")[0] for line in str(caught.value).splitlines()] == [
        f"listen = '{first_address}'",
        f"api_listen = '{second_address}'",
    ]


def test_host_name_that_does_not_resolve_is_reported() -> None:
    with pytest.raises(OperatorError, match=r"api_listen = 'nowhere.invalid:1' cannot be resolved"):
        bind("api_listen", "nowhere.invalid:1")


def test_first_restart_is_immediate_and_backoff_grows_to_its_limit() -> None:
    assert list(islice(pauses_s(10.0), 9)) == [0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert list(islice(pauses_s(INTAKE_PAUSE_S_MAX), 6)) == [0.0, 0.2, 0.4, 0.8, 1.0, 1.0]


PLAIN = Tls()
CERTIFIED = Tls(cert_file="a.pem", key_file="a.key")
RENEWED = Tls(cert_file="b.pem", key_file="b.key")
WITH_CLIENT_CA = Tls(cert_file="a.pem", key_file="a.key", client_ca_file="ca.pem")


@pytest.mark.parametrize(
    ("running", "new", "needs_restart"),
    [
        pytest.param(PLAIN, CERTIFIED, True, id="TLS on"),
        pytest.param(CERTIFIED, PLAIN, True, id="TLS off"),
        pytest.param(CERTIFIED, WITH_CLIENT_CA, True, id="client certificates on"),
        pytest.param(WITH_CLIENT_CA, CERTIFIED, True, id="client certificates off"),
        pytest.param(CERTIFIED, RENEWED, False, id="another certificate"),
    ],
)
def test_enabling_tls_or_client_certificates_needs_a_restart(
    running: Tls, new: Tls, *, needs_restart: bool
) -> None:
    result = applicable_settings(Settings(tls=running), Settings(tls=new))

    assert result.settings.tls == (running if needs_restart else new)
    assert (result.waiting, result.changed) == ((("tls",), ()) if needs_restart else ((), ("tls",)))


ALL_ADDRESSES = "0.0.0.0:4318"
WITH_TOKEN, WITHOUT_TOKEN = (Drain(name="d", tokens=("s",)),), (Drain(name="d"),)


@pytest.mark.parametrize(
    ("running", "new"),
    [
        pytest.param(
            Settings(listen=ALL_ADDRESSES, tls=CERTIFIED, drain=WITH_TOKEN),
            Settings(listen=ALL_ADDRESSES, tls=WITH_CLIENT_CA, drain=WITHOUT_TOKEN),
            id="tokens replaced by client certificates",
        ),
        pytest.param(
            Settings(listen=ALL_ADDRESSES, tls=CERTIFIED, drain=WITH_TOKEN),
            Settings(drain=WITHOUT_TOKEN),
            id="tokens replaced by loopback",
        ),
        pytest.param(
            Settings(api=Access(clickhouse_listen="0.0.0.0:8123", clickhouse_token="s")),
            Settings(),
            id="token of the ClickHouse endpoint replaced by none",
        ),
        pytest.param(
            Settings(api_listen="0.0.0.0:8318", api_token="s"),
            Settings(),
            id="API token replaced by loopback",
        ),
    ],
)
def test_reload_may_not_remove_credentials_of_a_public_socket(running: Settings, new: Settings) -> None:
    with pytest.raises(OperatorError, match="is beyond loopback"):
        applicable_settings(running, new)


def test_reload_applies_drains_and_sampling_but_not_sockets_and_store() -> None:
    running = Settings(intakes=1)
    new = Settings(
        intakes=4, store=Store(retention_days=9), drain=(Drain(name="a"),), sampling=Sampling(rate=0.5)
    )

    result = applicable_settings(running, new)

    assert (result.settings.intakes, result.settings.store) == (1, Store())
    assert (result.settings.drain, result.settings.sampling) == (new.drain, new.sampling)
    assert result.changed == ("sampling", "drain")
    assert result.waiting == ("intakes", "store")


def test_setting_that_waits_for_the_next_start_keeps_its_origin() -> None:
    running = Settings(intakes=1, drain=(Drain(name="b"),))
    new = Settings(intakes=4, drain=(Drain(name="a"),), sampling=Sampling(rate=0.5))
    before = {"intakes": "flag --intakes", "data_dir": "flag --data", "drain[0].name": "file a.toml"}
    after = {"intakes": "file a.toml", "data_dir": "file a.toml", "sampling.rate": "file a.toml"}

    origins = applicable_settings(running, new).origins(before, after)

    assert origins == {"intakes": "flag --intakes", "data_dir": "file a.toml", "sampling.rate": "file a.toml"}


def test_banner_commands_send_a_current_trace_and_query_it() -> None:
    settings = Settings(data_dir="the data", drain=(Drain(name="a", tokens=("canary",)),))

    _, send, _, read, _ = first_trace(settings, settings.drain[0], "http://h:1")

    arguments = shlex.split(send)
    body = json.loads(arguments[arguments.index("-d") + 1])
    span = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    age_s = datetime.now(UTC).timestamp() - int(span["endTimeUnixNano"]) / 1e9
    assert arguments[:3] == ["curl", "-sS", "http://h:1/v1/traces"]
    assert "authorization: Bearer $TOKEN" in arguments
    assert 0 <= age_s < 60
    assert shlex.split(read)[-4:] == ["trace", span["traceId"], "--data", "the data"]
    assert "canary" not in send


WITH_CLICKHOUSE = msgspec.structs.replace(STATE, urls={**STATE.urls, "clickhouse": "http://127.0.0.1:4"})
SELF_SIGNED = Tls(self_signed=True, cert_file="/data/tls/cert.pem")
SIGNED = Drain(name="a", signature_header="x-signature", signature_secrets=("s",))


@each_case(
    ("settings", "state", "expected"),
    [
        pytest.param(
            Settings(), STATE, "pages      http://127.0.0.1:3   (API: http://127.0.0.1:3/docs)\n", id="API"
        ),
        pytest.param(
            Settings(), WITH_CLICKHOUSE, "clickhouse http://127.0.0.1:4   (read-only)\n", id="ClickHouse"
        ),
        pytest.param(
            Settings(tls=SELF_SIGNED),
            STATE,
            "trust      OTEL_EXPORTER_OTLP_CERTIFICATE=/data/tls/ca.crt\n",
            id="authority for exporters",
        ),
        pytest.param(
            Settings(tls=SELF_SIGNED, drain=WITHOUT_TOKEN),
            STATE,
            "--cacert /data/tls/ca.crt ",
            id="authority",
        ),
        pytest.param(
            Settings(data_dir="d", drain=WITHOUT_TOKEN),
            STATE,
            " --config 'my own.toml' --data d\n",
            id="file",
        ),
        pytest.param(
            Settings(drain=(SIGNED,)),
            STATE,
            "send a first trace from the platform that signs them\n",
            id="signed",
        ),
    ],
)
def test_banner_names_addresses_authority_and_configuration(
    settings: Settings, state: ReceiverState, expected: str
) -> None:
    banner = startup_banner(msgspec.structs.replace(settings, api_token="canary"), state, Path("my own.toml"))

    assert expected in f"{banner}\n"
    assert ("clickhouse" in banner) == (state is WITH_CLICKHOUSE)
    assert "canary" not in banner


def test_notify_sends_to_the_systemd_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))

        notify({"NOTIFY_SOCKET": str(tmp_path / "notify")}, "READY=1")
        notify({}, "READY=1")

        assert manager.recv(100) == b"READY=1"


def test_machine_check_passes_on_this_machine() -> None:
    check_machine(msgspec.structs.replace(Settings(), store=Store(url="http://h")))


async def test_missing_c_parser_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiohttp.http_parser.HttpRequestParser", http_parser.HttpRequestParserPy)
    admin = Admin(lambda: Readiness(ready=True, checks=()), list, Settings(), Metrics("supervisor"))

    with bind("admin_listen", "127.0.0.1:0") as listening, pytest.raises(OperatorError, match="its C parser"):
        await admin.serve(listening)


def test_embedded_store_without_its_engine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.config.checks.find_spec", lambda _name: None)

    with pytest.raises(OperatorError, match=r"pip install '\.\[embedded\]'"):
        check_machine(Settings())


def test_platform_other_than_linux_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    with pytest.raises(OperatorError, match="the platform is 'darwin'; expected Linux"):
        check_machine(Settings())


def test_child_environment_sets_malloc_thresholds_unless_configured() -> None:
    own_environment = {"PATH": "/bin", "NOTIFY_SOCKET": "/run/notify", "MALLOC_TRIM_THRESHOLD_": "1"}

    expected = {"PATH": "/bin", "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1"}
    assert environment(own_environment) == expected


def test_child_imports_the_package_of_the_supervisor_whatever_the_working_directory_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    in_checkout = import_options()
    (tmp_path / "deleted").mkdir()
    monkeypatch.chdir(tmp_path / "deleted")
    elsewhere = import_options()
    (tmp_path / "deleted").rmdir()

    assert (in_checkout, elsewhere, import_options()) == ([], ["-P"], ["-P"])


def test_reason_of_a_refused_reload_is_printed_in_a_single_line() -> None:
    error = OperatorError("the configuration cannot be used:\n  'a' is 1; expected 2\n  'b' is 3; expected 4")

    line = one_line(error)

    assert line == "the configuration cannot be used: 'a' is 1; expected 2; 'b' is 3; expected 4"
    assert one_line(OperatorError("one line")) == "one line"
