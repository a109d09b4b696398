"""Measured processes: started on a separate core, observed through /proc, always terminated."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

STOP_S = 30
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cores:
    """The core reserved for the receiver, and the cores for load and sink."""

    receiver: str
    others: str

    @classmethod
    def of_this_machine(cls) -> Cores:
        """Reserve the first core for the receiver; on a single core, all processes share it."""
        first, *rest = sorted(os.sched_getaffinity(0))
        return cls(str(first), ",".join(map(str, rest)) or str(first))

    @classmethod
    def all_of_this_machine(cls) -> Cores:
        """Share all cores between receiver, load and sink."""
        every = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        return cls(every, every)


@dataclass(frozen=True)
class Usage:
    """CPU time of processes."""

    user_s: float = 0.0
    system_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        """User and system time together."""
        return self.user_s + self.system_s

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.user_s + other.user_s, self.system_s + other.system_s)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.user_s - other.user_s, self.system_s - other.system_s)


@contextmanager
def started(
    command: Sequence[str], log: Path, *, core: str, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program on a core until the block ends."""
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - our own command
            ["taskset", "-c", core, *command],  # noqa: S607 - a standard tool
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; after a time-out, kill it with its descendants."""
    family = [process.pid, *descendants(process.pid)]
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            for pid in family:
                kill(pid)
            process.wait()


def kill(pid: int) -> None:
    """Send SIGKILL; ignore a process that no longer exists."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants."""
    try:
        text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return []
    children = [int(word) for word in text.split()]
    return children + [descendant for child in children for descendant in descendants(child)]


def usage_of(pid: int) -> Usage:
    """Return the CPU time of a process with all its threads, since it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage(int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S)


def reset_peak(pid: int) -> None:
    """Reset the peak of resident memory to the current size."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Return the peak of resident memory."""
    return int(status_of(pid)["VmHWM"].split()[0]) << 10


def status_of(pid: int) -> dict[str, str]:
    """Return the fields of /proc/<pid>/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def has_ended(pid: int) -> bool:
    """Return whether a process has exited, reaped or not."""
    try:
        return status_of(pid)["State"][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def free_port() -> int:
    """Return a port that is currently unused."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@dataclass
class UsageMeter:
    """CPU time and peak memory of processes by role, since `begin`."""

    roles: Mapping[int, str]
    _before: dict[int, Usage] = field(default_factory=dict)

    def begin(self) -> None:
        """Reset the peaks and record the CPU time used so far."""
        for pid in self.roles:
            reset_peak(pid)
        self._before = {pid: usage_of(pid) for pid in self.roles}

    def used(self) -> dict[str, Usage]:
        """Return the CPU time since `begin`, summed by role."""
        usage_by_role: dict[str, Usage] = {}
        for pid, role in self.roles.items():
            usage_by_role[role] = usage_by_role.get(role, Usage()) + (usage_of(pid) - self._before[pid])
        return usage_by_role

    def peaks(self) -> dict[str, int]:
        """Return the peak memory in bytes of the largest process of each role."""
        peak_by_role: dict[str, int] = {}
        for pid, role in self.roles.items():
            peak_by_role[role] = max(peak_by_role.get(role, 0), peak_bytes(pid))
        return peak_by_role
