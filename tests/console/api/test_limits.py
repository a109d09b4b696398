"""Limits of queries and of concurrent queries: an answer names each, and short queries do not wait."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from receiver.console.api.query_queue import HEAVY
from receiver.console.queries.limits import limit_exceeded
from receiver.engine.embedded import MARKED_QUERY_THREADS
from receiver.engine.sql_text import SECONDS_MAX, SETTINGS
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.support.api import FailingStore, WaitingStore, client_of
from tests.support.cases import each_case


@each_case(
    ("statement", "limit"),
    [
        ("SELECT count() FROM numbers_mt(3000000000)", "rows_read"),
        ("SELECT groupArray(toString(number)) FROM numbers(1000000000)", "memory"),
        ("SELECT count() FROM numbers(1900000000) WHERE sipHash64(number) % 7 = 9", "seconds"),
    ],
)
def test_engine_enforces_the_limit(store: Store, statement: str, limit: str) -> None:
    time_limit = f"max_execution_time = {SECONDS_MAX}"
    assert time_limit in SETTINGS
    settings = SETTINGS.replace(time_limit, "max_execution_time = 1") if limit == "seconds" else SETTINGS

    with pytest.raises(StoreTrouble) as failed:
        store.rows(f"{statement} {settings}")

    exceeded = limit_exceeded(failed.value)
    assert exceeded is not None
    assert exceeded.field == limit


@each_case(
    ("code", "limit", "detail"),
    [
        (158, "rows_read", "the query reads over 2000000000 rows"),
        (307, "bytes_read", "the query reads over 1024 GiB"),
        (396, "rows", "the answer has more rows than its limit"),
        (241, "memory", "the query needs over 2 GiB of memory, or the store has less left"),
        (159, "seconds", "the query takes over 60 s"),
    ],
)
async def test_exceeded_limit_is_named_with_the_way_to_narrow_the_query(
    code: int, limit: str, detail: str
) -> None:
    async with client_of(FailingStore(code)) as client:
        answer = await client.get("/api/v1/spans")
        problem = await answer.json()

    assert (answer.status, problem["limit"], problem["detail"]) == (422, limit, detail)
    assert problem["hint"].startswith("expected a shorter time range")
    assert "Retry-After" not in answer.headers
    assert "secret" not in str(problem)


@each_case(
    ("code", "detail", "hint"),
    [
        (210, "the store: ERROR (210)", ""),
        (
            60,
            "the store has no tables",
            "the receiver creates them when it starts, so retry in a few seconds",
        ),
    ],
)
async def test_error_of_the_store_is_answered_503_without_row_values(
    code: int, detail: str, hint: str
) -> None:
    async with client_of(FailingStore(code)) as client:
        answer = await client.get("/api/v1/spans")
        problem = await answer.json()

    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert (problem["detail"], problem.get("hint", "")) == (detail, hint)


async def test_short_query_does_not_wait_for_heavy_queries() -> None:
    store, count = WaitingStore(), HEAVY.running_max + HEAVY.waiting_per_caller_max - 1
    async with client_of(store) as client:
        heavy = [asyncio.create_task(client.get("/api/v1/spans")) for _ in range(count)]
        operations = await client.get("/api/v1/operations?service=a")
        lines = [json.loads(line) for line in (await operations.text()).splitlines()]
        done_meanwhile = [task for task in heavy if task.done()]
        store.release.set()
        answers = await asyncio.gather(*heavy)

    assert lines[0] == {"a": 1}
    assert done_meanwhile == []
    assert [answer.status for answer in answers] == [200] * count


async def test_caller_with_too_many_waiting_queries_gets_429() -> None:
    store, count = WaitingStore(), HEAVY.running_per_caller_max + HEAVY.waiting_per_caller_max + 1
    async with client_of(store) as client:
        tasks = [asyncio.create_task(client.get("/api/v1/spans")) for _ in range(count)]
        refused = await next(asyncio.as_completed(tasks))
        store.release.set()
        answers = await asyncio.gather(*tasks)
        problem = await refused.json()

    assert refused.headers["Retry-After"] == "2"
    assert problem["detail"] == "this client has 16 waiting queries already"
    assert sorted(answer.status for answer in answers) == [200] * (count - 1) + [429]


def test_operators_query_leaves_cores_to_the_intakes(store: Store) -> None:
    with store.marked("trace-drain-api-test"):
        assert store.rows("SELECT toUInt64(getSetting('max_threads'))") == [(MARKED_QUERY_THREADS,)]

    assert max(2, len(os.sched_getaffinity(0))) >= MARKED_QUERY_THREADS * 2
