"""Processes that are measured: started on a core of their own, watched through /proc, always ended."""

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
    """Which core the receiver has to itself, and which are left for load and sink."""

    receiver: str
    others: str

    @classmethod
    def of_this_machine(cls) -> Cores:
        """The first one for the receiver; with a single core, all share it."""
        first, *rest = sorted(os.sched_getaffinity(0))
        return cls(str(first), ",".join(map(str, rest)) or str(first))

    @classmethod
    def all_of_this_machine(cls) -> Cores:
        """No core to itself."""
        every = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        return cls(every, every)


@dataclass(frozen=True)
class Usage:
    """What processes have used."""

    user_s: float = 0.0
    system_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        """Both."""
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
    """Ask, wait, and kill what does not go, children and all."""
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
    """At once; one that is gone is ordinary."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def descendants(pid: int) -> list[int]:
    """Its children, and theirs."""
    try:
        text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return []
    children = [int(word) for word in text.split()]
    return children + [one for child in children for one in descendants(child)]


def usage_of(pid: int) -> Usage:
    """Of one process with all its threads, since it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage(int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S)


def forget_peak(pid: int) -> None:
    """Let the peak of its memory begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """The most memory that was resident."""
    return int(status_of(pid)["VmHWM"].split()[0]) << 10


def status_of(pid: int) -> dict[str, str]:
    """What Linux says of it, by name."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def has_ended(pid: int) -> bool:
    """Whether it does nothing more, reaped or not."""
    try:
        return status_of(pid)["State"][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@dataclass
class Watched:
    """Processes by role, and what they used since the watch began."""

    roles: Mapping[int, str]
    _before: dict[int, Usage] = field(default_factory=dict)

    def begin(self) -> None:
        """Count from here."""
        for pid in self.roles:
            forget_peak(pid)
        self._before = {pid: usage_of(pid) for pid in self.roles}

    def used(self) -> dict[str, Usage]:
        """By role."""
        found: dict[str, Usage] = {}
        for pid, role in self.roles.items():
            found[role] = found.get(role, Usage()) + (usage_of(pid) - self._before[pid])
        return found

    def peaks(self) -> dict[str, int]:
        """Bytes by role: of several processes the largest."""
        found: dict[str, int] = {}
        for pid, role in self.roles.items():
            found[role] = max(found.get(role, 0), peak_bytes(pid))
        return found
