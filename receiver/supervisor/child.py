"""One process of the receiver: started, watched, and replaced when it ends or hangs, until it is stopped.

Invariant: a process is replaced only once the old one has been reaped: two never work on the same data.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count, repeat

import msgspec
import structlog

from receiver.channel import (
    AcceptFor,
    ChildChannel,
    Failed,
    Pems,
    Ready,
    Reload,
    Report,
    Seal,
    Sealed,
    Start,
    Stop,
)
from receiver.logs import limited
from receiver.metrics import Metrics, Snapshot, carried_over
from receiver.settings import MIB, Settings
from receiver.supervisor.descriptors import DescriptorReserve
from receiver.supervisor.ends import TOLD_MIN, Ends

KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(32 * MIB),
}
"""Of what a body took, so much stays with the process: to get it from the kernel page by page for each body
costs as much as reading it. glibc reads these; what the operator says of them holds."""


@dataclass(frozen=True)
class Patience:
    """How long we wait for a process."""

    silence_s: float = 30.0
    """Without a report, once it was ready, until it is taken for hung."""
    start_s: float = 120.0
    """Without a report, before that: an engine may load for long."""
    head_start_s: float = 2.0
    """Until all intakes are ready: they have the machine to themselves at first."""
    exit_s: float = 5.0
    """From its last word to its end."""
    steady_s: float = 60.0
    """A process that lived so long is replaced at once again."""
    quiet_s: float = 3.0
    """Without a report, until the other intakes also accept the connections of this one."""
    seal_s: float = 2.0
    """Until an intake has sealed its open segment, before the store is stopped."""


@dataclass(frozen=True)
class Role:
    """What a process is for."""

    name: str
    """`intake-0`, `store`."""
    module: str
    """What Python runs."""
    listen_fd: int
    lock_fd: int
    """Inherited, and held until the process ends."""
    last_good: Callable[[], Pems | None] = lambda: None
    """What it is handed for the case that its certificate is broken when it starts."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables set for it, whatever the supervisor's own are."""
    sibling_fds: tuple[int, ...] = ()
    """Inherited too: the listening sockets of all intakes, for `AcceptFor`."""
    pause_s_max: float = 10.0
    """Longest pause before it is started again."""


POLL_S = 0.01
"""Between two looks whether a process that has closed its channel has ended."""


def backoff_s(pause_s_max: float) -> Iterator[float]:
    """Yield the pauses before a process is started again: none the first time."""
    steps_s = chain([0.0, 0.2, 0.5, 1.0, 2.0, 5.0], repeat(10.0))
    return (min(step_s, pause_s_max) for step_s in steps_s)


class Child:
    """One process and those that replace it."""

    def __init__(  # noqa: PLR0913 - what all processes of a supervisor share
        self,
        role: Role,
        settings: Settings,
        metrics: Metrics,
        on_change: Callable[[], None],
        patience: Patience | None = None,
        *,
        reserve: DescriptorReserve | None = None,
    ) -> None:
        self.name = role.name
        self.pid = 0
        self.is_ready = False
        self._role = role
        self._settings = settings
        self._metrics = metrics
        self._on_change = on_change
        self._patience = patience or Patience()
        self._reserve = reserve or DescriptorReserve()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: ChildChannel | None = None
        self._health: dict[str, str] = {}
        self._reported: Snapshot | None = None
        self._retired: Snapshot | None = None
        self._failed: Failed | None = None
        self.ends = Ends(time.monotonic)
        self._stopping = asyncio.Event()
        self._sealed = asyncio.Event()
        self._heard_at_s = 0.0
        self._accepts_for: frozenset[int] = frozenset()
        self._running: asyncio.Task[None] | None = None

    @property
    def health(self) -> dict[str, str]:
        """What it last said, and whether it runs at all."""
        running = "" if self.is_ready else "starting" if self._process else "not running"
        ends = self.ends.reason
        if ends and self._failed and not self._failed.raised_at:  # an exception may quote a sender
            ends += f": {self._failed.error}"
        return {"process": running, "ends": ends, **self._health}

    @property
    def listen_fd(self) -> int:
        """The listening socket it accepts from."""
        return self._role.listen_fd

    @property
    def is_accepting(self) -> bool:
        """Whether it accepts connections now, by its last report."""
        return self.is_ready and time.monotonic() - self._heard_at_s < self._patience.quiet_s

    @property
    def snapshots(self) -> list[Snapshot]:
        """What was counted by this process and by those before it."""
        return [snapshot for snapshot in (self._reported, self._retired) if snapshot]

    def start(self) -> asyncio.Task[None]:
        """Run from now on. The task ends when it was stopped, or with what went wrong in us."""
        self._running = asyncio.create_task(self._run())
        return self._running

    async def reload(self, settings: Settings) -> None:
        """Give it, and whoever replaces it, these settings."""
        self._settings = settings
        if self._channel:
            await self._channel.send(Reload(settings))

    async def accept_for(self, listen_fds: frozenset[int]) -> None:
        """Have it accept also from these sockets, and from no others but its own."""
        if self._channel and self.is_ready and listen_fds != self._accepts_for:
            self._accepts_for = listen_fds
            await self._channel.send(AcceptFor(tuple(sorted(listen_fds))))

    async def seal(self) -> None:
        """Have it seal its open segment; do not wait for long."""
        if not self._channel or not self.is_ready:
            return
        self._sealed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.seal_s):
                await self._channel.send(Seal())
                await self._sealed.wait()

    async def stop(self, grace_s: float) -> None:
        """Stop it; kill it if that takes longer than this."""
        self._stopping.set()
        if self._running is None:
            return
        if self._channel:
            await self._channel.send(Stop())
        done, _ = await asyncio.wait({self._running}, timeout=grace_s)
        if not done:
            structlog.get_logger().warning(
                "process does not stop in time",
                name=self.name,
                pid=self.pid,
                grace_s=grace_s,
                action="killed; the journal keeps the rest",
            )
            self._kill()
            await asyncio.wait({self._running})

    def end(self) -> None:
        """Kill it, and do not replace it."""
        self._stopping.set()
        self._kill()

    def _kill(self) -> None:
        """Kill it, with the processes that it started."""
        if self._process and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _run(self) -> None:
        """Run one process after the other, until stopped."""
        pauses_s = backoff_s(self._role.pause_s_max)
        for ordinal in count():
            began_s = time.monotonic()
            await self._live(ordinal)
            if time.monotonic() - began_s > self._patience.steady_s:
                pauses_s = backoff_s(self._role.pause_s_max)
            if not self._stopping.is_set():
                self._note_end()
                await self._pause(next(pauses_s))
            if self._stopping.is_set():
                return

    def _note_end(self) -> None:
        self._metrics.add("process_restarts", process=self.name)
        self.ends.note()

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    async def _live(self, ordinal: int) -> None:
        """Run one process, from its start until it has been reaped."""
        try:
            process, channel = await self._spawn(ordinal)
        except OSError as reason:
            limited.error(
                f"{self.name} start", "process cannot be started", name=self.name, error=reason.strerror
            )
            return
        self._process, self._channel, self.pid = process, channel, process.pid
        self._failed = None
        self._on_change()
        if self._stopping.is_set():
            await channel.send(Stop())
        await self._watch(channel)
        status = await self._until_dead(process)
        await channel.close()
        self._reserve.refill()
        self._forget()
        self._report_end(status)

    def _report_end(self, status: int) -> None:
        """Log how it ended; if that happens again and again, as one condition that lasts."""
        if self._stopping.is_set() and status == 0:
            structlog.get_logger().info("process stopped", name=self.name, pid=self.pid)
            return
        action = "none" if self._stopping.is_set() else "replaced"
        fields = {"name": self.name, "pid": self.pid, "how": _how(status), "action": action}
        if self._failed:
            fields |= {"error": self._failed.error, "raised_at": self._failed.raised_at}
        if self.ends.count < TOLD_MIN - 1:
            structlog.get_logger().warning("process ended by itself", **fields)
        else:
            limited.error(f"{self.name} ends", "process ends again and again", **fields)

    async def _spawn(self, ordinal: int) -> tuple[subprocess.Popen[bytes], ChildChannel]:
        """Start a process in its own process group: the supervisor decides what a terminal's Ctrl-C means."""
        role = self._role
        with self._reserve.lent():
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    process = self._popen(theirs.fileno())
                except BaseException:
                    ours.close()
                    raise
        channel = await ChildChannel.from_socket(ours)
        await channel.send(Start(self.name, self._settings, role.listen_fd, ordinal, role.last_good()))
        return process, channel

    def _popen(self, channel_fd: int) -> subprocess.Popen[bytes]:
        role = self._role
        command = [sys.executable, "-m", role.module, "--channel-fd", str(channel_fd)]
        return subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(channel_fd, role.listen_fd, role.lock_fd, *role.sibling_fds),
            process_group=0,
            env={**environment(os.environ), **role.environ},
        )

    async def _watch(self, channel: ChildChannel) -> None:
        """Follow its messages until it closes the channel, or is silent for too long."""
        while True:
            patience_s = self._patience.silence_s if self.is_ready else self._patience.start_s
            try:
                async with asyncio.timeout(patience_s):
                    message = await channel.receive()
            except TimeoutError:
                structlog.get_logger().error(
                    "process hangs", name=self.name, silent_s=patience_s, action="killed"
                )
                self._kill()
                return
            except msgspec.DecodeError:
                structlog.get_logger().error(
                    "process sent an unreadable message", name=self.name, action="killed"
                )
                self._kill()
                return
            if message is None:
                return
            self._heard(message)

    def _heard(self, message: object) -> None:
        self._heard_at_s = time.monotonic()
        if isinstance(message, Ready):
            self.is_ready = True
            self._on_change()
        elif isinstance(message, Sealed):
            self._sealed.set()
        elif isinstance(message, Failed):
            self._failed = message
        elif isinstance(message, Report):
            self._health, self._reported = message.health, message.metrics

    async def _until_dead(self, process: subprocess.Popen[bytes]) -> int:
        """Reap it; kill it first if it does not end. Return its exit status.

        Polled, because it has closed its channel and so is about to end, and a look costs no descriptor.
        """
        deadline_s = time.monotonic() + self._patience.exit_s
        while (status := process.poll()) is None:
            if time.monotonic() > deadline_s:
                self._kill()
            await asyncio.sleep(POLL_S)
        return status

    def _forget(self) -> None:
        """Keep what it counted, drop what it reported."""
        if self._reported:
            self._retired = carried_over(self._reported, self._retired)
        self._process = self._channel = self._reported = None
        self._health = {}
        self.is_ready = False
        self._accepts_for = frozenset()
        self._sealed.set()
        self._on_change()


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what systemd says to the supervisor alone, and with how memory is kept."""
    ours_alone = {
        "LISTEN_PID",
        "LISTEN_FDS",
        "LISTEN_FDNAMES",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
    }
    return KEPT_MEMORY | {name: value for name, value in own.items() if name not in ours_alone}


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"
