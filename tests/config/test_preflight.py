"""Claims about `config check`: certificates, ports, disk, and with --connect a ClickHouse server."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.supervisor.data_dir import STATE_NAME
from tests.support.certificates import make_certificate
from tests.support.server_process import Server, clickhouse_server

FREE = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0")
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration file lies about by accident."""
    monkeypatch.chdir(tmp_path)


def check(*words: str, **environ: str) -> Result:
    """The last of two equal flags wins."""
    return CliRunner().invoke(main, ["config", "check", *FREE, *words], env=environ, prog_name="trace-drain")


def certificate(directory: Path, begins: datetime, ends: datetime) -> dict[str, str]:
    """The environment that names a certificate of that time and its key."""
    cert_file, key_file = make_certificate(directory, begins, ends)
    return {"TRACE_DRAIN_TLS__CERT_FILE": str(cert_file), "TRACE_DRAIN_TLS__KEY_FILE": str(key_file)}


@pytest.mark.parametrize(
    ("begins", "ends", "expected"),
    [
        pytest.param(NOW - timedelta(days=9), NOW - timedelta(days=1), "expired on ", id="expired"),
        pytest.param(NOW + timedelta(days=1), NOW + timedelta(days=9), "is not valid before ", id="not yet"),
    ],
)
def test_a_certificate_that_is_not_valid_now_is_a_problem(
    tmp_path: Path, begins: datetime, ends: datetime, expected: str
) -> None:
    done = check(**certificate(tmp_path, begins, ends))

    assert done.exit_code == 1
    assert f"tls.cert_file '{tmp_path / 'crt'}' {expected}" in done.output
    assert "the configuration is fine" not in done.output


@pytest.mark.parametrize(
    ("days", "expected"),
    [pytest.param(13, "expires on ", id="soon"), pytest.param(15, "", id="later")],
)
def test_a_certificate_that_expires_soon_is_a_warning(tmp_path: Path, days: int, expected: str) -> None:
    done = check(**certificate(tmp_path, NOW - timedelta(days=1), NOW + timedelta(days=days)))

    assert (done.exit_code, done.stdout) == (0, "the configuration is fine\n")
    assert ("warning: tls.cert_file" in done.stderr) == bool(expected)
    assert expected in done.stderr


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("flag", ["--listen", "--admin-listen", "--api-listen"])
def test_a_port_in_use_is_a_problem(taken: str, flag: str) -> None:
    done = check(flag, taken)

    assert done.exit_code == 1
    key = flag.removeprefix("--").replace("-", "_")
    assert f"{key} = '{taken}' cannot be bound: another program listens there" in done.output


def test_a_port_of_the_receiver_that_runs_on_the_data_directory_is_fine(tmp_path: Path, taken: str) -> None:
    state = {
        "listen": taken,
        "admin": "127.0.0.1:1",
        "api": "127.0.0.1:2",
        "urls": {},
        "pids": {"supervisor": os.getpid(), "intake": [], "store": 0},
        "version": "",
        "started_at": "",
    }
    (tmp_path / STATE_NAME).write_text(json.dumps(state))

    fine, wrong = check("--listen", taken, "--data", "."), check("--admin-listen", taken, "--data", ".")

    assert fine.exit_code == 0
    assert f"listen = '{taken}' is in use by the receiver that runs on this data directory" in fine.stderr
    assert wrong.exit_code == 1


def test_a_disk_below_its_floor_is_a_problem() -> None:
    done = check(TRACE_DRAIN_JOURNAL__DISK_FREE_MIN="1000TiB")

    assert done.exit_code == 1
    assert "free; expected at least journal.disk_free_min = 1000 TiB" in done.output


def test_problems_are_printed_at_once(taken: str) -> None:
    done = check("--listen", taken, "--api-listen", taken.replace("127.0.0.1", "localhost"),
                 TRACE_DRAIN_JOURNAL__DISK_FREE_MIN="1000TiB")  # fmt: skip

    assert done.output.count("\n  ") == 3, done.output


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with clickhouse_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_connect_reports_version_database_rights_and_tables(own_server: Server) -> None:
    done = check("--connect", "--store", own_server.url)

    assert (done.exit_code, done.stdout) == (0, "the configuration is fine\n")
    assert "accepts user 'default'" in done.stderr
    assert "note: database 'otel' exists\n" in done.stderr
    assert (
        "note: the user has the rights that the receiver needs: SELECT, INSERT, CREATE TABLE" in done.stderr
    )
    assert "of the schema's statements are not applied; `serve` applies them" in done.stderr


def test_connect_changes_nothing_on_the_server(own_server: Server) -> None:
    url = f"{own_server.url.rpartition('/')[0]}/absent"

    first, second = check("--connect", "--store", url), check("--connect", "--store", url)

    assert first.exit_code == 0
    assert "database 'absent' is missing; `serve` creates it" in first.stderr
    assert second.stderr == first.stderr


def test_connect_to_nothing_names_the_setting() -> None:
    done = check("--connect", "--store", "http://127.0.0.1:1/otel")

    assert done.exit_code == 1
    assert "no answer at 127.0.0.1:1: connection refused; expected ClickHouse's HTTP interface" in done.output


def test_connect_with_the_embedded_store_says_that_there_is_no_server() -> None:
    done = check("--connect")

    assert done.exit_code == 0
    assert "note: the store is embedded: there is no server to connect to" in done.stderr
