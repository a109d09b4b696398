"""Tests of the query queue: fair turns, its limits, and its places."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest

from receiver.console.api.query_queue import (
    HEAVY,
    SQL,
    QueriesDoNotEnd,
    QueryQueue,
    QueueLimits,
    default_queues,
)
from receiver.errors import CallerBusy, QueueFull

ONE_PLACE = QueueLimits(1, 1, 100, 100, 3_600.0)


def connected() -> bool:
    return False


def disconnected() -> bool:
    return True


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


class Turns:
    """Queries that are admitted one after another; `order` has their callers."""

    def __init__(self, queue: QueryQueue) -> None:
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._queue = queue

    async def ask(self, caller: str) -> None:
        self.tasks.append(asyncio.create_task(self._ask(caller)))
        await settled()

    async def _ask(self, caller: str) -> None:
        await self._queue.enter(caller, connected)
        self.order.append(caller)

    async def finish(self, caller: str) -> None:
        self._queue.leave(caller)
        await settled()


async def test_callers_take_turns_however_many_queries_one_of_them_has() -> None:
    turns = Turns(QueryQueue(ONE_PLACE))
    for caller in "aaaaabbc":
        await turns.ask(caller)

    while len(turns.order) < 8:
        await turns.finish(turns.order[-1])

    assert "".join(turns.order) == "aabcabaa"


async def test_free_place_goes_to_the_caller_with_the_fewest_running_queries() -> None:
    turns = Turns(QueryQueue(QueueLimits(3, 3, 10, 10, 3_600.0)))
    for caller in "aabab":
        await turns.ask(caller)

    await turns.finish("b")

    assert "".join(turns.order) == "aabb"  # though a query of `a` came first


async def test_caller_at_its_limit_does_not_get_a_free_place() -> None:
    turns = Turns(QueryQueue(QueueLimits(3, 2, 10, 10, 3_600.0)))
    for caller in "aaab":
        await turns.ask(caller)
    assert "".join(turns.order) == "aab"

    await turns.finish("b")
    assert "".join(turns.order) == "aab"
    await turns.finish("a")
    assert "".join(turns.order) == "aaba"
    for task in turns.tasks:
        await task


async def test_caller_with_too_many_waiting_queries_is_refused_and_others_are_not() -> None:
    queue = QueryQueue(QueueLimits(1, 1, 2, 100, 3_600.0))
    turns = Turns(queue)
    for caller in "aaa":
        await turns.ask(caller)

    with pytest.raises(CallerBusy, match="2 waiting queries already"):
        await queue.enter("a", connected)
    await turns.ask("b")

    assert queue.waiting_count == 3
    await turns.finish("a")
    await turns.finish("a")
    assert "".join(turns.order) == "aab"
    for task in turns.tasks:
        task.cancel()


async def test_query_is_refused_if_too_many_wait_unless_it_can_start() -> None:
    queue = QueryQueue(QueueLimits(2, 1, 10, 1, 3_600.0))
    turns = Turns(queue)
    for caller in "aa":
        await turns.ask(caller)

    with pytest.raises(QueueFull, match="1 queries wait already"):
        await queue.enter("a", connected)
    await queue.enter("b", connected)

    assert queue.waiting_count == 1
    for task in turns.tasks:
        task.cancel()


async def test_query_that_waits_too_long_is_refused_and_leaves_the_queue() -> None:
    queue = QueryQueue(QueueLimits(1, 1, 10, 10, 0.01))
    await queue.enter("a", connected)

    with pytest.raises(QueueFull, match="waited 0 s for others"):
        await queue.enter("b", connected)

    assert queue.waiting_count == 0


async def test_waiting_query_leaves_the_queue_when_its_client_disconnects() -> None:
    queue = QueryQueue(ONE_PLACE)
    await queue.enter("a", connected)

    with pytest.raises(ConnectionResetError):
        await queue.enter("b", disconnected)

    assert queue.waiting_count == 0


async def test_lost_query_frees_its_slot_but_not_for_its_own_caller() -> None:
    queue = QueryQueue(ONE_PLACE)
    await queue.enter("a", connected)
    turns = Turns(queue)
    await turns.ask("b")
    assert turns.order == []

    lost_at_s = queue.lose("a")
    await settled()

    assert (turns.order, queue.lost_count) == (["b"], 1)
    with pytest.raises(CallerBusy, match="does not end"):
        await queue.enter("a", connected)
    await turns.finish("b")
    queue.leave("a", lost_at_s)
    await queue.enter("a", connected)
    assert queue.lost_count == 0


async def test_lost_queries_of_all_queues_are_reported() -> None:
    queues = default_queues()
    assert queues.trouble == ""

    await queues.sql.enter("a", connected)
    await queues.clickhouse.enter("a", connected)
    assert queues.sql.lose("a")
    assert queues.clickhouse.lose("a")

    assert queues.lost_count == 2
    assert queues.trouble.startswith("2 cancelled queries do not end")


async def test_no_query_is_admitted_while_too_many_are_lost() -> None:
    queue = QueryQueue(QueueLimits(2, 1, 10, 10, 3_600.0, lost_max=1))
    await queue.enter("a", connected)
    await queue.enter("b", connected)
    lost_at_s = queue.lose("a")

    with pytest.raises(QueueFull, match="1 queries were cancelled and do not end"):
        await queue.enter("c", connected)

    assert queue.lose("b") is None, "more threads than the pool has"
    queue.leave("a", lost_at_s)
    await queue.enter("c", connected)


@pytest.mark.parametrize(("callers", "seconds_max"), [("a", 300), ("abcd", 60)])
async def test_process_ends_if_lost_queries_do_not_end(
    monkeypatch: pytest.MonkeyPatch, callers: str, seconds_max: float
) -> None:
    queues, now_s = default_queues(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    for caller in callers:
        await queues.sql.enter(caller, connected)
        assert queues.sql.lose(caller) == now_s
    assert queues.sql.is_exhausted == (len(callers) == SQL.lost_max)

    now_s += seconds_max
    queues.check()
    now_s += 1
    with pytest.raises(QueriesDoNotEnd, match=f"{len(callers)} queries did not end"):
        queues.check()
    queues.sql.leave("a", 1_000.0)

    queues.check()


async def test_end_of_another_lost_query_does_not_delay_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues, now_s = default_queues(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    await queues.heavy.enter("a", connected)
    queues.heavy.lose("a")
    now_s += 200
    await queues.heavy.enter("a", connected)
    queues.heavy.leave("a", queues.heavy.lose("a"))

    now_s += 101

    with pytest.raises(QueriesDoNotEnd, match="1 queries did not end"):
        queues.check()


async def test_no_place_is_lost_whatever_ends_and_is_cancelled() -> None:
    rng = random.Random(3)
    limits = QueueLimits(3, 2, 1_000, 1_000, 3_600.0)
    queue = QueryQueue(limits)
    running: Counter[str] = Counter()

    async def query(caller: str) -> None:
        await queue.enter(caller, connected)
        running[caller] += 1
        assert running.total() <= limits.running_max
        assert running[caller] <= limits.running_per_caller_max
        try:
            await asyncio.sleep(rng.random() / 1_000)
        finally:
            running[caller] -= 1
            queue.leave(caller)

    tasks = [asyncio.create_task(query(rng.choice("abcd"))) for _ in range(300)]
    for task in rng.sample(tasks, 100):
        await asyncio.sleep(0)
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)

    assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
    assert queue.waiting_count == 0
    for caller in "aab":
        await asyncio.wait_for(queue.enter(caller, connected), 10)  # all places are free again


def test_one_caller_cannot_occupy_all_places() -> None:
    assert HEAVY.running_per_caller_max < HEAVY.running_max
