"""Tests of `trace-drain platform emulate`: the file it writes, how it ends, and what it refuses."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.cases import each_case
from tests.support.commands import run

FACTS = [
    *("base_url", "gateway_url", "control_url", "token", "api_key", "client_id", "client_secret"),
    *("team_id", "webhook_secret", "install_url"),
]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_emulator_writes_and_prints_its_facts_and_ends_by_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "receiver.cli", "platform", "emulate", "--data", str(tmp_path / "new")]
    with subprocess.Popen([*command, "--clock", "manual"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        printed = dict(process.stdout.readline().split() for _ in FACTS)
        path = tmp_path / "new/platform.json"
        facts = json.loads(path.read_bytes())
        mode = stat.S_IMODE(path.stat().st_mode)
        # A follower must not delay the end.
        with urllib.request.urlopen(f"{facts['control_url']}/state") as answer:
            deployment = json.load(answer)["deployments"][0]["id"]
        address = f"{facts['base_url']}/v3/deployments/{deployment}/events?follow=1&teamId={facts['team_id']}"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {facts['token']}"})
        with urllib.request.urlopen(request) as followed:
            process.send_signal(number)
            followed.read()
        rest, _ = process.communicate()

    assert process.returncode == 0
    assert list(facts) == FACTS
    assert printed == facts
    assert mode == 0o600
    assert "Ctrl-C" in rest


@each_case(
    ("options", "message"),
    [
        ("--listen 0.0.0.0:0", "no authentication; expected a loopback address, or --insecure"),
        ("--listen platform.example:80", "expected a loopback address, or --insecure"),
        ("--listen 127.0.0.1", "expected HOST:PORT"),
        ("--listen 192.0.2.1:0 --insecure", "192.0.2.1:0 cannot be used"),
    ],
)
def test_address_that_others_can_reach_or_that_is_invalid_is_refused(
    tmp_path: Path, options: str, message: str
) -> None:
    result = run("platform", "emulate", "--data", str(tmp_path / "new"), *options.split())

    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "--insecure" in options or not (tmp_path / "new").exists()
