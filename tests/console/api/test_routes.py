"""Tests of the operators' API over the embedded store: answers, access control, hostile input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest
from aiohttp import ClientTimeout

from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.spans import spans
from receiver.console.queries.traces.traces import normalized_trace_id
from receiver.engine.store import Store
from receiver.errors import Refused, StoreTrouble
from receiver.store_process.writer_thread import StopSignal
from receiver.time_range import ends_of, parse_range, parse_since
from receiver.writer.environment import Stopping
from tests.support.api import Client, client_of
from tests.support.cases import each_case
from tests.support.fake_clickhouse import NOW_S, MemoryStore
from tests.support.segments import Segment

QUERY_WAS_CANCELLED = 394
WAIT_S = 30.0


async def rows_of(client: Client, path: str, **query: str) -> list[dict[str, Any]]:
    answer = await client.get(path, params=query)
    assert answer.status == 200, await answer.text()
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return rows_before_end(await answer.text())


def rows_before_end(text: str) -> list[dict[str, Any]]:
    """Parse the lines of an answer, and check the count in its last line."""
    *rows, end = (json.loads(line) for line in text.splitlines())
    assert end["end"]["count"] == len(rows)
    return rows


async def test_trace_has_every_stored_column(client: Client, stored: Segment) -> None:
    trace_id = f"{stored.location.segment.seq:016x}{1:016x}"

    answer = await client.get(f"/api/v1/traces/{trace_id.upper()}")

    row, end = (json.loads(line) for line in (await answer.text()).splitlines())
    assert end == {"end": {"count": 1, "cut": False}}
    assert row["TraceId"] == trace_id
    assert row["SpanAttributes"] == {"k": "v1"}
    assert row["Duration"] == 2**63 + 1
    assert row["SegmentEpoch"] == stored.location.segment.epoch
    assert row["SpanName"] == "it's a \\ 'name' {a:String}"
    assert len(row) == 38


@each_case(
    ("query", "count"),
    [
        pytest.param({}, 4, id="no filter"),
        pytest.param({"project": "prj_1"}, 2, id="project"),
        pytest.param({"project": ""}, 0, id="empty project"),
        pytest.param({"service": "cart", "project": "prj_1"}, 0, id="project and service"),
        pytest.param({"limit": "3"}, 3, id="limit"),
    ],
)
def test_spans_are_filtered_by_project_service_and_limit(
    store: Store, query: dict[str, str], count: int
) -> None:
    asked = QUESTIONS["spans"].parse(query)

    rows = b"".join(spans(store, asked, NOW_S + 60).pieces()).splitlines()

    assert len(rows) == count


async def test_spans_are_sorted_newest_first(client: Client, stored: Segment) -> None:
    rows = await rows_of(client, "/api/v1/spans", since="30d", limit="1000")

    times = [row["Timestamp"] for row in rows]
    assert len(rows) == sum(stored.days.values())
    assert times == sorted(times, reverse=True)


@each_case("hostile_text", ["'", "' OR 1=1 --", "\\", "{project:String}", "a\x00b", "') FORMAT Null"])
async def test_filter_value_is_never_interpreted_as_sql(client: Client, hostile_text: str) -> None:
    for name in ("project", "service"):
        assert await rows_of(client, "/api/v1/spans", since="30d", **{name: hostile_text}) == []


@each_case(
    ("path", "status"),
    [
        pytest.param("/api/v1/traces/xyz", 400, id="invalid trace id"),
        pytest.param(f"/api/v1/traces/{'0' * 32}", 404, id="unknown trace"),
        pytest.param("/api/v1/spans?since=soon", 400, id="invalid age"),
        pytest.param("/api/v1/spans?limit=0", 400, id="limit too small"),
        pytest.param("/api/v1/spans?limit=1000001", 400, id="limit too large"),
        pytest.param("/api/v1/spans?select=1", 400, id="unknown parameter"),
        pytest.param("/api/v1/spans?service=a&service=b", 400, id="repeated parameter"),
        pytest.param("/api/v1/counts?trace_id=ab&trace_id=cd", 400, id="repeated parameter of counts"),
        pytest.param("/api/v1/ledger?since=1h&since=1s", 400, id="repeated parameter of the ledger"),
        pytest.param("/api/v1/nothing", 404, id="unknown path"),
    ],
)
async def test_invalid_request_is_answered_with_a_json_error(client: Client, path: str, status: int) -> None:
    answer = await client.get(path)

    body = await answer.json()
    assert (answer.status, body["status"]) == (status, status)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_health_lists_the_problem_of_each_check() -> None:
    async with client_of(MemoryStore(), health=lambda: {"store": "retry: no answer"}) as client:
        answer = await client.get("/api/v1/health")

        assert await answer.json() == {"ok": False, "checks": {"store": "retry: no answer"}}


class SlowStore(MemoryStore):
    """Store whose query runs in the engine of another store, and has no row for hours."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.marked, self.cancel = store.marked, store.cancel  # type: ignore[assignment, method-assign]  # of that engine
        self._rows = store.rows
        self.codes: Queue[int | None] = Queue()

    def lines(self, _statement: str, _parameters: object = None) -> Iterator[bytes]:
        try:
            self._rows("SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) % 7 = 9")
        except StoreTrouble as trouble:
            self.codes.put(trouble.code)
            raise
        return iter(())


async def test_statement_without_rows_is_cancelled_when_its_client_disconnects(store: Store) -> None:
    slow = SlowStore(store)
    async with client_of(slow) as client:
        with pytest.raises(TimeoutError):
            await client.get("/api/v1/operations?service=web", timeout=ClientTimeout(1))

        assert await asyncio.to_thread(slow.codes.get, timeout=WAIT_S) == QUERY_WAS_CANCELLED


@each_case(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("24h", 86_400), (" 7d ", 604_800), ("999999999d", 6_324_480_000)],
)
def test_age_is_parsed(text: str, seconds: int) -> None:
    assert parse_since(text) == seconds


@each_case("text", ["", "15", "m", "-1m", "1.5h", "1w", "1m; DROP", "\uff11m"])
def test_invalid_age_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="since"):
        parse_since(text)


@each_case(
    ("since", "until", "ends"),
    [
        ("-3h..-1h", "", ("3h", "1h")),
        ("3h .. 1h", "", ("3h", "1h")),
        ("-3h", "-1h", ("3h", "1h")),
        ("-3h..now", "", ("3h", "")),
        ("-3h..", "", ("3h", "")),
        ("2026-01-31..2026-02-01", "", ("2026-01-31", "2026-02-01")),
    ],
)
def test_range_may_be_one_text(since: str, until: str, ends: tuple[str, str]) -> None:
    assert ends_of(since, until) == ends
    assert parse_range(since, until) == parse_range(*ends)


@each_case(
    ("since", "until"), [("-1h..-3h", ""), ("..-1h", ""), ("3h..2h", "1h"), ("3h..2h..1h", ""), ("--3h", "")]
)
def test_invalid_range_is_refused(since: str, until: str) -> None:
    with pytest.raises(Refused):
        parse_range(since, until)


def test_trace_id_is_normalized() -> None:
    assert normalized_trace_id(" 0AF7651916CD43DD8448EB211C80319C\n") == "0af7651916cd43dd8448eb211c80319c"
    assert normalized_trace_id("0af76519-16cd-43dd-8448-eb211c80319c") == "0af7651916cd43dd8448eb211c80319c"


def test_stop_signal_ends_the_current_wait_and_raises_at_the_next() -> None:
    stop_signal = StopSignal(lambda: 0.0)
    stop_signal.stop(10.0)

    stop_signal.sleep(0)
    stop_signal.sleep(3600)
    with pytest.raises(Stopping):
        stop_signal.sleep(3600)


def test_stop_signal_raises_after_its_deadline() -> None:
    now = [0.0]
    stop_signal = StopSignal(lambda: now[0])
    stop_signal.stop(10.0)
    now[0] = 11.0

    with pytest.raises(Stopping):
        stop_signal.sleep(0)


async def test_spans_are_counted_by_trace_id_prefix(client: Client) -> None:
    listed = await client.get("/api/v1/spans?since=30d")
    trace_ids = {row["TraceId"] for row in rows_before_end(await listed.text())}
    prefix = min(trace_ids)[:2]

    answer = await client.get(f"/api/v1/counts?trace_id={prefix}&digits=32&since=30d")

    counts = rows_before_end(await answer.text())
    expected = sorted(trace_id for trace_id in trace_ids if trace_id.startswith(prefix))
    assert [row["Prefix"] for row in counts] == expected
    assert {(row["Spans"], row["Distinct"]) for row in counts} == {(1, 1)}


@each_case(
    "query",
    ["", "trace_id=f", "trace_id=xyz", "trace_id=ab&digits=0", "trace_id=ab&digits=33", "trace_id=ab&by=1"],
)
async def test_invalid_count_query_is_refused(client: Client, query: str) -> None:
    answer = await client.get(f"/api/v1/counts?{query}")

    assert answer.status == 400
