"""From a blocking iterator in a thread to the event loop, at the reader's pace.

Keeps: one question lives in one thread from its first row to its last; a reader who leaves ends it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

PIECES_AHEAD = 4
"""Pieces that are read before the reader takes them."""

_Item = bytes | Exception | None


@asynccontextmanager
async def pumped(
    pool: ThreadPoolExecutor, ask: Callable[[], Iterator[bytes]]
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Ask in a thread of the pool; give the pieces here. What goes wrong there is raised here."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[_Item] = asyncio.Queue(PIECES_AHEAD)
    gone = threading.Event()

    def put(item: _Item) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    asking = loop.run_in_executor(pool, _run, ask, put, gone)
    try:
        yield _pieces(queue)
    finally:
        gone.set()
        while not asking.done():
            _empty(queue)
            await asyncio.wait({asking}, timeout=0.01)


def _run(ask: Callable[[], Iterator[bytes]], put: Callable[[_Item], None], gone: threading.Event) -> None:
    lines: Iterator[bytes] = iter(())
    try:
        lines = ask()
        for piece in lines:
            if gone.is_set():
                return
            put(piece)
    except Exception as error:  # noqa: BLE001 - it is raised again where the answer is made
        put(error)
    else:
        put(None)
    finally:
        if isinstance(lines, Generator):
            lines.close()


async def _pieces(queue: asyncio.Queue[_Item]) -> AsyncIterator[bytes]:
    while (item := await queue.get()) is not None:
        if isinstance(item, Exception):
            raise item
        yield item


def _empty(queue: asyncio.Queue[_Item]) -> None:
    while not queue.empty():
        queue.get_nowait()
