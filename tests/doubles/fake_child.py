"""Fake child process: answers every connection with its pid and executes commands.

A line on a connection is a command: `pid` (answer), `hang` (block the event loop), `crash`. Events are
appended to `DATA/events`. Files in `DATA` change the behaviour: `slow`, `stubborn`, `blocked` (a stop blocks
the event loop), `journal-is-full`, and `NAME-crashes`: the process NAME exits as soon as it starts, with the
reason in the file.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

from receiver import process
from receiver.channel import Reload, Start
from receiver.errors import OperatorError
from receiver.metrics import Metrics


class FakeWork:
    """Work of the fake child: runs until stopped, or never stops if the file `stubborn` exists."""

    def __init__(self, start: Start, metrics: Metrics) -> None:
        self._name = start.name
        self._directory = Path(start.settings.data_dir)
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._borrowed: dict[int, asyncio.Task[asyncio.Server]] = {}
        self.record_event(f"start {start.start_ordinal}")

    def record_event(self, event: str) -> None:
        with (self._directory / "events").open("a") as events:
            events.write(f"{self._name} {event}\n")

    def is_slow(self) -> bool:
        return self._name != "store" and (self._directory / "slow").exists()

    async def serve(self, listen_fd: int) -> None:
        listening = socket.socket(fileno=os.dup(listen_fd))
        self._server = await asyncio.start_server(self._answer, sock=listening, backlog=1024)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command = (await reader.readline()).decode().strip()
        if command == "crash":
            os._exit(3)
        if command == "hang":
            self.record_event("hangs")
            time.sleep(600)  # noqa: ASYNC251 - blocking the loop is the purpose
        self._metrics.add("deliveries", drain="default", status="200")
        writer.write(f"{os.getpid()}\n".encode())
        await writer.drain()
        writer.close()

    async def reload(self, message: Reload) -> None:
        self.record_event(f"reload {message.settings.post_root}")

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        for fd in self._borrowed.keys() - set(listen_fds):
            self._borrowed.pop(fd).add_done_callback(lambda serving: serving.result().close())
        for fd in set(listen_fds) - self._borrowed.keys():
            listening = socket.socket(fileno=os.dup(fd))
            serving = asyncio.start_server(self._answer, sock=listening, backlog=1024)
            self._borrowed[fd] = asyncio.create_task(serving)

    async def seal(self) -> None:
        self.record_event("seal")

    def health(self) -> dict[str, str]:
        full = self._directory / "journal-is-full"
        return {"journal": "8 GiB are in use" if full.exists() else "", "spare": ""}

    async def stop(self) -> None:
        self.record_event("stop")
        if (self._directory / "stubborn").exists():
            await asyncio.sleep(600)
        if (self._directory / "blocked").exists():
            time.sleep(600)  # noqa: ASYNC251 - blocking the loop is the purpose
        if self._server:
            self._server.close()
        self.record_event("stopped")


async def start_work(start: Start, metrics: Metrics) -> FakeWork:
    work = FakeWork(start, metrics)
    crashes = Path(start.settings.data_dir) / f"{start.name}-crashes"
    if crashes.exists():
        if reason := crashes.read_text():
            raise OperatorError(reason)
        os._exit(3)
    while work.is_slow():  # noqa: ASYNC110 - another process removes the file
        await asyncio.sleep(0.02)
    listen_fd, *_ = [*start.sibling_fds] if start.name == "store" else [start.listen_fd]
    await work.serve(listen_fd)
    return work


if __name__ == "__main__":
    process.run(start_work)
