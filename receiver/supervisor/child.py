"""Child process of the supervisor. It is started, monitored, and replaced when it exits or hangs.

Invariant: a process is replaced only after it was reaped, so two processes never work on the same data.
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
from itertools import chain, count

import msgspec
import structlog

from receiver.backoff import backoff_s
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
    ShowRefusals,
    Start,
    Stop,
)
from receiver.logs import limited
from receiver.metrics import Metrics, Snapshot, carried_over
from receiver.refusals import RefusalBook
from receiver.settings import Settings
from receiver.supervisor.child_command import environment, import_options
from receiver.supervisor.restart_history import REPORTED_MIN, RestartHistory
from receiver.supervisor.sockets import DescriptorReserve


@dataclass(frozen=True)
class Patience:
    silence_s: float = 30.0
    """Time without a report after which a ready process counts as hung."""
    start_s: float = 120.0
    """The same timeout before the process is ready, when loading the engine may take long."""
    head_start_s: float = 2.0
    """Maximum time for the intakes to become ready before the store process is started."""
    exit_s: float = 5.0
    """Maximum time between the closing of the channel and the exit of the process."""
    steady_s: float = 60.0
    """Run time after which the restart backoff is reset."""
    quiet_s: float = 3.0
    """Time without a report after which the other intakes also accept connections of this intake."""
    seal_s: float = 2.0
    """Maximum time for an intake to seal its open segment before the store process is stopped."""


@dataclass(frozen=True)
class Role:
    """Command, inherited descriptors and restart policy of a process."""

    name: str
    """`intake-0`, `store`."""
    module: str
    """Python module to run."""
    listen_fd: int
    lock_fd: int
    """Lock that the process inherits and holds until it exits."""
    last_good: Callable[[], Pems | None] = lambda: None
    """Returns the certificate that the process uses if the certificate files are invalid when it starts."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that override those of the supervisor."""
    sibling_fds: tuple[int, ...] = ()
    """Other listening sockets that the process inherits: of all intakes, for `AcceptFor`; see `Start`."""
    pause_s_max: float = 10.0
    """Longest pause before a restart."""


NO_FD, POLL_S = -1, 0.01
"""No listening socket, as the store process; poll interval for the exit of a process."""


def pauses_s(pause_s_max: float) -> Iterator[float]:
    """Return the pauses before successive restarts; the first is 0."""
    return chain([0.0], backoff_s(0.2, pause_s_max))


class Child:
    def __init__(  # noqa: PLR0913 - dependencies that all processes share
        self,
        role: Role,
        settings: Settings,
        metrics: Metrics,
        on_change: Callable[[], None],
        patience: Patience | None = None,
        *,
        reserve: DescriptorReserve | None = None,
        origins: Mapping[str, str] | None = None,
        refusals: RefusalBook | None = None,
    ) -> None:
        self.name = role.name
        self.pid = 0
        self.is_ready = False
        self._role = role
        self._settings, self._origins = settings, dict(origins or {})
        self._metrics = metrics
        self._on_change = on_change
        self._patience = patience or Patience()
        self._reserve = reserve or DescriptorReserve()
        self._refusals, self._shown_version = refusals or RefusalBook(), 0
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: ChildChannel | None = None
        self._health: dict[str, str] = {}
        self._reported: Snapshot | None = None
        self._retired: Snapshot | None = None
        self._failure: Failed | None = None
        self.ends = RestartHistory(time.monotonic)
        self._stopping = asyncio.Event()
        self._sealed = asyncio.Event()
        self._last_message_at_s = 0.0
        self._accepts_for: frozenset[int] = frozenset()
        self._running: asyncio.Task[None] | None = None

    @property
    def health(self) -> dict[str, str]:
        """Return the process state, its recent exits and the checks of its last report."""
        running = "" if self.is_ready else "starting" if self._process else "not running"
        ends = self.ends.reason
        if ends and self._failure and not self._failure.raised_at:  # an exception may quote a sender
            ends += f": {self._failure.error}"
        return {"process": running, "ends": ends, "reports": self._silence_reason, **self._health}

    @property
    def _silence_reason(self) -> str:
        silent_s, patience = time.monotonic() - self._last_message_at_s, self._patience
        text = f"no report for {silent_s:.0f} s; killed after {patience.silence_s:.0f} s"
        return text if self.is_ready and silent_s >= patience.quiet_s else ""

    @property
    def listen_fd(self) -> int:
        return self._role.listen_fd

    @property
    def is_accepting(self) -> bool:
        """Return whether the process accepts connections, judged by the age of its last report."""
        return self.is_ready and not self._silence_reason

    @property
    def snapshots(self) -> list[Snapshot]:
        """Return the metrics of this process and of those that it replaced."""
        return [snapshot for snapshot in (self._reported, self._retired) if snapshot]

    def start(self) -> asyncio.Task[None]:
        """Start the process and keep it running. The returned task ends after `stop` or with an exception."""
        self._running = asyncio.create_task(self._run())
        return self._running

    async def reload(self, message: Reload) -> None:
        """Send new settings to the process and use them for its replacements."""
        self._settings, self._origins = message.settings, message.origins
        if self._channel:
            await self._channel.send(message)

    async def accept_for(self, listen_fds: frozenset[int]) -> None:
        """Make the process accept from these sockets in addition to its own."""
        # Sent only when it changes, because this is called every second.
        if self._channel and self.is_ready and listen_fds != self._accepts_for:
            self._accepts_for = listen_fds
            await self._channel.send(AcceptFor(tuple(sorted(listen_fds))))

    def show_refusals(self) -> None:
        """Send the refusals of all processes if they have changed. Never waits for a process that hangs."""
        is_due = self.is_ready and self._refusals.version != self._shown_version
        if is_due and self._channel and self._channel.send_at_once(ShowRefusals(self._refusals.report())):
            self._shown_version = self._refusals.version

    async def seal(self) -> None:
        """Make the process seal its open segment, and wait for at most `seal_s`."""
        if not self._channel or not self.is_ready:
            # A process without `Ready` has acknowledged nothing, so it has nothing to seal.
            return
        self._sealed.clear()
        # A disk that hangs must not delay the stop: what is not sealed stays in the journal.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.seal_s):
                await self._channel.send(Seal())
                await self._sealed.wait()

    async def stop(self, grace_s: float) -> None:
        """Stop the process; kill it after `grace_s`."""
        self._stopping.set()
        if self._running is None:
            return
        if self._channel:
            await self._channel.send(Stop())
        done, _ = await asyncio.wait({self._running}, timeout=grace_s)
        if not done:
            structlog.get_logger().warning(
                "process did not stop within its grace period",
                name=self.name,
                pid=self.pid,
                grace_s=grace_s,
                action="killed; remaining data stays in the journal",
            )
            self._kill()
            await asyncio.wait({self._running})

    def end(self) -> None:
        """Kill the process and do not replace it."""
        self._stopping.set()
        self._kill()

    def _kill(self) -> None:
        if self._process and self._process.poll() is None:
            with suppress(ProcessLookupError):
                # The group, so that no process that it started survives it.
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _run(self) -> None:
        """Run the process and its replacements until stopped."""
        pauses = pauses_s(self._role.pause_s_max)
        for ordinal in count():
            began_s = time.monotonic()
            await self._run_process(ordinal)
            # A process that ran for long has recovered; its next exit starts with the shortest pause again.
            if time.monotonic() - began_s > self._patience.steady_s:
                pauses = pauses_s(self._role.pause_s_max)
            if not self._stopping.is_set():
                self._note_end()
                # The pause grows with each exit, so that a process that always crashes does not use up the
                # CPU.
                await self._pause(next(pauses))
            if self._stopping.is_set():
                return

    def _note_end(self) -> None:
        self._metrics.add("process_restarts", process=self.name)
        self.ends.note()

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    async def _run_process(self, ordinal: int) -> None:
        """Run one process from its start until it was reaped."""
        try:
            process, channel = await self._spawn(ordinal)
        except OSError as error:
            limited.error(
                f"{self.name} start", "process cannot be started", name=self.name, error=error.strerror
            )
            return
        self._process, self._channel, self.pid = process, channel, process.pid
        self._failure = None
        self._on_change()
        # `stop` may have been called while the process was being started, when there was no channel yet.
        if self._stopping.is_set():
            await channel.send(Stop())
        await self._watch(channel)
        status = await self._reap(process)
        await channel.close()
        self._reserve.refill()
        self._reset()
        self._report_end(status)

    def _report_end(self, status: int) -> None:
        """Log how the process exited. Repeated exits are logged as one lasting condition."""
        if self._stopping.is_set() and status == 0:
            structlog.get_logger().info("process stopped", name=self.name, pid=self.pid)
            return
        action = "none" if self._stopping.is_set() else "replaced"
        fields = {"name": self.name, "pid": self.pid, "exit": _exit_text(status), "action": action}
        if self._failure:
            fields |= {"error": self._failure.error, "raised_at": self._failure.raised_at}
        # The first exits are logged individually, with their causes; a crash loop must not fill the log.
        if self.ends.count < REPORTED_MIN - 1:
            structlog.get_logger().warning("process exited unexpectedly", **fields)
        else:
            limited.error(f"{self.name} ends", "process exits repeatedly", **fields)

    async def _spawn(self, ordinal: int) -> tuple[subprocess.Popen[bytes], ChildChannel]:
        """Start a process in its own process group: Ctrl-C in a terminal must reach only the supervisor."""
        role = self._role
        # Starting a process needs descriptors, and connections may use all that are not reserved.
        with self._reserve.released():
            ours, theirs = socket.socketpair()
            # Close our copy of the child's end: the channel must report the end when the child exits.
            with theirs:
                try:
                    process = self._popen(theirs.fileno())
                except BaseException:
                    ours.close()
                    raise
        channel = await ChildChannel.from_socket(ours)
        # After the block: nothing may await while the reserve is free.
        sockets = role.listen_fd, ordinal, role.last_good(), role.sibling_fds
        await channel.send(Start(self.name, self._settings, *sockets, origins=self._origins))
        return process, channel

    def _popen(self, channel_fd: int) -> subprocess.Popen[bytes]:
        role = self._role
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, *import_options(), "-m", role.module, "--channel-fd", str(channel_fd)],
            stdin=subprocess.DEVNULL,
            pass_fds={channel_fd, role.listen_fd, role.lock_fd, *role.sibling_fds} - {NO_FD},
            process_group=0,
            env={**environment(os.environ), **role.environ},
        )

    async def _watch(self, channel: ChildChannel) -> None:
        """Handle messages until the process closes the channel; kill it if it is silent for too long."""
        while True:
            timeout_s = self._patience.silence_s if self.is_ready else self._patience.start_s
            try:
                async with asyncio.timeout(timeout_s):
                    message = await channel.receive()
            except TimeoutError:
                structlog.get_logger().error(
                    "process sends no reports", name=self.name, silent_s=timeout_s, action="killed"
                )
                # SIGKILL: a process too stuck to send reports would not handle a request to stop.
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
            self._handle_message(message)

    def _handle_message(self, message: object) -> None:
        self._last_message_at_s = time.monotonic()
        if isinstance(message, Ready):
            self.is_ready = True
            self._on_change()
        elif isinstance(message, Sealed):
            self._sealed.set()
        elif isinstance(message, Failed):
            self._failure = message
        elif isinstance(message, Report):
            self._health, self._reported = message.health, message.metrics
            self._refusals.add(message.refusals)

    async def _reap(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the process to exit, kill it after `exit_s`, and return its exit status.

        It polls: the process has closed its channel and exits soon, and polling needs no descriptor.
        """
        deadline_s = time.monotonic() + self._patience.exit_s
        while (status := process.poll()) is None:
            if time.monotonic() > deadline_s:
                self._kill()
            await asyncio.sleep(POLL_S)
        return status

    def _reset(self) -> None:
        """Add the metrics of the process to those of its predecessors and clear its state."""
        # Counters must not decrease when a process is replaced, so its last values are kept.
        if self._reported:
            self._retired = carried_over(self._reported, self._retired)
        self._process = self._channel = self._reported = None
        self._health = {}
        self.is_ready = False
        # The replacement accepts only from its own socket until it gets a new `AcceptFor`.
        self._accepts_for = frozenset()
        self._shown_version = 0
        # A `seal` that waits for this process must not wait for its time-out.
        self._sealed.set()
        self._on_change()


def _exit_text(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
