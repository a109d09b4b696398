"""Ledger under random traffic with bad spans, sampling, copies and killed processes: the sums are right."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.receiver_process import PATIENCE_S, RETRYABLE, ReceiverProcess
from tests.e2e.test_kill import pid_of

DELIVERIES = 60
KILLS = {15: "store", 25: "intake", 35: "store", 45: "intake"}
SEED = 20_261_121
CONFIG = """
[sampling]
mode = "equalizing"
[[sampling.rule]]
project = "thrown-away"
rate = 0.0
"""


def body_of(number: int, random_: random.Random) -> tuple[bytes, dict[str, Counter[str]]]:
    """Return a delivery of some projects, and the expected counts per project."""
    resources, counts = [], {}
    for project in random_.sample(["a", "b", "thrown-away"], random_.randint(1, 3)):
        valid, bad = random_.randint(1, 9), random_.randint(0, 3)
        spans = [
            {
                "traceId": f"{number * 1_000 + span + 1:032x}" if span < valid else "00",
                "spanId": f"{span + 1:016x}",
                "name": project,
                "startTimeUnixNano": str(time.time_ns()),
            }
            for span in range(valid + bad)
        ]
        attributes = [{"key": "platform.projectId", "value": {"stringValue": project}}]
        resources.append({"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]})
        outcome = "sampled_out" if project == "thrown-away" else "stored"
        counts[project] = Counter({outcome: valid, "rejected": bad, "all": valid + bad})
    return json.dumps({"resourceSpans": resources}).encode(), counts


class Sender:
    """Sender that retries as an exporter does and counts its spans."""

    def __init__(self, running: ReceiverProcess) -> None:
        self.running = running
        self.certain: dict[str, Counter[str]] = {}
        self.copies: Counter[str] = Counter()
        self.in_doubt: Counter[str] = Counter()
        """Spans of unanswered attempts, which the receiver may have stored."""

    def post(self, body: bytes, counts: dict[str, Counter[str]], *, is_copy: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_acknowledged(body, counts):
            assert time.monotonic() < deadline, self.running.log()
            time.sleep(0.1)
        for project, numbers in counts.items():
            if is_copy:
                self.copies[project] += numbers["all"]
            else:
                self.certain.setdefault(project, Counter()).update(numbers)

    def _is_acknowledged(self, body: bytes, counts: dict[str, Counter[str]]) -> bool:
        try:
            status = self.running.post(body).status
        except (OSError, ValueError, KeyError):
            status = 503
        if status == 200:
            return True
        assert status in RETRYABLE
        for project, numbers in counts.items():
            self.in_doubt[project] += numbers["all"]
        return False


def ledger_of(running: ReceiverProcess) -> dict[str, Counter[str]]:
    """Return the command's numbers by project; assert that it finds no difference."""
    answer = json.loads(running.command("ledger", "--since", "3h", "--verify", "--format", "json"))
    totals: dict[str, Counter[str]] = {}
    for line in answer["lines"]:
        assert line["verdict"] in {"same", ""}
        numbers: dict[str, Any] = {name: count for name, count in line.items() if isinstance(count, int)}
        totals.setdefault(line["project"], Counter()).update(numbers)
    return totals


@pytest.mark.timeout(240)
def test_ledger_matches_the_counts_of_the_sender_while_processes_are_killed(tmp_path: Path) -> None:
    random_ = random.Random(SEED)
    with ReceiverProcess(tmp_path, "--intakes", "2", config=CONFIG) as running:
        sender = Sender(running)
        sent = []
        for number in range(DELIVERIES):
            sent.append(body_of(number, random_))
            sender.post(*sent[-1], is_copy=False)
            if random_.random() < 0.3:
                sender.post(*random_.choice(sent), is_copy=True)
            if number in KILLS:
                running.wait_until_ready()
                running.kill(pid_of(running, KILLS[number]))
            if number % 20 == 10:
                running.wait_until_ready()
                ledger_of(running)
        running.wait_until_ready()
        running.spans_once_stored(sum(counts["stored"] for counts in sender.certain.values()))
        totals = ledger_of(running)
        metrics = running.metrics()

    assert sender.copies
    assert set(totals) == set(sender.certain)
    for project, certain in sender.certain.items():
        numbers = totals[project]
        for outcome in ("stored", "sampled_out", "rejected"):
            assert numbers[outcome] == certain[outcome], (project, outcome)
        assert (numbers["dead"], numbers["journal"], numbers["difference"]) == (0, 0, 0)
        assert numbers["table"] == numbers["stored"]
        least = sender.copies[project]
        assert least <= numbers["duplicate"] <= least + sender.in_doubt[project]
        assert numbers["received"] == certain["all"] + numbers["duplicate"]
    assert 'trace_drain_ledger_spans{drain="default",outcome="stored"}' in metrics


@pytest.mark.fault("DATA/ledger and DATA/redelivery are deleted while the receiver is stopped")
@pytest.mark.timeout(180)
def test_deleted_ledger_and_deduplication_window_are_reported_until_acknowledged(tmp_path: Path) -> None:
    body, _ = body_of(1, random.Random(SEED))
    running = ReceiverProcess(tmp_path)
    with running:
        assert running.post(body).status == 200
        running.spans_once_stored(1)
    for name in ("ledger", "redelivery"):
        shutil.rmtree(tmp_path / name)
    while_stopped = running.run_command("ledger", "--verify")

    with running:
        running.wait_until(
            lambda: "trace_drain_ledger_losses 1" in running.metrics(), "the loss is not counted"
        )
        started = running.run_command("ledger", "--verify")
        checks = running.checks().splitlines()
        (tmp_path / "ledger.lost").unlink()
        acknowledged = running.run_command("ledger", "--verify")

    assert (while_stopped.returncode, started.returncode) == (1, 1)
    for text in (while_stopped.stdout, started.stdout):
        assert "no entry of its log can be read" in text
        assert "to no segment of this ledger" in text
    marks = {line.split()[2]: line.split()[0] for line in checks if " store " in line}
    assert (marks["ledger:"], marks["redelivery:"], checks[-1]) == ("[-]", "[-]", "ok")
    assert acknowledged.returncode == 0, acknowledged.stdout


DROP_TABLES = """
from pathlib import Path; from tests.support import engines; import sys
store = engines.bare(Path(sys.argv[1]), "otel")
for statement in sys.argv[2:]: store.command(statement)
store.close()
"""


def change_store(data: Path, *statements: str) -> None:
    """Run statements on the embedded store of a receiver that is stopped."""
    subprocess.run([sys.executable, "-c", DROP_TABLES, str(data / "store"), *statements], check=True)


@pytest.mark.fault("tables of the embedded store are dropped while the receiver is stopped")
@pytest.mark.timeout(180)
def test_dropped_tables_are_reported_until_acknowledged(tmp_path: Path) -> None:
    body, _ = body_of(1, random.Random(SEED))
    running = ReceiverProcess(tmp_path)
    with running:
        running.post(body)
        running.spans_once_stored(1)
    change_store(tmp_path, "DROP TABLE otel_traces SYNC", "DROP TABLE otel_red SYNC")

    with running:
        running.wait_for_check("[-] store tables: ")
        unacknowledged = running.checks()
    with running:
        running.wait_for_check("[-] store tables: ")
        (tmp_path / "store.lost").unlink()
        running.wait_for_check("[+] store tables")

    assert "table 'otel_traces' is gone and is created again, empty" in unacknowledged
    assert "otel_red" not in unacknowledged


@pytest.mark.fault("a column of the embedded store is altered while the receiver is stopped")
@pytest.mark.timeout(180)
def test_segments_wait_while_the_embedded_table_is_altered(tmp_path: Path) -> None:
    random_ = random.Random(SEED)
    (body, _), (other, _) = body_of(1, random_), body_of(2, random_)
    running = ReceiverProcess(tmp_path)
    with running:
        running.post(body)
        before = len(running.spans_once_stored(1))
    change_store(tmp_path, "ALTER TABLE otel_traces MODIFY COLUMN Duration Int32")

    with running:
        running.wait_for_check("column 'Duration' is Int32; expected UInt64")
        assert running.post(other).status == 200
    change_store(tmp_path, "ALTER TABLE otel_traces MODIFY COLUMN Duration UInt64")

    with running:
        assert len(running.spans_once_stored(before + 1)) > before
