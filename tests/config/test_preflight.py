"""Tests of `config check`: certificates, ports, disk, and with --connect a ClickHouse server."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.supervisor.state import STATE_NAME
from tests.support.certificates import make_certificate
from tests.support.server_process import Server

FREE = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0")
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty directory, so that no configuration file is found by accident."""
    monkeypatch.chdir(tmp_path)


def check(*arguments: str, **environ: str) -> Result:
    """Run `config check` with free ports; a flag in `arguments` overrides them."""
    return CliRunner().invoke(
        main, ["config", "check", *FREE, *arguments], env=environ, prog_name="trace-drain"
    )


def certificate(directory: Path, not_before: datetime, not_after: datetime) -> dict[str, str]:
    """Create a certificate with this validity; return the environment variables that configure it."""
    cert_file, key_file = make_certificate(directory, not_before, not_after)
    return {"TRACE_DRAIN_TLS__CERT_FILE": str(cert_file), "TRACE_DRAIN_TLS__KEY_FILE": str(key_file)}


@pytest.mark.parametrize(
    ("not_before", "not_after", "expected"),
    [
        pytest.param(NOW - timedelta(days=9), NOW - timedelta(days=1), "expired on ", id="expired"),
        pytest.param(NOW + timedelta(days=1), NOW + timedelta(days=9), "is not valid before ", id="not yet"),
    ],
)
def test_certificate_that_is_expired_or_not_yet_valid_is_a_problem(
    tmp_path: Path, not_before: datetime, not_after: datetime, expected: str
) -> None:
    result = check(**certificate(tmp_path, not_before, not_after))

    assert result.exit_code == 1
    assert f"tls.cert_file '{tmp_path / 'crt'}' {expected}" in result.output
    assert "the configuration is fine" not in result.output


@pytest.mark.parametrize(
    ("days", "expected"), [pytest.param(13, "expires on ", id="soon"), pytest.param(15, "", id="later")]
)
def test_certificate_that_expires_soon_is_a_warning(tmp_path: Path, days: int, expected: str) -> None:
    result = check(**certificate(tmp_path, NOW - timedelta(days=1), NOW + timedelta(days=days)))

    assert (result.exit_code, result.stdout) == (0, "the configuration is fine\n")
    assert ("warning: tls.cert_file" in result.stderr) == bool(expected)
    assert expected in result.stderr


@pytest.fixture
def used_address() -> Iterator[str]:
    """Return an address in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("flag", ["--listen", "--admin-listen", "--api-listen"])
def test_port_in_use_is_a_problem(used_address: str, flag: str) -> None:
    result = check(flag, used_address)

    assert result.exit_code == 1
    key = flag.removeprefix("--").replace("-", "_")
    assert f"{key} = '{used_address}' cannot be bound: another program listens there" in result.output


def test_port_of_the_receiver_that_uses_the_data_directory_is_accepted(
    tmp_path: Path, used_address: str
) -> None:
    state = {
        "listen": used_address,
        "admin": "127.0.0.1:1",
        "api": "127.0.0.1:2",
        "urls": {},
        "pids": {"supervisor": os.getpid(), "intake": [], "store": 0},
        "version": "",
        "started_at": "",
    }
    (tmp_path / STATE_NAME).write_text(json.dumps(state))

    same_port, other_port = (
        check("--listen", used_address, "--data", "."),
        check("--admin-listen", used_address, "--data", "."),
    )

    assert same_port.exit_code == 0
    assert (
        f"listen = '{used_address}' is in use by the receiver that runs on this data directory"
        in same_port.stderr
    )
    assert other_port.exit_code == 1


def test_disk_with_too_little_free_space_is_a_problem() -> None:
    result = check(TRACE_DRAIN_JOURNAL__DISK_FREE_MIN="1000TiB")

    assert result.exit_code == 1
    assert "free; expected at least journal.disk_free_min = 1000 TiB" in result.output


def test_all_problems_are_printed_together(used_address: str) -> None:
    result = check("--listen", used_address, "--api-listen", used_address.replace("127.0.0.1", "localhost"),
                 TRACE_DRAIN_JOURNAL__DISK_FREE_MIN="1000TiB")  # fmt: skip

    assert result.output.count("\n  ") == 3, result.output


def url_of(server: Server, database: str) -> str:
    """Return the URL of a database that no other test uses."""
    return f"{server.url.rpartition('/')[0]}/{database}"


def test_connect_reports_version_database_rights_and_tables(server: Server) -> None:
    statement = b"CREATE DATABASE IF NOT EXISTS preflight"
    urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", data=statement, timeout=10).close()

    result = check("--connect", "--store", url_of(server, "preflight"))

    assert (result.exit_code, result.stdout) == (0, "the configuration is fine\n")
    assert "accepts user 'default'" in result.stderr
    assert "note: database 'preflight' exists\n" in result.stderr
    assert (
        "note: the user has the rights that the receiver needs: SELECT, INSERT, CREATE TABLE" in result.stderr
    )
    assert "of the schema's statements are not applied; `serve` applies them" in result.stderr


def test_connect_changes_nothing_on_the_server(server: Server) -> None:
    url = url_of(server, "absent")

    first, second = check("--connect", "--store", url), check("--connect", "--store", url)

    assert first.exit_code == 0
    assert "database 'absent' is missing; `serve` creates it" in first.stderr
    assert second.stderr == first.stderr


def test_connect_to_an_unreachable_server_names_the_setting() -> None:
    result = check("--connect", "--store", "http://127.0.0.1:1/otel")

    assert result.exit_code == 1
    assert (
        "no answer at 127.0.0.1:1: connection refused; expected ClickHouse's HTTP interface" in result.output
    )


def test_connect_with_the_embedded_store_prints_that_there_is_no_server() -> None:
    result = check("--connect")

    assert result.exit_code == 0
    assert "note: the store is embedded: there is no server to connect to" in result.stderr
