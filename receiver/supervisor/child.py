"""One process of the receiver: spawned, watched, replaced when it ends or hangs, until it is told to stop.

Keeps: a process is replaced only once the old one is known dead, so that two never work on the same thing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count, repeat

import msgspec
import structlog

from receiver.channel import ChildChannel, Pems, Ready, Reload, Report, Start, Stop
from receiver.metrics import Metrics, Snapshot, carried_over
from receiver.settings import MIB, Settings
from receiver.supervisor.ends import Ends

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
    """What it is told, whatever we were."""


def backoff_s() -> Iterator[float]:
    """Pauses before a process is started again: none the first time, 10 s at most."""
    return chain([0.0, 0.2, 0.5, 1.0, 2.0, 5.0], repeat(10.0))


class Child:
    """One process and whoever replaces it."""

    def __init__(
        self,
        role: Role,
        settings: Settings,
        metrics: Metrics,
        on_change: Callable[[], None],
        patience: Patience | None = None,
    ) -> None:
        self.name = role.name
        self.pid = 0
        self.is_ready = False
        self._role = role
        self._settings = settings
        self._metrics = metrics
        self._on_change = on_change
        self._patience = patience or Patience()
        self._process: Process | None = None
        self._channel: ChildChannel | None = None
        self._health: dict[str, str] = {}
        self._reported: Snapshot | None = None
        self._retired: Snapshot | None = None
        self.ends = Ends(time.monotonic)
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def health(self) -> dict[str, str]:
        """What it last said, and whether it runs at all."""
        running = "" if self.is_ready else "starting" if self._process else "not running"
        return {"process": running, "ends": self.ends.reason, **self._health}

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

    async def stop(self, grace_s: float) -> None:
        """Let it finish; what takes longer is killed."""
        self._stopping.set()
        if self._running is None:
            return
        if self._channel:
            await self._channel.send(Stop())
        done, _ = await asyncio.wait({self._running}, timeout=grace_s)
        if not done:
            structlog.get_logger().warning("process does not stop; killed", name=self.name, grace_s=grace_s)
            self._kill()
            await asyncio.wait({self._running})

    def end(self) -> None:
        """Kill it, and do not replace it."""
        self._stopping.set()
        self._kill()

    def _kill(self) -> None:
        """With whatever it started."""
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _run(self) -> None:
        """One process after the other, until stopped."""
        pauses_s = backoff_s()
        for ordinal in count():
            began_s = time.monotonic()
            await self._live(ordinal)
            if time.monotonic() - began_s > self._patience.steady_s:
                pauses_s = backoff_s()
            if not self._stopping.is_set():
                self._note_end()
                await self._pause(next(pauses_s))
            if self._stopping.is_set():
                return

    def _note_end(self) -> None:
        self._metrics.add("process_restarts", process=self.name)
        self.ends.note()
        if self.ends.reason:
            structlog.get_logger().error("process ends again and again", name=self.name, how=self.ends.reason)

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    async def _live(self, ordinal: int) -> None:
        """The life of one process, from its start until it is known dead."""
        log = structlog.get_logger()
        try:
            process, channel = await self._spawn(ordinal)
        except OSError as reason:
            log.error("process cannot be started", name=self.name, why=reason.strerror)
            return
        self._process, self._channel, self.pid = process, channel, process.pid
        self._on_change()
        if self._stopping.is_set():
            await channel.send(Stop())
        await self._watch(channel)
        status = await self._until_dead(process)
        await channel.close()
        self._forget()
        tell = log.info if self._stopping.is_set() and status == 0 else log.warning
        tell("process ended", name=self.name, pid=self.pid, how=_how(status))

    async def _spawn(self, ordinal: int) -> tuple[Process, ChildChannel]:
        """Its own process group: what a terminal's Ctrl-C means is the supervisor's to decide."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._role.module,
                "--channel-fd",
                str(theirs.fileno()),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(), self._role.listen_fd, self._role.lock_fd),
                process_group=0,
                env={**environment(os.environ), **self._role.environ},
            )
        channel = await ChildChannel.from_socket(ours)
        role = self._role
        await channel.send(Start(self.name, self._settings, role.listen_fd, ordinal, role.last_good()))
        return process, channel

    async def _watch(self, channel: ChildChannel) -> None:
        """Hear what it says until it is silent for good, or for too long."""
        while True:
            patience_s = self._patience.silence_s if self.is_ready else self._patience.start_s
            try:
                async with asyncio.timeout(patience_s):
                    message = await channel.receive()
            except TimeoutError:
                structlog.get_logger().error("process hangs; killed", name=self.name, silent_s=patience_s)
                self._kill()
                return
            except msgspec.DecodeError:
                structlog.get_logger().error("process does not speak our language; killed", name=self.name)
                self._kill()
                return
            if message is None:
                return
            self._heard(message)

    def _heard(self, message: object) -> None:
        if isinstance(message, Ready):
            self.is_ready = True
            self._on_change()
        elif isinstance(message, Report):
            self._health, self._reported = message.health, message.metrics

    async def _until_dead(self, process: Process) -> int:
        """Its exit status. Known dead: `wait` has reaped it."""
        try:
            async with asyncio.timeout(self._patience.exit_s):
                return await process.wait()
        except TimeoutError:
            self._kill()
            return await process.wait()

    def _forget(self) -> None:
        """Keep what it counted, forget what it said."""
        if self._reported:
            self._retired = carried_over(self._reported, self._retired)
        self._process = self._channel = self._reported = None
        self._health = {}
        self.is_ready = False
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
