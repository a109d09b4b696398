"""One run: start, load, break, mend, drain, stop, read, judge."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from receiver.engine.embedded import EmbeddedStore
from receiver.engine.opening import claimed
from tests.e2e.running import Running, reply_of
from tests.torture import site
from tests.torture.checker import Findings, check, judge_ledger, segments_stored
from tests.torture.driver import Damage, Driver
from tests.torture.faults import Fault, schedule
from tests.torture.oracle import LANES, Oracle
from tests.torture.senders import Desk, Outcomes, Sender
from tests.torture.watch import Watch

PROGRESS_EVERY_S = 10.0
PATIENCE_S = 60.0
"""What senders get to see their last deliveries acknowledged."""
DRAIN_S = 120.0
FRESH_S = 10.0
FRESH_PROBES = 3


@dataclass(frozen=True)
class Plan:
    """What to run."""

    seed: int
    duration_s: float
    data: Path
    gap_s: float = 0.7
    """Mean time between faults."""
    pause_s: float = 0.1
    """Of a sender between two deliveries."""
    owns_disk: bool = False
    """The data directory is a small file system of its own, which may be filled."""
    kills_min: int = 0
    """The run goes on until so many processes were killed."""


@dataclass
class Result:
    """Everything a run saw."""

    plan: Plan
    faults: list[Fault]
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    outcomes: Outcomes = field(default_factory=Outcomes)
    damage: Damage = field(default_factory=Damage)
    findings: Findings = field(default_factory=Findings)
    watch: Watch | None = None
    fresh_s: list[float] = field(default_factory=list)
    drained_s: float = 0.0
    left_in_journal: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    replayed: int = 0
    """Segments that lay in the journal at the moment of a kill and are in the store."""
    ledger: tuple[dict[str, Any], int] | None = None
    """What `trace-drain ledger --verify` said in the end, and its exit code."""
    log: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Run:
    """The run in its order."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan, self._say = plan, say
        self._oracle = Oracle(plan.seed)
        self._port = site.free_port(plan.seed)
        self._running = Running(
            plan.data,
            "--listen",
            f"127.0.0.1:{self._port}",
            config=site.configuration(plan.data, disk_free_min=(4 if plan.owns_disk else 64) << 20),
        )
        faults = schedule(
            plan.seed, plan.duration_s, plan.gap_s, with_fill=plan.owns_disk, kills_min=plan.kills_min
        )
        self.result = Result(plan, faults)
        self._driver = Driver(self._running, self.result.outcomes)
        self.result.damage = self._driver.damage
        damage = self._driver.damage
        desk = Desk(self._oracle, self._port, self.result.outcomes, starts=lambda: len(damage.down_s))
        self._senders = [Sender(desk, lane, pause_s=plan.pause_s) for lane in range(len(LANES))]

    def run(self) -> Result:
        """All of it. What the receiver does wrong is in the result; what raises is the harness's own."""
        self._running.start()
        watch = self.result.watch = Watch(self._running)
        watch.start()
        progressing = threading.Event()
        threading.Thread(target=self._progress, args=(progressing,), daemon=True).start()
        try:
            self._load_and_break()
            self._mend()
            self._probe_freshness()
            self._drain()
        except AssertionError as reason:
            self.result.wrong.append(str(reason))
        finally:
            progressing.set()
            self._end_senders()
            watch.ending.set()
            watch.join()
            code = self._running.stop()
        if code != 0:
            self.result.wrong.append(f"the receiver ended with {code}; expected 0")
        self._read()
        return self.result

    def _load_and_break(self) -> None:
        began_s = time.monotonic()
        for sender in self._senders:
            sender.start()
        self._driver.run(self.result.faults, began_s, self._plan.duration_s, self._plan.kills_min)
        time.sleep(max(0.0, began_s + self._plan.duration_s - time.monotonic()))

    def _mend(self) -> None:
        """No more faults, no more new deliveries; what was begun is sent until it is acknowledged."""
        self._say("faults over; senders finish")
        for sender in self._senders:
            sender.issuing_ends.set()
        self._running.wait_until_ready()
        deadline_s = time.monotonic() + PATIENCE_S
        for sender in self._senders:
            sender.join(max(0.0, deadline_s - time.monotonic()))
        unfinished = sum(sender.is_alive() for sender in self._senders)
        if unfinished:
            self.result.wrong.append(f"{unfinished} senders got no 200 within {PATIENCE_S:.0f} s of the end")
        self._end_senders()

    def _end_senders(self) -> None:
        for sender in self._senders:
            sender.issuing_ends.set()
            sender.giving_up.set()
        for sender in self._senders:
            if sender.ident is not None:
                sender.join()

    def _probe_freshness(self) -> None:
        """Faults are over: a new span must be readable soon."""
        prober = self._senders[0]
        prober.giving_up.clear()
        for _ in range(FRESH_PROBES):
            delivery = prober.next()
            began_s = time.monotonic()
            prober.deliver(delivery)
            trace_id = next(iter(delivery.rows))[0]
            while not self._is_readable(trace_id) and time.monotonic() - began_s < 3 * FRESH_S:
                time.sleep(0.05)
            self.result.fresh_s.append(time.monotonic() - began_s)

    def _is_readable(self, trace_id: str) -> bool:
        base = str(self._running.state()["urls"]["api"])
        return reply_of(urllib.request.Request(f"{base}/api/v1/traces/{trace_id}")).status == 200

    def _drain(self) -> None:
        self._say("waiting for the journal to empty")
        began_s = time.monotonic()
        while site.segments_in(self._plan.data) and time.monotonic() - began_s < DRAIN_S:
            time.sleep(0.1)
        self.result.drained_s = time.monotonic() - began_s
        self._say("asking the ledger")
        done = self._running.run_command("ledger", "--since", "7d", "--verify", "--format", "json")
        assert done.stdout, f"trace-drain ledger --verify says nothing but {done.stderr}"
        self.result.ledger = json.loads(done.stdout), done.returncode

    def _read(self) -> None:
        """The receiver has stopped: what is on its disk is what there is."""
        result, data = self.result, self._plan.data
        result.left_in_journal = sorted(site.journal_files(data))
        result.dead = sorted(path.name for path in (data / "dead").glob("*"))
        result.log = log_levels((data / "log").read_text(errors="replace"))
        self._say("reading the store")
        with claimed(data):
            store = EmbeddedStore(
                data / "store", database="otel", memory_bytes_max=2 << 30, disk_free_min=lambda: 0
            )
            try:
                result.findings = check(store, self._oracle, result.outcomes.fates)
                if result.ledger is not None:
                    judge_ledger(result.findings, *result.ledger)
                result.replayed = len(result.damage.at_stake & segments_stored(store))
            finally:
                store.close()

    def _progress(self, ended: threading.Event) -> None:
        began_s = time.monotonic()
        while not ended.wait(PROGRESS_EVERY_S):
            outcomes, damage = self.result.outcomes, self.result.damage
            self._say(
                f"{time.monotonic() - began_s:6.0f} s  deliveries {len(outcomes.fates)}  "
                f"answers {dict(outcomes.answers)}  retries {outcomes.retries}  "
                f"faults {sum(damage.done.values())}/{len(self.result.faults)}  "
                f"journal {len(site.segments_in(self._plan.data))} segments"
            )


def log_levels(log: str) -> Counter[str]:
    """How often the receiver said what: errors, and tracebacks, which nothing expected may leave."""
    return Counter(
        {
            "tracebacks": log.count("Traceback (most recent call last)"),
            "errors": log.count('"level":"error"') + log.count('"level": "error"'),
        }
    )
