"""Streaming: passes pieces of a blocking iterator in a thread to the event loop, not slowed by the reader.

Invariant: a query runs in one thread from its first row to its last, and ends if the reader disconnects. An
    exception in the thread is raised after the pieces that precede it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from receiver.api.spool import Spool, SpoolSpace


@asynccontextmanager
async def stream_from_thread(
    pool: ThreadPoolExecutor, space: SpoolSpace, ask: Callable[[], Iterator[bytes]]
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Call `ask` in a thread of the pool and yield an iterator of the pieces that it returns."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()

    def finished(asking: asyncio.Future[None]) -> None:
        arrived.set()
        if not asking.cancelled():
            asking.exception()  # marks it as retrieved if the reader has gone

    with Spool(space) as spool:
        asking = loop.run_in_executor(pool, _run, ask, spool, lambda: loop.call_soon_threadsafe(arrived.set))
        asking.add_done_callback(finished)
        try:
            yield _pieces(spool, arrived, asking)
        finally:
            asking.cancel()


def _run(ask: Callable[[], Iterator[bytes]], spool: Spool, notify: Callable[[], object]) -> None:
    lines: Iterator[bytes] = iter(())
    try:
        lines = ask()
        for piece in lines:
            if not spool.append(piece):
                return
            notify()
    finally:
        if isinstance(lines, Generator):
            lines.close()


async def _pieces(spool: Spool, arrived: asyncio.Event, asking: asyncio.Future[None]) -> AsyncIterator[bytes]:
    while True:
        arrived.clear()
        is_over = asking.done()
        piece = await asyncio.to_thread(spool.take)
        if piece is not None:
            yield piece
        elif is_over:
            asking.result()
            return
        else:
            await arrived.wait()
