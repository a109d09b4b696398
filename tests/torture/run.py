"""One torture run: start, load and faults, recovery, drain, stop, check."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from receiver.engine.embedded import EmbeddedStore
from receiver.engine.opening import claimed
from tests.e2e.receiver_process import ReceiverProcess
from tests.torture import receiver_state
from tests.torture.checker import Findings, check, judge_ledger, segments_stored
from tests.torture.driver import Driver, FaultLog
from tests.torture.faults import Fault, schedule
from tests.torture.oracle import LANES, Oracle
from tests.torture.resource_monitor import ResourceMonitor
from tests.torture.senders import Outcomes, Sender, SenderContext
from tests.torture.steady import Steady

PROGRESS_EVERY_S = 10.0
FINISH_S = 60.0
"""How long senders may take to get their last deliveries acknowledged."""
DRAIN_S = 120.0
FRESH_S = 10.0
FRESH_PROBES = 3


@dataclass(frozen=True)
class Plan:
    """Parameters of a run."""

    seed: int
    duration_s: float
    data: Path
    gap_s: float = 0.7
    """Mean time between two faults."""
    pause_s: float = 0.1
    """Pause of a sender between two deliveries."""
    owns_disk: bool = False
    """Whether the data directory is a small file system of its own, which may be filled."""
    is_steady: bool = False
    """Whether queries run during the load, without faults, and no resource may grow: see `steady`."""
    kills_min: int = 0
    """The run continues until this many processes were killed."""


@dataclass
class Result:
    """Everything that a run observed."""

    plan: Plan
    faults: list[Fault]
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    outcomes: Outcomes = field(default_factory=Outcomes)
    fault_log: FaultLog = field(default_factory=FaultLog)
    findings: Findings = field(default_factory=Findings)
    watch: ResourceMonitor | None = None
    fresh_s: list[float] = field(default_factory=list)
    drained_s: float = 0.0
    left_in_journal: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    replayed: int = 0
    """Segments that were in the journal at the time of a kill and whose rows are in the store."""
    ledger: tuple[dict[str, Any], int] | None = None
    """Output of `trace-drain ledger --verify` at the end, and its exit code."""
    log: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    steady: Steady | None = None


class Run:
    """The steps of a run."""

    def __init__(self, plan: Plan, log: Callable[[str], None]) -> None:
        self._plan, self._log = plan, log
        self._oracle = Oracle(plan.seed)
        self._port = receiver_state.free_port(plan.seed)
        self._running = ReceiverProcess(
            plan.data,
            "--listen",
            f"127.0.0.1:{self._port}",
            config=receiver_state.configuration(plan.data, disk_free_min=(4 if plan.owns_disk else 64) << 20),
        )
        faults = schedule(
            plan.seed, plan.duration_s, plan.gap_s, with_fill=plan.owns_disk, kills_min=plan.kills_min
        )
        faults = [] if plan.is_steady else faults
        self.result = Result(plan, faults)
        self._driver = Driver(self._running, self.result.outcomes)
        self.result.fault_log = self._driver.fault_log
        fault_log = self._driver.fault_log
        context = SenderContext(self._oracle, self._port, self.result.outcomes, lambda: len(fault_log.down_s))
        self._senders = [Sender(context, lane, pause_s=plan.pause_s) for lane in range(len(LANES))]

    def run(self) -> Result:
        """Do the whole run. Receiver errors are in the result; exceptions are errors of the harness."""
        self._running.start()
        watch = self.result.watch = ResourceMonitor(self._running)
        watch.start()
        finished = threading.Event()
        threading.Thread(target=self._progress, args=(finished,), daemon=True).start()
        try:
            self._run_load_and_faults()
            self._finish_deliveries()
            self._probe_freshness()
            self._drain()
        except AssertionError as error:
            self.result.errors.append(str(error))
        finally:
            finished.set()
            self._end_senders()
            watch.ending.set()
            watch.join()
            code = self._running.stop()
        if code != 0:
            self.result.errors.append(f"the receiver exited with {code}; expected 0")
        self._read()
        return self.result

    def _run_load_and_faults(self) -> None:
        began_s = time.monotonic()
        for sender in self._senders:
            sender.start()
        if self._plan.is_steady:
            self.result.steady = Steady(self._running)
            self.result.steady.start()
        self._driver.run(self.result.faults, began_s, self._plan.duration_s, self._plan.kills_min)
        time.sleep(max(0.0, began_s + self._plan.duration_s - time.monotonic()))
        if self.result.steady is not None:
            self.result.steady.stop()
            self.result.errors += self.result.steady.violations()

    def _finish_deliveries(self) -> None:
        """Issue no more faults and deliveries; wait until every delivery is acknowledged."""
        self._log("no more faults; waiting for the senders")
        for sender in self._senders:
            sender.stop_issuing.set()
        self._running.wait_until_ready()
        deadline_s = time.monotonic() + FINISH_S
        for sender in self._senders:
            sender.join(max(0.0, deadline_s - time.monotonic()))
        unfinished = sum(sender.is_alive() for sender in self._senders)
        if unfinished:
            self.result.errors.append(f"{unfinished} senders got no 200 within {FINISH_S:.0f} s of the end")
        self._end_senders()

    def _end_senders(self) -> None:
        for sender in self._senders:
            sender.stop_issuing.set()
            sender.give_up.set()
        for sender in self._senders:
            if sender.ident is not None:
                sender.join()

    def _probe_freshness(self) -> None:
        """Measure how soon a new span is readable after the faults."""
        prober = self._senders[0]
        prober.give_up.clear()
        for _ in range(FRESH_PROBES):
            delivery = prober.next()
            began_s = time.monotonic()
            prober.deliver(delivery)
            trace_id = next(iter(delivery.rows))[0]
            path = f"/api/v1/traces/{trace_id}"
            while self._running.get(path).status != 200 and time.monotonic() - began_s < 3 * FRESH_S:
                time.sleep(0.05)
            self.result.fresh_s.append(time.monotonic() - began_s)

    def _drain(self) -> None:
        self._log("waiting for the journal to empty")
        began_s = time.monotonic()
        while receiver_state.segments_in(self._plan.data) and time.monotonic() - began_s < DRAIN_S:
            time.sleep(0.1)
        self.result.drained_s = time.monotonic() - began_s
        self._log("verifying the ledger")
        done = self._running.run_command("ledger", "--since", "7d", "--verify", "--format", "json")
        assert done.stdout, f"trace-drain ledger --verify printed nothing but {done.stderr}"
        self.result.ledger = json.loads(done.stdout), done.returncode

    def _read(self) -> None:
        """Read everything from the disk after the receiver has stopped."""
        result, data = self.result, self._plan.data
        result.left_in_journal = sorted(receiver_state.journal_files(data))
        result.dead = sorted(path.name for path in (data / "dead").glob("*"))
        result.log = log_levels((data / "log").read_text(errors="replace"))
        self._log("reading the store")
        with claimed(data):
            store = EmbeddedStore(
                data / "store", database="otel", memory_bytes_max=2 << 30, disk_free_min=lambda: 0
            )
            try:
                result.findings = check(store, self._oracle, result.outcomes.sent)
                if result.ledger is not None:
                    judge_ledger(result.findings, *result.ledger)
                result.replayed = len(result.fault_log.segments_at_risk & segments_stored(store))
            finally:
                store.close()

    def _progress(self, finished: threading.Event) -> None:
        began_s = time.monotonic()
        while not finished.wait(PROGRESS_EVERY_S):
            outcomes, fault_log = self.result.outcomes, self.result.fault_log
            self._log(
                f"{time.monotonic() - began_s:6.0f} s  deliveries {len(outcomes.sent)}  "
                f"answers {dict(outcomes.answers)}  retries {outcomes.retries}  "
                f"faults {sum(fault_log.done.values())}/{len(self.result.faults)}  "
                f"journal {len(receiver_state.segments_in(self._plan.data))} segments"
            )


def log_levels(log: str) -> Counter[str]:
    """Count errors and tracebacks in the receiver's log."""
    return Counter(
        {
            "tracebacks": log.count("Traceback (most recent call last)"),
            "errors": log.count('"level":"error"') + log.count('"level": "error"'),
        }
    )
