"""The life of a child process, the same for intake and store: start message, reports, reload, stop.

    def main() -> None:
        process.run(begin)

    async def begin(start: Start, metrics: Metrics) -> Work: ...

`begin` sets everything up and returns the running `Work`; `Ready` is sent when it returns. A `Report` leaves
every second from the very start (`Work.health`, and whatever was counted in `metrics`), so a loop that is
blocked is a process that hangs: the supervisor kills it after 30 s of silence. `Work.stop` is awaited once:
on `Stop`, when the supervisor is gone, or on SIGTERM; then `Stopped` is sent and the process ends. It gets
`limits.stop_grace_s`, or `ORPHAN_GRACE_S` without a supervisor, because the next one waits for our locks.
SIGINT and SIGHUP are the supervisor's and ignored here.

Health checks: an intake's `journal` decides `/readyz`; all others are only shown.

Keeps: whatever `begin` or the work raises ends the process, so that it is replaced.
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
    AcceptFor,
    Channel,
    Failed,
    Ready,
    Reload,
    Report,
    Seal,
    Sealed,
    Start,
    Stop,
    Stopped,
    ToChild,
)
from receiver.errors import OperatorError, ReceiverError
from receiver.metrics import Metrics
from receiver.settings import Settings

REPORT_S = 1.0
ORPHAN_GRACE_S = 8.0
EXIT_FAILED = 1
GARBAGE_OBJECTS = 50_000
"""So many more objects than before are looked through for cycles."""


class Unfinished(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The grace is over and the work is not."""


class Work(Protocol):
    """What a process does between its start and its stop."""

    async def reload(self, settings: Settings) -> None:
        """Use these settings, where they can change while running; what cannot be used stays as it was."""

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        """Accept also from these sockets of other processes, and from no others. Sent to intakes only."""

    async def seal(self) -> None:
        """Make everything acknowledged so far readable by the writer. Sent to intakes only."""

    def health(self) -> dict[str, str]:
        """What is checked → `""` when fine, or the reason why not. Also the place to set gauges."""

    async def stop(self) -> None:
        """Take no more work, finish what is in flight, let go of everything."""


Begin = Callable[[Start, Metrics], Awaitable[Work]]


def run(begin: Begin) -> None:
    """Live as a child process: read `--channel-fd`, do the work until it is stopped, exit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel-fd", type=int, required=True)
    channel_fd: int = parser.parse_args().channel_fd
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exit_code = runner.run(live(channel_fd, begin))
        if exit_code:
            os._exit(exit_code)  # a thread that hangs would hold an ordinary exit, and our locks, for ever


async def live(channel_fd: int, begin: Begin) -> int:
    """Live until stopped. The exit code."""
    channel = await Channel.from_fd(channel_fd)
    start = await channel.receive()
    if not isinstance(start, Start):
        return 0
    logs.set_up(start.settings.log_format, process=start.name)
    try:
        await _Life(channel, start).run(begin)
    except OperatorError as reason:
        await channel.send(Failed(str(reason)))
        return EXIT_FAILED
    except Unfinished as reason:
        structlog.get_logger().warning("process ends before its work is finished", error=str(reason))
        return EXIT_FAILED
    except Exception as reason:  # noqa: BLE001 - whatever it is, the log must have it
        error = f"{type(reason).__name__}: {reason}"
        await channel.send(Failed(error, tuple(logs.raised_at(reason))))
        return EXIT_FAILED
    await channel.send(Stopped())
    await channel.close()
    return 0


class _Life:
    """One process from its start message on."""

    def __init__(self, channel: Channel, start: Start) -> None:
        self._channel = channel
        self._start = start
        self._metrics = Metrics(start.name)
        self._work: Work | None = None
        self._stop = asyncio.Event()
        self._is_orphan = False
        self._sealing: asyncio.Task[None] | None = None

    async def run(self, begin: Begin) -> None:
        """Work until told to stop. Raises what ends the work before that."""
        self._handle_signals()
        reporting = asyncio.create_task(self._report())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            self._work = await begin(self._start, self._metrics)
            settle_memory()
            await self._channel.send(Ready())
            listening = asyncio.create_task(self._listen(self._work))
            await first_of(stopping, listening, reporting)
            await self._finish(self._work)
            await self._send_report()
        finally:
            reporting.cancel()

    async def _finish(self, work: Work) -> None:
        grace_s = ORPHAN_GRACE_S if self._is_orphan else self._start.settings.limits.stop_grace_s
        try:
            async with asyncio.timeout(grace_s):
                await work.stop()
        except TimeoutError:
            raise Unfinished(f"not finished in {grace_s} s; the journal keeps the rest") from None

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    async def _listen(self, work: Work) -> None:
        """Follow the supervisor's messages until it sends `Stop` or is gone."""
        while (message := await self._channel.receive()) is not None:
            if isinstance(message, Stop):
                return
            await self._follow(work, message)
        self._is_orphan = True

    async def _follow(self, work: Work, message: ToChild) -> None:
        if isinstance(message, Reload):
            await work.reload(message.settings)
        elif isinstance(message, AcceptFor):
            work.accept_for(message.listen_fds)
        elif isinstance(message, Seal):
            self._sealing = asyncio.create_task(self._seal(work))

    async def _seal(self, work: Work) -> None:
        """Seal beside the messages: a disk that hangs must not hold up `Stop`."""
        await work.seal()
        await self._channel.send(Sealed())

    async def _report(self) -> None:
        while True:
            await self._send_report()
            logs.limited.flush()
            await asyncio.sleep(REPORT_S)

    async def _send_report(self) -> None:
        health = self._work.health() if self._work else {"start": "not ready yet"}
        await self._channel.send(Report(self._metrics.snapshot(), health))


def settle_memory() -> None:
    """Look for garbage seldom: nearly all of it goes by itself, and what is there now stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)


async def first_of(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of them ends; raise what it raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
