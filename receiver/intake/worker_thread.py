"""One thread that does one thing after another for an event loop.

What the standard library's executor does beside that, a lock and a future of its own for each call, cost a
group of small deliveries as much as its transcoding.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Task = tuple[asyncio.Future[Any], Callable[[], Any]]


class WorkerThread:
    """The thread. It goes with the process."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def do(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Do this after everything that was asked for before."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._tasks.put((done, lambda: call(*args, **named)))
        return done

    def rest(self) -> None:
        """Let the thread end once it has done everything."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            done, call = task
            try:
                result, failure = call(), None
            except BaseException as reason:  # noqa: BLE001 - whoever waits has it raised
                result, failure = None, reason
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                done.get_loop().call_soon_threadsafe(_tell, done, result, failure)
            del task, done, call, result, failure


def _tell(done: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(result)
    else:
        done.set_exception(failure)
