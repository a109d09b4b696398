"""Observation of a running receiver: its latencies under load, its processes, the size of its journal."""

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
    """Loads a receiver and reads its state."""

    running: Running
    data: Path
    cores: Cores
    began_s: float = field(default_factory=time.monotonic)

    def slice(self, options: Sequence[str], duration_s: float, seed: int) -> Slice:
        """Load the receiver for `duration_s`, and return the latencies and the receiver's state."""
        began_s = time.monotonic()
        limits = ["--duration", str(duration_s), "--seed", str(seed)]
        probe = Probe(self.data.parent)
        with probe.running():
            report = load(self.running.url, self.cores, [*options, *limits])
        ended_s = time.monotonic()
        return Slice(
            at_s=ended_s - self.began_s,
            idle_s=ended_s - began_s - report["elapsed_s"],
            spans=report["spans"],
            spans_per_s=report["spans_per_s"],
            p50_ms=report["latency_ms"]["p50"],
            p99_ms=report["latency_ms"]["p99"],
            disk_p50_ms=probe.latency().p50_ms,
            disk_p99_ms=probe.latency().p99_ms,
            answers=report["answers"],
            journal_bytes=journal_bytes(self.data),
            processes={role: self._state_of(pid, role) for pid, role in self.running.roles.items()},
        )

    def reset_peaks(self) -> None:
        """Reset the peak memory of all processes."""
        for pid in self.running.roles:
            reset_peak(pid)

    def kill(self) -> float:
        """Send SIGKILL to the supervisor; return the seconds until its children have exited."""
        others = {pid: role for pid, role in self.running.roles.items() if role != "supervisor"}
        began_s = time.monotonic()
        for pid in self.running.roles.keys() - others.keys():
            os.kill(pid, signal.SIGKILL)
        while living := [pid for pid in others if not has_ended(pid)]:
            if time.monotonic() - began_s > ORPHANS_S:
                for pid in living:
                    kill(pid)
                names = ", ".join(others[pid] for pid in living)
                raise MeasurementError(f"{names} still ran {ORPHANS_S:g} s after the supervisor was killed")
            time.sleep(POLL_S)
        return time.monotonic() - began_s

    def _state_of(self, pid: int, role: str) -> Process:
        try:
            status = status_of(pid)
            return Process(
                rss_bytes=int(status["VmRSS"].split()[0]) << 10,
                peak_bytes=int(status["VmHWM"].split()[0]) << 10,
                descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
                threads=int(status["Threads"]),
            )
        except (OSError, KeyError) as error:
            raise MeasurementError(f"the {role} (process {pid}) has exited") from error


def journal_bytes(data: Path) -> int:
    """Return the size of all journal files; files deleted during the walk count nothing."""
    total = 0
    for directory, _, names in os.walk(data / "journal"):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_size  # noqa: PTH116, PTH118 - many files
            except FileNotFoundError:
                continue
    return total


def line_of(time_slice: Slice) -> str:
    """Return the progress line of a slice."""
    memory = ", ".join(
        f"{role} {process.rss_bytes / MIB:.0f}" for role, process in time_slice.processes.items()
    )
    handles = ", ".join(
        f"{process.descriptors}+{process.threads}" for process in time_slice.processes.values()
    )
    return (
        f"{time_slice.at_s:6.0f} s  {time_slice.spans_per_s:9,.0f} spans/s  "
        f"p50 {milliseconds(time_slice.p50_ms)} "
        f"p99 {milliseconds(time_slice.p99_ms)} ms  disk p50 {milliseconds(time_slice.disk_p50_ms)} p99 "
        f"{milliseconds(time_slice.disk_p99_ms)} ms  journal {time_slice.journal_bytes / 1e6:,.0f} MB  "
        f"RSS MiB {memory}  "
        f"descriptors+threads {handles}  {time_slice.answers}"
    )
