"""Worker thread: runs calls for an event loop, one after another.

`ThreadPoolExecutor` adds a lock and a second future to each call. For a group of small deliveries, these cost
as much as the transcoding.
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
    """A daemon thread with a queue of calls."""

    def __init__(self, name: str) -> None:
        # Without a size limit: `put` is called by the event loop and must not block.
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        # A daemon thread: a disk that hangs must not prevent the exit of the process.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Queue a call and return the future of its result."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._tasks.put((done, lambda: call(*args, **named)))
        return done

    def stop(self) -> None:
        """End the thread after all queued calls."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            done, call = task
            try:
                result, failure = call(), None
            except BaseException as error:  # noqa: BLE001 - raised from the future
                result, failure = None, error
            with suppress(RuntimeError):  # the event loop is closed: nothing awaits the future
                done.get_loop().call_soon_threadsafe(_complete, done, result, failure)
            # Otherwise these names would keep the last body and record in memory until the next call.
            del task, done, call, result, failure


def _complete(done: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    # The waiting task was cancelled.
    if done.done():
        return
    if failure is None:
        done.set_result(result)
    else:
        done.set_exception(failure)
