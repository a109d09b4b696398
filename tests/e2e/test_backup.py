"""`trace-drain store backup` and `restore` of whole receivers: under load, killed, with a lost store."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from receiver.backup.snapshot import OF_STORE, RECORDS, SPANS
from tests.e2e.receiver_process import ReceiverProcess
from tests.faults.bodies import trace_body
from tests.faults.load import assert_stored_once, load

DAY_NS = 86_400 * 10**9
DELIVERIES = 40
"""Acknowledged deliveries between two events."""
CONFIG = """
[[drain]]
name = "default"
[[drain]]
name = "api"
path = "/api"
"""
PATHS = {"web": "/v1/traces", "api": "/api"}
LEFT_OUT = {
    *("store", "store.lock", "lock", "children.lock", "backup.lock"),
    *("receiver.json", "clock.json", "outcomes", "deferred", "session.key"),
    *("log", "trace-drain.toml"),
}
"""Entries of DATA that a restored receiver does not need, or that are made new; and files of the test."""


def bodies_of_days() -> list[tuple[str, bytes]]:
    """Return deliveries of two projects, each to its drain, with spans of three days."""
    bodies = []
    for number in range(6):
        project, age_days = ("web", "api")[number % 2], number // 2
        body = trace_body(1_000_000 + number, time.time_ns() - age_days * DAY_NS)
        attribute = b'{"key":"platform.projectId","value":{"stringValue":"%s"}}' % project.encode()
        resource = b'{"resource":{"attributes":[%s]},"scopeSpans"' % attribute
        bodies.append((PATHS[project], body.replace(b'{"scopeSpans"', resource, 1)))
    return bodies


def deliver_all(running: ReceiverProcess, bodies: list[tuple[str, bytes]]) -> None:
    for path, body in bodies:
        assert running.post(body, path=path).status == 200
    running.wait_until_stored()


def rows_of(running: ReceiverProcess) -> Counter[tuple[str, str]]:
    """Return the number of rows of each span of the last day."""
    return Counter((row["TraceId"], row["SpanId"]) for row in running.spans())


def require_agreement(running: ReceiverProcess) -> None:
    """Assert that the ledger agrees with the table, in every line."""
    report = running.command("ledger", "--verify", "--since", "7d")
    assert re.search(r"(lines agree|line agrees) with the table$", report.strip()), report


@pytest.mark.fault("a backup while deliveries go on, restored into another directory")
@pytest.mark.timeout(240)
def test_backup_under_load_restores_every_span_acknowledged_before_it(tmp_path: Path) -> None:
    data, other, directory = tmp_path / "data", tmp_path / "other", tmp_path / "backup"
    data.mkdir()
    other.mkdir()
    bodies = bodies_of_days()
    with ReceiverProcess(data, config=CONFIG) as running:
        deliver_all(running, bodies)
        with load(running) as senders:
            senders.wait_for(DELIVERIES)
            first = running.command("store", "backup", str(directory))
            senders.wait_for(DELIVERIES)
            before = {*senders.acknowledged}
            second = running.command("store", "backup", str(directory))
            senders.wait_for(DELIVERIES)
        running.wait_until_stored()
        rows_at_source = rows_of(running)
        require_agreement(running)
    restored = ReceiverProcess(other, config=CONFIG)
    report = restored.command("store", "restore", str(directory))
    require_agreement(restored)
    with restored:
        restored.wait_until_stored()
        require_agreement(restored)
        rows = rows_of(restored)
        assert_stored_once(restored, before)
        # Of a delivery that the restored window knows.
        deliver_all(restored, bodies)
        assert rows_of(restored) == rows

    assert {*rows.values()} == {1}
    assert rows.keys() <= rows_at_source.keys()
    assert re.match(r"[\d,]+ spans of 3 days", first)
    assert re.match(r"[\d,]+ spans of 3 days, as of ", report)
    # The parts of older days did not change.
    assert "with new parts of 1 day" in second
    assert "with new parts of 3 days" in first
    assert not (data / "snapshot").exists()
    assert not (data / "store/shadow/backup").exists()


@pytest.mark.fault("a backup after the receiver was killed under load")
@pytest.mark.timeout(240)
def test_backup_of_a_killed_receiver_has_every_acknowledged_span(tmp_path: Path) -> None:
    data, other, directory = tmp_path / "data", tmp_path / "other", tmp_path / "backup"
    data.mkdir()
    other.mkdir()
    running = ReceiverProcess(data)
    running.start()
    deliver_all(running, [("/v1/traces", trace_body(1_000_000))])
    for trace in range(DELIVERIES):
        assert running.post(trace_body(trace + 1)).status == 200
    pids = running.state()["pids"]
    # Stopped first, so that it does not replace its children.
    os.kill(pids["supervisor"], signal.SIGSTOP)
    for pid in (pids["store"], *pids["intake"]):
        running.kill(pid)
    running.kill()
    assert running.backlog(), "nothing waited for the store, so the backup proves less"
    running.command("store", "backup", str(directory))

    restored = ReceiverProcess(other)
    restored.command("store", "restore", str(directory))
    with restored:
        assert_stored_once(restored, {f"{trace + 1:032x}" for trace in range(DELIVERIES)})
        require_agreement(restored)
        assert {*rows_of(restored).values()} == {1}


@pytest.mark.fault("the store is lost, and restored beside what is left of the data directory")
@pytest.mark.timeout(240)
def test_lost_store_is_restored_and_later_deliveries_can_be_sent_again(tmp_path: Path) -> None:
    data, directory = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    earlier, later = trace_body(1), trace_body(2)
    with ReceiverProcess(data) as running:
        deliver_all(running, [("/v1/traces", earlier)])
        running.command("store", "backup", str(directory))
        deliver_all(running, [("/v1/traces", later)])
    refused = running.run_command("store", "restore", str(directory))
    shutil.rmtree(data / "store")

    running.command("store", "restore", str(directory))

    require_agreement(running)
    with running:
        assert {trace for trace, _ in rows_of(running)} == {f"{1:032x}"}
        deliver_all(running, [("/v1/traces", earlier), ("/v1/traces", later)])
        require_agreement(running)
        assert_stored_once(running, {f"{1:032x}", f"{2:032x}"})
    assert (refused.returncode, "has a store already" in refused.stderr) == (1, True)
    assert (data / "replaced-by-restore/ledger").is_dir()


@pytest.mark.timeout(240)
def test_every_entry_of_a_data_directory_is_in_a_backup_or_left_out_on_purpose(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path) as running:
        deliver_all(running, [("/v1/traces", trace_body(1))])
        during = {path.name for path in tmp_path.iterdir()}
        refused = running.run_command("store", "restore", str(tmp_path / "backup"))

    known = {*OF_STORE, *SPANS, *RECORDS, *LEFT_OUT}
    assert during <= known
    assert {"ledger", "ledger.head", "redelivery", "journal", "digest.key"} <= during
    assert (refused.returncode, "a receiver runs on" in refused.stderr) == (1, True)
