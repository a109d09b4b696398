"""Fault driver: injects the scheduled faults into the running receiver and records what they hit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.e2e.receiver_process import ReceiverProcess
from tests.torture.faults import OPENING_FAULTS, Fault
from tests.torture.receiver_state import processes, segments_in
from tests.torture.senders import Outcomes

KILLS = ("kill intake", "kill store", "kill supervisor")
BUSY_WAIT_S = 0.5
"""How long a kill waits until the process is busy."""
EXTRA_WAIT_S = 0.02
STARTS_MAX = 3
BETWEEN_FAULTS_S = 0.6
KILL_ON_FULL_DISK_SHARE = 0.4


@dataclass
class FaultLog:
    """Record of the injected faults."""

    done: Counter[str] = field(default_factory=Counter)
    """Injected faults by kind and role."""
    kills_in_commit: int = 0
    """Kills of an intake or the supervisor while a delivery was in flight."""
    kills_before_insert: int = 0
    """Kills of the store process while a sealed segment was in the journal."""
    segments_at_risk: set[str] = field(default_factory=set)
    """Segments in the journal at the time of a kill."""
    down_s: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each interval without a supervisor, and so without an open port."""
    failed_starts: list[str] = field(default_factory=list)
    """The last line of the receiver's log for each failed start."""
    errors: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Number of killed processes."""
        return sum(self.done[what] for what in KILLS)


class Driver:
    """Executor of the fault schedule, in the calling thread."""

    def __init__(self, running: ReceiverProcess, outcomes: Outcomes) -> None:
        self.fault_log = FaultLog()
        self._running, self._outcomes = running, outcomes

    def run(self, faults: list[Fault], began_s: float, duration_s: float, kills_min: int = 0) -> None:
        """Inject the faults. The opening faults and `kills_min` kills happen however slow the machine is."""
        for position, fault in enumerate(faults):
            may_stop = position > len(OPENING_FAULTS) and self.fault_log.kills >= kills_min
            if may_stop and time.monotonic() > began_s + duration_s:
                self.fault_log.done["skipped, no time"] += 1
                continue
            time.sleep(max(0.0, began_s + fault.at_s - time.monotonic()))
            self._inject(fault)
            self._wait_for_deliveries()

    def _wait_for_deliveries(self) -> None:
        """Wait for two acknowledged deliveries: faults in immediate succession prove little."""
        before, deadline_s = self._outcomes.acknowledged, time.monotonic() + BETWEEN_FAULTS_S
        while self._outcomes.acknowledged < before + 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def _inject(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                fault = self._with_living_role(fault)
                done = self._kill(fault)
            case "freeze":
                done = self._freeze(fault)
            case "restart":
                done = self._restart()
            case "fill":
                done = self._fill_disk(fault)
        self.fault_log.done[f"{fault.kind} {fault.role}" + ("" if done else ", no such process")] += 1

    def _pid(self, fault: Fault) -> int | None:
        pids = sorted(pid for pid, role in processes(self._running).items() if role == fault.role)
        return pids[int(fault.pick * len(pids))] if pids else None

    def _with_living_role(self, fault: Fault) -> Fault:
        """Return the fault for a role that has a process now: the intended process may be restarting."""
        roles = sorted(set(processes(self._running).values()) - {"supervisor"})
        has_process = fault.role == "supervisor" or fault.role in roles or not roles
        return fault if has_process else replace(fault, role=roles[int(fault.pick * len(roles))])

    def _kill(self, fault: Fault) -> bool:
        self._wait_until_busy(fault)
        pid = self._pid(fault)
        if pid is None:
            return False
        is_busy = self._outcomes.in_flight > 0
        before = segments_in(self._running.data)
        killed_s = time.monotonic()
        self._running.kill(pid)
        self.fault_log.segments_at_risk |= before
        if fault.role == "store":
            self.fault_log.kills_before_insert += self._has_sealed(before)
        else:
            self.fault_log.kills_in_commit += is_busy
        if fault.role == "supervisor":
            self._start(killed_s)
        return True

    def _wait_until_busy(self, fault: Fault) -> None:
        """Wait until there is work to interrupt, then slightly longer."""
        deadline_s = time.monotonic() + BUSY_WAIT_S
        while time.monotonic() < deadline_s and not self._is_busy(fault.role):
            time.sleep(0.001)
        time.sleep(fault.pick * EXTRA_WAIT_S)

    def _is_busy(self, role: str) -> bool:
        if role == "store":
            return self._has_sealed(segments_in(self._running.data))
        return self._outcomes.in_flight > 0

    def _has_sealed(self, segments: set[str]) -> bool:
        journal = self._running.data / "journal"
        return any((journal / f"{name}.native.lz4").exists() for name in segments)

    def _freeze(self, fault: Fault) -> bool:
        pid = self._pid(fault)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(fault.hold_s)
            finally:
                os.kill(pid, signal.SIGCONT)
        return True

    def _restart(self) -> bool:
        stopped_s = time.monotonic()
        code = self._running.stop()
        if code != 0:
            self.fault_log.errors.append(f"the supervisor exited with {code}; expected 0")
        self._start(stopped_s)
        return True

    def _start(self, down_s: float) -> None:
        """Start the receiver, with retries as a service manager does."""
        for attempt in range(1, STARTS_MAX + 1):
            try:
                self._running.start()
            except AssertionError as error:
                if self._running.process and self._running.process.poll() is None:
                    self._running.kill()
                self.fault_log.failed_starts.append(self._running.log().splitlines()[-1][:300])
                if attempt == STARTS_MAX:
                    raise AssertionError(f"the receiver did not start in {attempt} attempts") from error
            else:
                self.fault_log.down_s.append((down_s, time.monotonic()))
                return

    def _fill_disk(self, fault: Fault) -> bool:
        """Fill the receiver's own disk for a while; kill a process meanwhile in some cases."""
        with full_disk(self._running.data / "filler"):
            time.sleep(fault.hold_s / 2)
            if fault.pick < KILL_ON_FULL_DISK_SHARE:
                role = "intake" if fault.pick < KILL_ON_FULL_DISK_SHARE / 2 else "store"
                self._inject(replace(fault, kind="kill", role=role))
            time.sleep(fault.hold_s / 2)
        return True


class full_disk:  # noqa: N801 - used as a context manager
    """Context manager: a file that grows until the disk is full, and again when space is freed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._grow, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._path.unlink()

    def _grow(self) -> None:
        with self._path.open("ab", buffering=0) as filler:
            while not self._done.is_set():
                for size_bytes in (1 << 20, 1 << 14, 1):
                    with contextlib.suppress(OSError):
                        while filler.write(bytes(size_bytes)) == size_bytes:
                            pass
                self._done.wait(0.05)
