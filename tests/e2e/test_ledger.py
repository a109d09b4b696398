"""Random traffic with bad spans, sampling and copies while processes are killed: the ledger adds up."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import Running
from tests.e2e.test_kill import RETRYABLE, pid_of

DELIVERIES = 60
KILLS = {15: "store", 25: "intake", 35: "store", 45: "intake"}
PATIENCE_S = 60
SEED = 20_261_121
CONFIG = """
[sampling]
mode = "equalizing"
[[sampling.rule]]
project = "thrown-away"
rate = 0.0
"""


def body_of(number: int, dice: random.Random) -> tuple[bytes, dict[str, Counter[str]]]:
    """A delivery of some projects, and what becomes of it."""
    resources, counts = [], {}
    for project in dice.sample(["a", "b", "thrown-away"], dice.randint(1, 3)):
        good, bad = dice.randint(1, 9), dice.randint(0, 3)
        spans = [
            {
                "traceId": f"{number * 1_000 + span + 1:032x}" if span < good else "00",
                "spanId": f"{span + 1:016x}",
                "name": project,
                "startTimeUnixNano": str(time.time_ns()),
            }
            for span in range(good + bad)
        ]
        attributes = [{"key": "platform.projectId", "value": {"stringValue": project}}]
        resources.append({"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]})
        fate = "sampled_out" if project == "thrown-away" else "stored"
        counts[project] = Counter({fate: good, "rejected": bad, "all": good + bad})
    return json.dumps({"resourceSpans": resources}).encode(), counts


class Sender:
    """Posts as an exporter does, and keeps books of its own."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.sure: dict[str, Counter[str]] = {}
        self.copies: Counter[str] = Counter()
        self.in_doubt: Counter[str] = Counter()
        """Spans of attempts that brought no answer: made durable or not, nobody knows."""

    def post(self, body: bytes, counts: dict[str, Counter[str]], *, is_copy: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_taken(body, counts):
            assert time.monotonic() < deadline, self.running.log()
            time.sleep(0.1)
        for project, found in counts.items():
            if is_copy:
                self.copies[project] += found["all"]
            else:
                self.sure.setdefault(project, Counter()).update(found)

    def _is_taken(self, body: bytes, counts: dict[str, Counter[str]]) -> bool:
        try:
            status = self.running.post(body).status
        except (OSError, ValueError, KeyError):
            status = 503
        if status == 200:
            return True
        assert status in RETRYABLE
        for project, found in counts.items():
            self.in_doubt[project] += found["all"]
        return False


def ledger_of(running: Running) -> dict[str, Counter[str]]:
    """What the command says, by project; it fails when it finds a difference."""
    answer = json.loads(running.command("ledger", "--since", "3h", "--verify", "--format", "json"))
    found: dict[str, Counter[str]] = {}
    for line in answer["lines"]:
        assert line["verdict"] in {"same", ""}
        numbers: dict[str, Any] = {name: count for name, count in line.items() if isinstance(count, int)}
        found.setdefault(line["project"], Counter()).update(numbers)
    return found


@pytest.mark.timeout(240)
def test_the_ledger_says_what_the_sender_knows_whatever_is_killed(fresh_dir: Path) -> None:
    dice = random.Random(SEED)
    with Running(fresh_dir, "--intakes", "2", config=CONFIG) as running:
        sender = Sender(running)
        sent = []
        for number in range(DELIVERIES):
            sent.append(body_of(number, dice))
            sender.post(*sent[-1], is_copy=False)
            if dice.random() < 0.3:
                sender.post(*dice.choice(sent), is_copy=True)
            if number in KILLS:
                running.wait_until_ready()
                running.kill(pid_of(running, KILLS[number]))
            if number % 20 == 10:
                running.wait_until_ready()
                ledger_of(running)
        running.wait_until_ready()
        running.spans_once_stored(sum(one["stored"] for one in sender.sure.values()))
        found = ledger_of(running)
        metrics = running.metrics()

    assert sender.copies
    assert set(found) == set(sender.sure)
    for project, sure in sender.sure.items():
        told = found[project]
        for outcome in ("stored", "sampled_out", "rejected"):
            assert told[outcome] == sure[outcome], (project, outcome)
        assert (told["dead"], told["journal"], told["difference"]) == (0, 0, 0)
        assert told["table"] == told["stored"]
        least = sender.copies[project]
        assert least <= told["duplicate"] <= least + sender.in_doubt[project]
        assert told["received"] == sure["all"] + told["duplicate"]
    assert 'trace_drain_ledger_spans{drain="default",outcome="stored"}' in metrics


@pytest.mark.fault("DATA/ledger and DATA/redelivery are removed while the receiver is stopped")
@pytest.mark.timeout(180)
def test_removed_ledger_and_redelivery_window_are_reported_until_acknowledged(fresh_dir: Path) -> None:
    body, _ = body_of(1, random.Random(SEED))
    running = Running(fresh_dir)
    with running:
        assert running.post(body).status == 200
        running.spans_once_stored(1)
    for name in ("ledger", "redelivery"):
        shutil.rmtree(fresh_dir / name)
    at_rest = running.run_command("ledger", "--verify")

    with running:
        wait_for_metric(running, "trace_drain_ledger_losses 1")
        started = running.run_command("ledger", "--verify")
        checks = running.checks().splitlines()
        (fresh_dir / "ledger.lost").unlink()
        acknowledged = running.run_command("ledger", "--verify")

    assert (at_rest.returncode, started.returncode) == (1, 1)
    for text in (at_rest.stdout, started.stdout):
        assert "no entry of its log can be read" in text
        assert "in no segment of this ledger" in text
    marks = {line.split()[2]: line.split()[0] for line in checks if " store " in line}
    assert (marks["ledger:"], marks["redelivery:"], checks[-1]) == ("[-]", "[-]", "ok")
    assert acknowledged.returncode == 0, acknowledged.stdout


def wait_for_metric(running: Running, line: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while line not in running.metrics():
        assert time.monotonic() < deadline, running.metrics()
        time.sleep(0.1)
