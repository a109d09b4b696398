"""Tests of the start: intakes start first, and processes import only the modules that they need."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.supervisor.supervised import Supervised, wait_until

STORE = {
    "chdb",
    "clickhouse_connect",
    # Not `console.queries`: the list of commands has the sentences of the queries.
    *(f"receiver.console.{name}" for name in ("api", "feature", "queries.questions", "tools", "ui")),
    *(
        f"receiver.{name}"
        for name in ("engine", "ledger", "platform", "redelivery", "store_process", "writer")
    ),
}
SLOW = {"cryptography", "google.protobuf", "importlib.metadata", "opentelemetry", "prometheus_client"}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        pytest.param(
            "receiver.cli.receiver.serve", STORE | SLOW | {"aiohttp", "receiver.journal"}, id="supervisor"
        ),
        pytest.param(
            "receiver.processes.intake", STORE | SLOW | {"click", "receiver.supervisor"}, id="intake"
        ),
    ],
)
def test_process_does_not_import_unneeded_modules_at_start(module: str, unwanted: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert unwanted & set(loaded.split()) == set()
    assert module in loaded.split()


def test_slow_intakes_delay_neither_the_store_process_nor_the_admin_port(supervised: Supervised) -> None:
    (supervised.directory / "slow").touch()

    supervised.launch(HEAD_START_S="0.1")
    wait_until((supervised.directory / "receiver.json").exists)

    assert supervised.send_command(name="api") == str(supervised.state()["pids"]["store"])
    assert supervised.admin("/readyz") == (503, "[-] intake-0 process: starting\nnot ready\n")
    (supervised.directory / "slow").unlink()
    wait_until(supervised.is_ready)


def test_stop_during_the_start_starts_no_more_processes(supervised: Supervised) -> None:
    (supervised.directory / "slow").touch()
    supervised.launch(HEAD_START_S="600")
    wait_until((supervised.directory / "events").exists)

    supervised.signal(signal.SIGTERM)
    (supervised.directory / "slow").unlink()

    assert supervised.exit_code() == 0
    assert supervised.events() == ["intake-0 start 0", "intake-0 stop", "intake-0 stopped"]
