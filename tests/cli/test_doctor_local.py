"""Tests of `trace-drain doctor` without a URL: what is wrong with this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from receiver.cli import main
from receiver.doctor import local
from tests.support.certificates import make_certificate
from tests.support.tls import write_certificates

Setup = Callable[[Path], str]
"""Prepares a directory and returns settings."""


def certificate(days: int, mode: int = 0o600) -> Setup:
    def setup(directory: Path) -> str:
        begins = datetime.now(UTC) - timedelta(days=100)
        cert, key = make_certificate(directory, begins, begins + timedelta(days=100 + days))
        key.chmod(mode)
        return f'[tls]\ncert_file = "{cert}"\nkey_file = "{key}"'

    return setup


def for_localhost(directory: Path) -> str:
    tls = write_certificates(directory)
    Path(tls.key_file).chmod(0o600)
    return f'[tls]\ncert_file = "{tls.cert_file}"\nkey_file = "{tls.key_file}"'


def public_secret(directory: Path) -> str:
    (directory / "token").write_text("canary-token")
    (directory / "token").chmod(0o644)
    return f'[[drain]]\nname = "a"\ntoken_file = "{directory / "token"}"'


def shared_directory(directory: Path) -> str:
    (directory / "data").mkdir()
    (directory / "data").chmod(0o777)
    return ""


CASES: dict[str, tuple[Setup, str, str, str]] = {
    "expired certificate": (certificate(-1), "certificate", "failed", "expired on"),
    "certificate that expires": (certificate(3), "certificate", "warning", "expires on"),
    "certificate of another host": (for_localhost, "certificate", "failed", "not for 'traces.example'"),
    "key that everyone reads": (certificate(90, 0o644), "settings", "warning", "is accessible for everyone"),
    "secret that everyone reads": (public_secret, "settings", "warning", "readable by everyone"),
    "directory that others write": (shared_directory, "data directory", "failed", "other users may write"),
    "journal larger than the disk": (
        lambda _: '[journal]\nbytes_max = "900TiB"',
        "journal",
        "failed",
        "the journal may need",
    ),
    "disk nearly full": (
        lambda _: '[journal]\ndisk_free_min = "900TiB"',
        "disk",
        "failed",
        "below it senders are answered 503",
    ),
    "too few descriptors": (
        lambda _: "[limits]\nconnections_max = 1000000",
        "descriptors",
        "failed",
        "files may be open",
    ),
    "ClickHouse does not answer": (
        lambda _: '[store]\nurl = "http://127.0.0.1:1/otel"',
        "store",
        "failed",
        "no answer at",
    ),
}


def doctor(directory: Path, settings: str, *options: str) -> tuple[dict[str, dict[str, str]], int, str]:
    """Return the steps by their names, the exit code and the output."""
    config = directory / "settings.toml"
    ports = "".join(f'{key} = "127.0.0.1:0"\n' for key in ("listen", "admin_listen", "api_listen"))
    taken = "" if "listen" in settings else ports
    config.write_text(f'data_dir = "{directory / "data"}"\n{taken}{settings}\n')
    config.chmod(0o600)
    result = CliRunner().invoke(main, ["doctor", "--config", str(config), *options, "--format", "json"])
    steps = [json.loads(line) for line in result.stdout.splitlines()]
    return {step["step"]: step for step in steps}, result.exit_code, result.output


def test_each_problem_of_this_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "RATE_S", 0.0)
    wrong = {}
    for number, (name, (setup, step, state, text)) in enumerate(CASES.items()):
        (directory := tmp_path / str(number)).mkdir()
        steps, code, output = doctor(directory, setup(directory), "--host", "traces.example")
        found = steps.get(step, {})
        is_named = found.get("state") == state and text in found["text"] and bool(found["fix"])
        if not is_named or "canary" in output or (state == "failed" and code != 1):
            wrong[name] = output

    assert wrong == {}


def test_a_port_of_another_program_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        steps, code, _ = doctor(tmp_path, f'listen = "127.0.0.1:{other.getsockname()[1]}"')

    assert (steps["ports"]["state"], code) == ("failed", 1)
    assert "another program listens there" in steps["ports"]["text"]


def test_a_machine_without_a_problem_has_no_red_line(tmp_path: Path) -> None:
    steps, code, output = doctor(tmp_path, '[journal]\nbytes_max = "16MiB"\nsegment_bytes_max = "8MiB"')

    assert code == 0, output
    # No receiver runs yet.
    assert [name for name, step in steps.items() if step["state"] != "ok" or not step["text"]] == ["receiver"]
