"""Query queue: admits queries so that each caller gets its share of the threads.

A caller is a key of `network_of`. A free thread goes to the waiting caller with the fewest running queries;
callers with the same number take turns.

The engine looks for a cancellation between blocks of rows only, so a thread may run for a long time after its
query was cancelled. Such a query is lost: its slot is freed, but it counts against its caller until it ends.

Only the end of the process ends a lost query: see `QueryQueue.has_expired`.

Invariant: a query occupies its slot until its thread has ended or is lost, also after its client has
    disconnected. At most `lost_max` queries are lost at once. Every wait ends: with a slot, at its time
    limit, or when the client disconnects.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple

from receiver.errors import CallerBusy, OperatorError, QueueFull
from receiver.logs import limited

CLIENT_CHECK_S = 0.5
"""How often a query that waits, or has no output yet, checks that its client is still connected."""

LOST_S_MAX = 300.0
"""Time after which the process exits because a lost query has not ended."""
EXHAUSTED_S_MAX = 60.0
"""The same if lost queries prevent every new one."""


class QueriesDoNotEnd(OperatorError):  # noqa: N818 - a verdict, as its base
    """Lost queries have not ended in time. The next process has none."""

    exit_code: ClassVar[int] = 1


class QueueLimits(NamedTuple):
    """Limits of a query queue."""

    running_max: int
    """Queries that run at once. Each needs a thread and memory."""
    running_per_caller_max: int
    waiting_per_caller_max: int
    """Above: 429."""
    waiting_max: int
    """Waiting queries of all callers. Above: 503."""
    waiting_s_max: float = 30.0
    """After this a waiting query is answered 503."""
    lost_max: int = 4
    """Lost queries, each with a thread that may use a core. At this number: 503 for every new query, until
    the store process is restarted: see `EXHAUSTED_S_MAX`."""

    @property
    def threads_max(self) -> int:
        """Return the maximum number of threads that the queries occupy."""
        return self.running_max + self.lost_max


HEAVY = QueueLimits(
    running_max=4,
    # One less than `running_max`, so that a caller with slow queries does not stop all others.
    running_per_caller_max=3,
    waiting_per_caller_max=16,
    waiting_max=128,
)
"""Limits of queries that may read a large part of the table."""
SHORT = QueueLimits(running_max=4, running_per_caller_max=3, waiting_per_caller_max=32, waiting_max=256)
"""Limits of queries that return a trace or a short list. They do not wait for heavy queries."""
SQL = QueueLimits(running_max=2, running_per_caller_max=1, waiting_per_caller_max=4, waiting_max=16)
"""Limits of SQL statements, whose cost is not known in advance."""
CLICKHOUSE = QueueLimits(
    running_max=2,
    # A dashboard queries all its panels at once, from one address.
    running_per_caller_max=2,
    waiting_per_caller_max=64,
    waiting_max=128,
)
"""Limits of the statements of ClickHouse's clients."""
QUERIES_MAX: Final = sum(limits.threads_max for limits in (HEAVY, SHORT, SQL, CLICKHOUSE))
"""Maximum number of concurrent queries, including lost queries. Each needs a thread and memory."""


class QueryQueue:
    """The running and the waiting queries. Only the event loop's thread uses it."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        self._lost_at_s: defaultdict[str, list[float]] = defaultdict(list)
        """Caller → times at which its queries were lost, by the monotonic clock."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """In the order of the callers' turns."""

    @property
    def waiting_count(self) -> int:
        """Return the number of waiting queries."""
        return sum(map(len, self._waiting.values()))

    @property
    def lost_count(self) -> int:
        """Return the number of lost queries."""
        return sum(map(len, self._lost_at_s.values()))

    @property
    def is_exhausted(self) -> bool:
        """Return whether lost queries prevent every new query."""
        return self.lost_count >= self._limits.lost_max

    @property
    def has_expired(self) -> bool:
        """Return whether the process has to exit because lost queries have not ended."""
        times_s = [time_s for times in self._lost_at_s.values() for time_s in times]
        now_s = time.monotonic()
        if self.is_exhausted and now_s - max(times_s) > EXHAUSTED_S_MAX:
            return True
        return bool(times_s) and now_s - min(times_s) > LOST_S_MAX

    async def enter(self, caller: str, is_abandoned: Callable[[], bool]) -> None:
        """Wait for a slot. Raises `CallerBusy`, `QueueFull`, or `ConnectionResetError` without a client."""
        self._check_lost(caller)
        turn = asyncio.get_running_loop().create_future()
        # Queued even if a slot is free, so that there is only one way to a slot and no query overtakes
        # another.
        self._waiting.setdefault(caller, deque()).append(turn)
        self._start_waiting()
        try:
            # The limits of waiting queries do not concern a query that runs at once.
            if not turn.done():
                self._check_lengths(caller)
                await self._wait(turn, is_abandoned)
        # Not only `Exception`: the server cancels the handler of a client that disconnects.
        except BaseException:
            # The query was admitted at the moment at which it stopped waiting.
            if turn.done():
                self.leave(caller)
            else:
                self._remove(caller, turn)
            raise

    def leave(self, caller: str, lost_at_s: float | None = None) -> None:
        """Free the slot of a query that has ended. `lost_at_s`: result of `lose`, which freed the slot."""
        if lost_at_s is not None:
            self._lost_at_s[caller].remove(lost_at_s)
            if not self._lost_at_s[caller]:
                del self._lost_at_s[caller]
        else:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]
        self._start_waiting()

    def lose(self, caller: str) -> float | None:
        """Free the slot of a query that does not end. Return the time; `None` if too many are lost."""
        if self.is_exhausted:
            return None
        lost_at_s = time.monotonic()
        self._lost_at_s[caller].append(lost_at_s)
        self.leave(caller)
        limited.error(
            "api: lost query",
            "query does not end although it was cancelled",
            peer=caller,
            action="the store process is restarted if it does not end",
        )
        return lost_at_s

    def _start_waiting(self) -> None:
        """Admit waiting queries to the free slots."""
        while self._running.total() < self._limits.running_max:
            free = [
                caller
                for caller in self._waiting
                if self._running[caller] + self._lost_of(caller) < self._limits.running_per_caller_max
            ]
            if not free:
                return
            # `min` returns the first of equals, and the dictionary is in the order of turns.
            caller = min(free, key=self._running.__getitem__)
            self._running[caller] += 1
            turns = self._waiting.pop(caller)
            turns.popleft().set_result(None)
            if turns:
                self._waiting[caller] = turns  # behind the other callers

    def _lost_of(self, caller: str) -> int:
        return len(self._lost_at_s.get(caller, ()))

    def _remove(self, caller: str, turn: asyncio.Future[None]) -> None:
        self._waiting[caller].remove(turn)
        if not self._waiting[caller]:
            del self._waiting[caller]

    def _check_lost(self, caller: str) -> None:
        """Raise if lost queries prevent a new query of the caller."""
        if self._lost_of(caller) >= self._limits.running_per_caller_max:
            raise CallerBusy(
                "an earlier query of this client was cancelled and does not end; retry when it has ended"
            )
        if self.is_exhausted:
            raise QueueFull(
                f"{self.lost_count} queries were cancelled and do not end; retry in "
                f"{EXHAUSTED_S_MAX:.0f} s, when the store process has been restarted"
            )

    def _check_lengths(self, caller: str) -> None:
        """Raise if the newest query of the caller must not wait."""
        if len(self._waiting[caller]) > self._limits.waiting_per_caller_max:
            raise CallerBusy(
                f"this client has {self._limits.waiting_per_caller_max} waiting queries already; "
                "expected fewer at once"
            )
        if self.waiting_count > self._limits.waiting_max:
            raise QueueFull(f"{self._limits.waiting_max} queries wait already; retry later")

    async def _wait(self, turn: asyncio.Future[None], is_abandoned: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._limits.waiting_s_max
        while not turn.done():
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                raise QueueFull(
                    f"the query waited {self._limits.waiting_s_max:.0f} s for others; retry later, "
                    "or narrow the queries that run"
                )
            if is_abandoned():
                raise ConnectionResetError("the client closed the connection")
            # `wait` and not `wait_for`, which would cancel the turn at its timeout.
            await asyncio.wait([turn], timeout=min(CLIENT_CHECK_S, left_s))


class Queues(NamedTuple):
    """The queues of the queries."""

    heavy: QueryQueue
    short: QueryQueue
    sql: QueryQueue
    clickhouse: QueryQueue

    @property
    def lost_count(self) -> int:
        """Return the number of lost queries."""
        return sum(queue.lost_count for queue in self)

    @property
    def trouble(self) -> str:
        """Return a description of lost queries; empty if there are none."""
        if not (count := self.lost_count):
            return ""
        return (
            f"{count} cancelled queries do not end, and each uses a thread; "
            f"the store process is restarted {LOST_S_MAX:.0f} s after the first of them"
        )

    def check(self) -> None:
        """Raise `QueriesDoNotEnd` if lost queries have not ended in time."""
        if any(queue.has_expired for queue in self):
            raise QueriesDoNotEnd(f"{self.lost_count} queries did not end although they were cancelled")


def default_queues() -> Queues:
    """Return queues with the documented limits."""
    return Queues(QueryQueue(HEAVY), QueryQueue(SHORT), QueryQueue(SQL), QueryQueue(CLICKHOUSE))
