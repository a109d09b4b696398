"""Reader of the store: runs the queries of requests, each in a thread, when its queue admits it.

Invariant: no other part of the API holds the store. Each query receives it as an argument, so it has the
    limits of its queue, reads only spans of the caller's projects, and is cancelled when its client
    disconnects.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from receiver.console.api.query_queue import QueryQueue, Queues
from receiver.console.api.spool import SpoolSpace
from receiver.console.api.streaming import stream_from_thread
from receiver.console.queries.projects import table_filters
from receiver.engine.store import Store
from receiver.http.peer import network_of

OUTLINES_MAX = 2
"""Maximum number of traces whose spans are in memory at once: up to 300 MB each. Further requests wait."""

PREPARED_MAX = 4
"""Maximum number of prepared answers. While there are as many, a script reads the trace again."""
PREPARED_S = 10.0
"""Time after which a prepared answer is dropped. A script requests it as soon as its page is loaded."""

PreparedKey = tuple[str, tuple[str, ...]]
"""Id of a trace, and the projects that the caller may see; empty for all projects."""
Query = Callable[[Store], Iterator[bytes]]
"""Runs statements and yields the pieces of an answer; blocks."""


class Prepared:
    """Answers that a page has computed for its script, each for one request of a caller with equal rights."""

    def __init__(self) -> None:
        self._answers: dict[PreparedKey, asyncio.Future[bytes]] = {}

    def put(self, key: PreparedKey, compute: Callable[[], bytes]) -> None:
        """Compute an answer in a thread, and keep it for `PREPARED_S`."""
        self._answers.pop(key, None)
        # An older answer is not dropped instead: its thread would still hold the spans of its trace.
        if len(self._answers) >= PREPARED_MAX:
            return
        loop = asyncio.get_running_loop()
        answer = self._answers[key] = loop.run_in_executor(None, compute)
        loop.call_later(PREPARED_S, self._drop, key, answer)

    async def take(self, key: PreparedKey) -> bytes | None:
        """Remove and return an answer; `None` if there is none."""
        answer = self._answers.pop(key, None)
        return None if answer is None else await answer

    def _drop(self, key: PreparedKey, answer: asyncio.Future[bytes]) -> None:
        if self._answers.get(key) is answer:
            del self._answers[key]


@dataclass(frozen=True, slots=True)
class Reader:
    """The store, and the limits of its queries."""

    store: Store
    pool: ThreadPoolExecutor
    """Threads for queries, which may take a minute: `QUERIES_MAX`, so that a slot never waits."""
    space: SpoolSpace
    queues: Queues
    allows_sql: bool
    outlines: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OUTLINES_MAX))
    """A slot for each trace whose spans are in memory."""
    prepared: Prepared = field(default_factory=Prepared)

    @asynccontextmanager
    async def stream(
        self, request: web.Request, queue: QueryQueue, query: Query, projects: Sequence[str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Run a query in a thread, once the queue admits it. A client that leaves cancels its statements.

        All statements of the query read only spans of these projects; empty means all projects.
        """
        caller, filters = network_of(request.remote), table_filters(projects)

        def is_abandoned() -> bool:
            return request.transport is None or request.transport.is_closing()

        await queue.enter(caller, is_abandoned)
        lost_at_s: float | None = None
        mark = f"trace-drain-api-{secrets.token_hex(8)}"

        def marked_query() -> Iterator[bytes]:
            with self.store.marked(mark, filters):
                yield from query(self.store)

        def lose() -> None:
            nonlocal lost_at_s
            lost_at_s = queue.lose(caller)

        async with stream_from_thread(
            self.pool,
            self.space,
            marked_query,
            cancel=lambda: self.store.cancel(mark),
            is_abandoned=is_abandoned,
            on_end=lambda: queue.leave(caller, lost_at_s),
            on_lost=lose,
        ) as pieces:
            yield pieces
