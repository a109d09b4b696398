"""The fault driver: does to the running receiver what the schedule says, and notes what it hit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.e2e.running import Running
from tests.torture.faults import OPENING, Fault
from tests.torture.senders import Outcomes
from tests.torture.site import processes, segments_in

KILLS = ("kill intake", "kill store", "kill supervisor")
AIM_S = 0.5
"""How long a kill waits for a moment in which something is being done."""
AIM_DEPTH_S = 0.02
STARTS_MAX = 3
BREATH_S = 0.6
KILL_ON_FULL_DISK_SHARE = 0.4


@dataclass
class Damage:
    """What the driver has done."""

    done: Counter[str] = field(default_factory=Counter)
    """By kind and role."""
    kills_in_commit: int = 0
    """Kills of an intake or the supervisor while a delivery was on its way through it."""
    kills_in_hand_over: int = 0
    """Kills of the store while a sealed segment lay before it."""
    at_stake: set[str] = field(default_factory=set)
    """Segments that lay in the journal at the moment of a kill."""
    down_s: list[tuple[float, float]] = field(default_factory=list)
    """From when to when there was no supervisor, and so no port."""
    vain_starts: list[str] = field(default_factory=list)
    """The log's last line, each time the receiver did not come up."""
    wrong: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Processes that were killed."""
        return sum(self.done[what] for what in KILLS)


class Driver:
    """Works through the schedule in the calling thread."""

    def __init__(self, running: Running, outcomes: Outcomes) -> None:
        self.damage = Damage()
        self._running, self._outcomes = running, outcomes

    def run(self, faults: list[Fault], began_s: float, duration_s: float, kills_min: int = 0) -> None:
        """The first faults, and as many kills as are asked for, come however slow the machine is."""
        for done, fault in enumerate(faults):
            is_enough = done > len(OPENING) and self.damage.kills >= kills_min
            if is_enough and time.monotonic() > began_s + duration_s:
                self.damage.done["left out, no time"] += 1
                continue
            time.sleep(max(0.0, began_s + fault.at_s - time.monotonic()))
            self._do(fault)
            self._breathe()

    def _breathe(self) -> None:
        """Faults on faults prove little where nothing can happen in between: wait for a delivery or two."""
        before, deadline_s = self._outcomes.acknowledged, time.monotonic() + BREATH_S
        while self._outcomes.acknowledged < before + 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def _do(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                fault = self._living(fault)
                done = self._kill(fault)
            case "freeze":
                done = self._freeze(fault)
            case "restart":
                done = self._restart()
            case "fill":
                done = self._fill(fault)
        self.damage.done[f"{fault.kind} {fault.role}" + ("" if done else ", nobody there")] += 1

    def _pid(self, fault: Fault) -> int | None:
        pids = sorted(pid for pid, role in processes(self._running).items() if role == fault.role)
        return pids[int(fault.pick * len(pids))] if pids else None

    def _living(self, fault: Fault) -> Fault:
        """The same for a role that has a process now: some are being replaced."""
        roles = sorted(set(processes(self._running).values()) - {"supervisor"})
        is_there = fault.role == "supervisor" or fault.role in roles or not roles
        return fault if is_there else replace(fault, role=roles[int(fault.pick * len(roles))])

    def _kill(self, fault: Fault) -> bool:
        self._aim(fault)
        pid = self._pid(fault)
        if pid is None:
            return False
        is_busy = self._outcomes.in_flight > 0
        before = segments_in(self._running.data)
        killed_s = time.monotonic()
        self._running.kill(pid)
        self.damage.at_stake |= before
        if fault.role == "store":
            self.damage.kills_in_hand_over += self._has_sealed(before)
        else:
            self.damage.kills_in_commit += is_busy
        if fault.role == "supervisor":
            self._start(killed_s)
        return True

    def _aim(self, fault: Fault) -> None:
        """Wait for a moment in which there is something to interrupt, then a little more."""
        deadline_s = time.monotonic() + AIM_S
        while time.monotonic() < deadline_s and not self._is_busy(fault.role):
            time.sleep(0.001)
        time.sleep(fault.pick * AIM_DEPTH_S)

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
            self.damage.wrong.append(f"the supervisor ended with {code}; expected 0")
        self._start(stopped_s)
        return True

    def _start(self, down_s: float) -> None:
        """As a service manager would: again, if it does not come up at once."""
        for attempt in range(1, STARTS_MAX + 1):
            try:
                self._running.start()
            except AssertionError as reason:
                if self._running.process and self._running.process.poll() is None:
                    self._running.kill()
                self.damage.vain_starts.append(self._running.log().splitlines()[-1][:300])
                if attempt == STARTS_MAX:
                    raise AssertionError(f"the receiver did not start in {attempt} tries") from reason
            else:
                self.damage.down_s.append((down_s, time.monotonic()))
                return

    def _fill(self, fault: Fault) -> bool:
        """Take every free byte of a disk of our own, for a while; at times a process dies on it."""
        with filled(self._running.data / "filler"):
            time.sleep(fault.hold_s / 2)
            if fault.pick < KILL_ON_FULL_DISK_SHARE:
                role = "intake" if fault.pick < KILL_ON_FULL_DISK_SHARE / 2 else "store"
                self._do(replace(fault, kind="kill", role=role))
            time.sleep(fault.hold_s / 2)
        return True


class filled:  # noqa: N801 - reads as a word in a `with`
    """A file that grows until the disk is full, and again whenever something was freed."""

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
