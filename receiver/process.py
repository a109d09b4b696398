"""Main loop of a child process, intake or store: start message, reports, reload, stop.

    def main() -> None:
        process.run(begin)

    async def begin(start: Start, metrics: Metrics) -> Work: ...

`begin` sets everything up and returns the running `Work`; then `Ready` is sent. From the start, the process
sends a `Report` every second (`Work.health` and the counts in `metrics`), so that the supervisor recognises a
blocked event loop: it kills a process that has sent nothing for 30 s. `Work.stop` is awaited once: on `Stop`,
on SIGTERM, or when the supervisor is gone; then the process sends `Stopped` and exits. Stopping may take
`limits.stop_grace_s`, or `ORPHAN_GRACE_S` without a supervisor, because the next supervisor waits for the
locks: after `ORPHAN_EXIT_S` a timer of the kernel ends the process, even if it hangs or is still starting.
SIGINT and SIGHUP are the supervisor's and ignored here.

Health checks: an intake's `journal` decides `/readyz`; all other checks are only shown.

Invariant: any exception from `begin` or the work ends the process, so that the supervisor replaces it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog
import uvloop

from receiver import logs
from receiver.channel import (
    ORPHAN_EXIT_S,
    ORPHAN_GRACE_S,
    REPORT_S,
    AcceptFor,
    Channel,
    Failed,
    Ready,
    Reload,
    Report,
    Seal,
    Sealed,
    ShowRefusals,
    Start,
    Stop,
    Stopped,
    ToChild,
)
from receiver.errors import OperatorError, ReceiverError
from receiver.metrics import Metrics
from receiver.refusals import refused

EXIT_FAILED = 1
GARBAGE_OBJECTS = 50_000
"""Number of new objects that starts a garbage collection. Far above Python's default, see `settle_memory`."""


class Unfinished(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The stop grace period ended before the work was finished."""


class Work(Protocol):
    """The work of a process between its start and its stop."""

    async def reload(self, message: Reload) -> None:
        """Apply the settings that can change at run time. Keeps the old value of an unusable setting."""

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        """Accept from exactly these sockets of other processes too. Sent to intakes only."""

    async def seal(self) -> None:
        """Make everything acknowledged so far readable by the writer. Sent to intakes only."""

    def health(self) -> dict[str, str]:
        """Return the problem of each check (empty if it passes), and set gauges. Called every second."""

    async def stop(self) -> None:
        """Accept no more work, finish the work in flight, and release all resources."""


Begin = Callable[[Start, Metrics], Awaitable[Work]]


def run(begin: Begin) -> None:
    """Run as a child process: read `--channel-fd`, work until stopped, exit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel-fd", type=int, required=True)
    channel_fd: int = parser.parse_args().channel_fd
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exit_code = runner.run(run_child(channel_fd, begin))
        if exit_code:
            os._exit(exit_code)  # A normal exit would wait for a thread that hangs, while our locks are held.


async def run_child(channel_fd: int, begin: Begin) -> int:
    """Work until stopped. Return the exit code."""
    channel = await Channel.from_fd(channel_fd)
    start = await channel.receive()
    # The supervisor exited before it sent anything.
    if not isinstance(start, Start):
        return 0
    logs.set_up(start.settings.log_format, process=start.name)
    try:
        await _ChildProcess(channel, start).run(begin)
    except OperatorError as error:
        await channel.send(Failed(str(error)))
        return EXIT_FAILED
    except Unfinished as error:
        structlog.get_logger().warning("process ends before its work is finished", error=str(error))
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - every failure must be logged
        text = f"{type(error).__name__}: {error}"
        await channel.send(Failed(text, tuple(logs.raised_at(error))))
        return EXIT_FAILED
    await channel.send(Stopped())
    await channel.close()
    return 0


class _ChildProcess:
    def __init__(self, channel: Channel, start: Start) -> None:
        self._channel = channel
        self._start = start
        self._metrics = Metrics(start.name)
        self._work: Work | None = None
        self._stop = asyncio.Event()
        self._supervisor_pid = os.getppid()
        self._is_orphan = False
        self._sealing: asyncio.Task[None] | None = None

    async def run(self, begin: Begin) -> None:
        """Work until stopped. Raises the exception that ends the work earlier."""
        self._handle_signals()
        # Before `begin`, which may take long: the supervisor kills a process that is silent for 30 s.
        reporting = asyncio.create_task(self._report())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            self._work = await begin(self._start, self._metrics)
            # After all imports, which create most of the long-lived objects.
            settle_memory()
            await self._channel.send(Ready())
            listening = asyncio.create_task(self._listen(self._work))
            # Reporting never ends by itself; it is awaited because an error in `health` must end the process.
            await first_completed(stopping, listening, reporting)
            await self._finish(self._work)
            # The counts since the last report would be missing in the supervisor's totals.
            await self._send_report()
        finally:
            reporting.cancel()

    async def _finish(self, work: Work) -> None:
        # Without a supervisor, the next one already waits for our locks.
        grace_s = ORPHAN_GRACE_S if self._is_orphan else self._start.settings.limits.stop_grace_s
        try:
            async with asyncio.timeout(grace_s):
                await work.stop()
        except TimeoutError:
            raise Unfinished(f"not finished in {grace_s} s; the journal keeps the rest") from None

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        # A terminal sends these to all processes, but the supervisor decides what they mean.
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    async def _listen(self, work: Work) -> None:
        """Handle the supervisor's messages until it sends `Stop` or is gone."""
        while (message := await self._channel.receive()) is not None:
            if isinstance(message, Stop):
                return
            await self._follow(work, message)
        self._become_orphan()

    def _become_orphan(self) -> None:
        """Let the kernel end this process in time: the next supervisor already waits for its locks."""
        if not self._is_orphan:
            self._is_orphan = True
            signal.setitimer(signal.ITIMER_REAL, ORPHAN_EXIT_S)

    async def _follow(self, work: Work, message: ToChild) -> None:
        if isinstance(message, Reload):
            await work.reload(message)
        elif isinstance(message, AcceptFor):
            work.accept_for(message.listen_fds)
        elif isinstance(message, ShowRefusals):
            refused.report = message.report
        elif isinstance(message, Seal):
            self._sealing = asyncio.create_task(self._seal(work))

    async def _seal(self, work: Work) -> None:
        """Seal in a task of its own, so that a disk that hangs does not delay `Stop`."""
        await work.seal()
        await self._channel.send(Sealed())

    async def _report(self) -> None:
        while True:
            # The channel is not read while the process is starting.
            if os.getppid() != self._supervisor_pid:
                self._become_orphan()
            await self._send_report()
            logs.limited.flush()
            await asyncio.sleep(REPORT_S)

    async def _send_report(self) -> None:
        health = self._work.health() if self._work else {"start": "not ready yet"}
        await self._channel.send(Report(self._metrics.snapshot(), health, refused.take()))


def settle_memory() -> None:
    """Make garbage collections rare: reference counting frees nearly all objects."""
    # Collected first, because garbage that is frozen would never be freed.
    # `freeze` exempts everything that exists now: it lives until the exit, so scanning it again is wasted
    # time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)


async def first_completed(*tasks: asyncio.Task[Any]) -> None:
    """Wait until the first task ends; raise its exception, if any."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
