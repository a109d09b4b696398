"""A receiver under watch: a slice of load, and then what each process holds and how long the journal is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.long.disk import Probe
from benchmarks.long.results import Process, Slice
from benchmarks.measure import load
from benchmarks.peers import MeasurementError, Running
from benchmarks.processes import Cores, has_ended, kill, reset_peak, status_of
from benchmarks.report import milliseconds

MIB = 1 << 20
ORPHANS_S = 30.0
POLL_S = 0.01

Log = Callable[[str], None]


@dataclass
class Watch:
    """Loads a receiver and looks at it."""

    running: Running
    data: Path
    cores: Cores
    began_s: float = field(default_factory=time.monotonic)

    def slice(self, options: Sequence[str], duration_s: float, seed: int) -> Slice:
        """Load it for so long; how it was answered, and how the receiver stands."""
        began_s = time.monotonic()
        limits = ["--duration", str(duration_s), "--seed", str(seed)]
        probe = Probe(self.data.parent)
        with probe.beside():
            said = load(self.running.url, self.cores, [*options, *limits])
        ended_s = time.monotonic()
        return Slice(
            at_s=ended_s - self.began_s,
            idle_s=ended_s - began_s - said["elapsed_s"],
            spans=said["spans"],
            spans_per_s=said["spans_per_s"],
            p50_ms=said["latency_ms"]["p50"],
            p99_ms=said["latency_ms"]["p99"],
            disk_p50_ms=probe.synced().p50_ms,
            disk_p99_ms=probe.synced().p99_ms,
            answers=said["answers"],
            journal_bytes=journal_bytes(self.data),
            processes={role: self._look(pid, role) for pid, role in self.running.roles.items()},
        )

    def reset_peaks(self) -> None:
        """Let the peaks begin anew."""
        for pid in self.running.roles:
            reset_peak(pid)

    def kill(self) -> float:
        """`kill -9` of the supervisor; seconds until the other processes have ended by themselves."""
        others = {pid: role for pid, role in self.running.roles.items() if role != "supervisor"}
        began_s = time.monotonic()
        for pid in self.running.roles.keys() - others.keys():
            os.kill(pid, signal.SIGKILL)
        while living := [pid for pid in others if not has_ended(pid)]:
            if time.monotonic() - began_s > ORPHANS_S:
                for pid in living:
                    kill(pid)
                names = ", ".join(others[pid] for pid in living)
                raise MeasurementError(f"{names} lived {ORPHANS_S:g} s after the supervisor was killed")
            time.sleep(POLL_S)
        return time.monotonic() - began_s

    def _look(self, pid: int, role: str) -> Process:
        try:
            status = status_of(pid)
            return Process(
                rss_bytes=int(status["VmRSS"].split()[0]) << 10,
                peak_bytes=int(status["VmHWM"].split()[0]) << 10,
                descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
                threads=int(status["Threads"]),
            )
        except (OSError, KeyError) as error:
            raise MeasurementError(f"the {role} (process {pid}) has ended") from error


def journal_bytes(data: Path) -> int:
    """Of all files that wait, open ones included. What goes meanwhile counts nothing."""
    total = 0
    for directory, _, names in os.walk(data / "journal"):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_size  # noqa: PTH116, PTH118 - many files
            except FileNotFoundError:
                continue
    return total


def line_of(one: Slice) -> str:
    """One slice, as it is told."""
    memory = ", ".join(f"{role} {held.rss_bytes / MIB:.0f}" for role, held in one.processes.items())
    handles = ", ".join(f"{held.descriptors}+{held.threads}" for held in one.processes.values())
    return (
        f"{one.at_s:6.0f} s  {one.spans_per_s:9,.0f} spans/s  p50 {milliseconds(one.p50_ms)} "
        f"p99 {milliseconds(one.p99_ms)} ms  disk {milliseconds(one.disk_p50_ms)} and "
        f"{milliseconds(one.disk_p99_ms)} ms  journal {one.journal_bytes / 1e6:,.0f} MB  RSS MiB {memory}  "
        f"descriptors+threads {handles}  {one.answers}"
    )
