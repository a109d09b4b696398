"""Streaming: runs a blocking query in a thread and passes its output to the event loop.

A slow reader does not slow the query: unread output waits in a spool.

Invariant: a query runs in one thread from its first row to its last. If the reader disconnects, its
    statement is cancelled, even before the first row. An exception in the thread is raised after the pieces
    that precede it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from receiver.console.api.query_queue import CLIENT_CHECK_S
from receiver.console.api.spool import Spool, SpoolSpace
from receiver.errors import ReceiverError

CANCEL_AGAIN_S = 0.5
LOST_AFTER_S = 10.0
"""Time after its cancellation from which on a query that has not ended is lost."""

_cancellations: set[asyncio.Task[None]] = set()
"""Keeps the tasks alive: the event loop has only weak references."""


@asynccontextmanager
async def stream_from_thread(  # noqa: PLR0913 - the callbacks are named at the call
    pool: ThreadPoolExecutor,
    space: SpoolSpace,
    query: Callable[[], Iterator[bytes]],
    *,
    cancel: Callable[[], object],
    is_abandoned: Callable[[], bool],
    on_end: Callable[[], object] = lambda: None,
    on_lost: Callable[[], object] = lambda: None,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Run `query` in a thread of the pool and yield an asynchronous iterator over its output.

    `cancel`: makes the running statement of the query fail; blocks. `is_abandoned`: the client has gone.
    `on_end`: called in the event loop when the thread is done, which may be after the client has gone.
    `on_lost`: called in the event loop if the thread does not end `LOST_AFTER_S` after its cancellation.
    """
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()

    def finished(running_query: asyncio.Future[None]) -> None:
        arrived.set()
        if not running_query.cancelled():
            running_query.exception()  # avoids "exception was never retrieved" if the reader has gone

    with Spool(space) as spool:
        thread = pool.submit(_run, query, spool, lambda: loop.call_soon_threadsafe(arrived.set))
        # On the thread's own future: `running_query` counts as done as soon as it is cancelled, while the
        # thread and its statement continue.
        thread.add_done_callback(lambda _: _call_in_loop(loop, on_end))
        running_query = asyncio.wrap_future(thread)
        running_query.add_done_callback(finished)
        try:
            yield _pieces(spool, arrived, running_query, is_abandoned)
        finally:
            # A query that still waits for a thread of the pool never starts.
            running_query.cancel()
            if not thread.done():
                # A separate task, because this task may be cancelled already and must not wait for the
                # engine.
                _cancellations.add(cancelling := asyncio.create_task(_cancel(thread, cancel, on_lost)))
                cancelling.add_done_callback(_cancellations.discard)


def _call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    # The loop may be closed already when the process stops.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


async def _cancel(thread: Future[None], cancel: Callable[[], object], on_lost: Callable[[], object]) -> None:
    """Cancel the statements of a query until its thread ends: it may start another statement meanwhile."""
    lost_at_s, is_lost = time.monotonic() + LOST_AFTER_S, False
    while not thread.done():
        if not is_lost and time.monotonic() >= lost_at_s:
            is_lost = True
            on_lost()
        # The store may be unreachable; the next round tries again.
        with suppress(ReceiverError):
            await asyncio.to_thread(cancel)
        await asyncio.sleep(CANCEL_AGAIN_S)


def _run(query: Callable[[], Iterator[bytes]], spool: Spool, notify: Callable[[], object]) -> None:
    lines: Iterator[bytes] = iter(())
    try:
        lines = query()
        for piece in lines:
            # The reader has gone.
            if not spool.append(piece):
                return
            notify()
    finally:
        if isinstance(lines, Generator):
            # Here and not by the garbage collector: the query ends its statement in the thread that began it.
            lines.close()


async def _pieces(
    spool: Spool,
    arrived: asyncio.Event,
    running_query: asyncio.Future[None],
    is_abandoned: Callable[[], bool],
) -> AsyncIterator[bytes]:
    while True:
        # Both statements precede `take`: a piece that arrives during `take` must wake this task, and a query
        # that ends during `take` may have added a last piece.
        arrived.clear()
        is_over = running_query.done()
        # In a thread, because it may read the disk, and waits while the query writes to the disk.
        piece = await asyncio.to_thread(spool.take)
        if piece is not None:
            yield piece
        elif is_over:
            running_query.result()
            return
        else:
            with suppress(TimeoutError):
                # A query without output for a long time would not notice otherwise that its client has gone.
                await asyncio.wait_for(arrived.wait(), CLIENT_CHECK_S)
            if is_abandoned():
                raise ConnectionResetError("the client closed the connection")
