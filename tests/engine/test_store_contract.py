"""Contract tests for every store: the store in memory that other tests use, chDB, and a server over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine.store import RowLocation, Store
from receiver.errors import StoreTrouble
from receiver.model import Heading, SegmentId
from tests.support import engines
from tests.support.cases import each_case
from tests.support.fake_clickhouse import NOW_S, MemoryStore
from tests.support.segments import RECEIVED_MS, Segment, SegmentMaker
from tests.support.server_process import Server


@pytest.fixture(scope="module")
def embedded(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture(scope="module")
def database() -> str:
    return f"contract_{uuid4().hex}"


@pytest.fixture(scope="module")
def over_http(server_url: str, database: str) -> Iterator[Store]:
    with engines.over_http(server_url, database=database) as store:
        yield store


@pytest.fixture(params=["memory", "embedded", "over_http"])
def store(request: pytest.FixtureRequest, maker: SegmentMaker) -> Store:
    if request.param == "memory":
        memory = MemoryStore()
        memory.rows_of = maker.rows_of
        return memory
    parameter: Store = request.getfixturevalue(request.param)
    return parameter


@pytest.fixture(params=["embedded", "over_http"])
def engine(request: pytest.FixtureRequest) -> Store:
    parameter: Store = request.getfixturevalue(request.param)
    return parameter


@pytest.fixture
def insert(store: Store) -> Callable[..., int]:
    def insert_segment(segment: Segment, token: str = "#0") -> int:  # noqa: S107 - not a password
        name = f"{segment.location.segment}{token}"
        return store.insert(segment.path, token=name, query_id=f"trace-drain-{name}")

    return insert_segment


def test_rows_are_counted_by_day_and_stored_once_for_each_token(
    store: Store, maker: SegmentMaker, insert: Callable[..., int]
) -> None:
    segment = maker.make(0, 0, 1, 2, 2, 2)

    # Every row is read, also if the token is known.
    assert [insert(segment), insert(segment)] == [6, 6]
    assert store.counts([segment.location]) == {segment.location.segment: segment.days}

    insert(segment, token="#1")
    twice = {day: 2 * rows for day, rows in segment.days.items()}
    assert store.counts([segment.location]) == {segment.location.segment: twice}


def test_many_segments_are_counted_in_one_query(
    store: Store, maker: SegmentMaker, insert: Callable[..., int]
) -> None:
    first, second, absent = maker.make(0), maker.make(0, 1), maker.make(0)
    insert(first)
    insert(second)

    before, after = (
        absent.location._replace(received_ms=(RECEIVED_MS[0] + shift, RECEIVED_MS[1] + shift))
        for shift in (-60_000, 60_000)
    )

    counted = store.counts([before, first.location, second.location, after])

    assert counted == {first.location.segment: first.days, second.location.segment: second.days}
    of_another_epoch = RowLocation(SegmentId(7, second.location.segment.seq), RECEIVED_MS)
    assert store.counts([first.location, of_another_epoch]) == {first.location.segment: first.days}
    assert store.counts([]) == {}


def test_rows_of_parts_are_counted_with_their_segment(engine: Store, maker: SegmentMaker) -> None:
    part = maker.make(0, 0, 1)
    engine.insert(part.path, token=f"{part.location.segment}#p", query_id="trace-drain-p")
    whole = RowLocation(SegmentId(7, 7), RECEIVED_MS)
    assert engine.rows_by_heading(whole) == {}
    sums = engine.rows_by_heading(whole, part.location.segment.epoch)
    assert sum(row_sum.rows for row_sum in sums.values()) >= 3


def test_rows_are_counted_by_drain_project_and_hour_of_receipt(engine: Store, maker: SegmentMaker) -> None:
    segment = maker.make(0, 0, 1)
    engine.insert(segment.path, token=f"{segment.location.segment}#h", query_id="trace-drain-h")

    sums = engine.rows_by_heading(segment.location)

    assert {heading: row_sum.rows for heading, row_sum in sums.items()} == {
        Heading("", "prj_0", NOW_S // 3_600): 2,
        Heading("", "prj_1", NOW_S // 3_600): 1,
    }


def test_row_that_is_expired_at_the_insert_does_not_affect_other_rows(
    engine: Store, maker: SegmentMaker
) -> None:
    segment = maker.make(40, 0)
    (expired, _), (today, _) = segment.days.items()

    assert (
        engine.insert(segment.path, token=str(segment.location.segment), query_id="trace-drain-expired") == 2
    )

    counted = engine.counts([segment.location])[segment.location.segment]
    assert counted[today] == 1
    assert counted.get(expired, 0) <= 1


def test_idle_store_runs_no_statement_and_kill_is_harmless(store: Store) -> None:
    assert store.running("trace-drain-") == []
    store.kill("trace-drain-")


def test_probe_and_sync_succeed_and_the_version_is_returned(store: Store) -> None:
    store.probe()
    store.sync()

    assert store.version() >= (24, 0)


def test_companion_is_filled_by_the_insert_and_can_be_refilled(engine: Store, maker: SegmentMaker) -> None:
    segment = maker.make(0, 0, 1)
    engine.insert(segment.path, token=str(segment.location.segment), query_id="trace-drain-companion")
    statement = (
        "SELECT count(), countIf(spans > 1) FROM "
        "(SELECT TraceId, count() AS spans FROM otel_traces_trace_id_ts "
        "WHERE startsWith(TraceId, {start:String}) GROUP BY TraceId)"
    )
    start = {"start": f"{segment.location.segment.seq:016x}"}

    assert engine.rows(statement, start) == [(3, 0)]
    engine.refill_companion(segment.location, list(segment.days))
    engine.refill_companion(segment.location, list(segment.days))

    assert engine.rows(statement, start)[0][0] == 3


def test_file_that_is_not_a_segment_is_refused_and_stores_nothing(engine: Store, tmp_path: Path) -> None:
    path = tmp_path / "1.native.lz4"
    path.write_bytes(b"this is no segment")

    with pytest.raises(StoreTrouble) as trouble:
        engine.insert(path, token="junk", query_id="trace-drain-junk")

    assert trouble.value.code is not None


def test_failed_statement_does_not_affect_the_next(engine: Store) -> None:
    for _ in range(2):
        with pytest.raises(StoreTrouble) as trouble:
            engine.rows("SELECT throwIf(number = 90000) FROM numbers(100000)")
        assert trouble.value.code == 395

        assert engine.rows("SELECT number FROM numbers(3)") == [(0,), (1,), (2,)]


HOSTILE = ["'", "\\", "{a:String}", "--", "a\x00b", "'; DROP TABLE otel_traces; --", "\n\t", "ü", ""]


@each_case("text", HOSTILE)
def test_parameter_is_never_interpreted_as_sql(engine: Store, text: str) -> None:
    assert engine.rows("SELECT {text:String}, length({text:String})", {"text": text}) == [
        (text, len(text.encode()))
    ]


def test_long_answer_is_streamed_as_complete_json_lines(engine: Store) -> None:
    pieces = list(engine.lines("SELECT number, repeat('x', 100) AS text FROM numbers(20000)"))

    assert all(piece.startswith(b"{") and piece.endswith(b"}\n") for piece in pieces)
    assert sum(piece.count(b"\n") for piece in pieces) == 20_000


def test_interrupted_long_answer_raises(engine: Store) -> None:
    with pytest.raises(StoreTrouble):
        list(engine.lines("SELECT throwIf(number = 19999) FROM numbers(20000)"))


def test_client_works_after_a_partly_read_answer(engine: Store) -> None:
    lines = engine.lines("SELECT number FROM numbers(1000000)")
    next(lines)
    lines.close()  # type: ignore[attr-defined]  # every implementation is a generator

    assert engine.rows("SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    ("fault", "code", "is_applied"),
    [
        pytest.param({"kind": "reset"}, None, False, id="connection reset"),
        pytest.param({"kind": "error", "code": 252}, 252, False, id="error response"),
        pytest.param({"kind": "body", "code": 241}, 241, False, id="200 with an exception in the body"),
        pytest.param({"kind": "answer_lost"}, None, True, id="applied, response lost"),
    ],
)
def test_any_http_answer_but_an_empty_200_raises_and_is_not_retried(  # noqa: PLR0913 - fixtures
    over_http: Store,
    server: Server,
    maker: SegmentMaker,
    fault: dict[str, object],
    code: int | None,
    *,
    is_applied: bool,
) -> None:
    segment = maker.make(0)
    server.inject_fault(**fault)  # type: ignore[arg-type]  # the dictionary contains the kind

    with pytest.raises(StoreTrouble) as trouble:
        over_http.insert(segment.path, token=str(segment.location.segment), query_id="trace-drain-faulty")

    assert trouble.value.code == code
    assert bool(over_http.counts([segment.location])) == is_applied


def test_running_embedded_statement_is_listed_by_id_and_can_be_killed(embedded: Store) -> None:
    slow = "SELECT sleepEachRow(0.05) FROM numbers(1000) SETTINGS max_block_size = 1, log_comment = 'slow#1'"
    errors: list[StoreTrouble] = []

    def run_slow_query() -> None:
        try:
            embedded.rows(slow)
        except StoreTrouble as trouble:
            errors.append(trouble)

    query_thread = threading.Thread(target=run_slow_query)
    query_thread.start()
    while query_thread.is_alive() and not embedded.running("slow#"):
        pass
    embedded.kill("fast#")
    assert embedded.running("slow#") == ["slow#1"]

    embedded.kill("slow#")
    query_thread.join()

    assert [trouble.code for trouble in errors] == [394]
    assert embedded.running("slow#") == []


def test_running_server_statement_is_listed_by_id_and_can_be_killed(
    over_http: Store, database: str, server: Server, maker: SegmentMaker
) -> None:
    segment = maker.make(0)
    server.inject_fault("hang")
    store_with_short_timeout = engines.connected(server.url, database=database, insert_timeout_s=1)

    with pytest.raises(StoreTrouble) as trouble:
        store_with_short_timeout.insert(segment.path, token="hang", query_id="trace-drain-hang#0")
    assert trouble.value.code is None
    assert over_http.running("trace-drain-hang") == ["trace-drain-hang#0"]
    over_http.kill("trace-drain-hang")

    assert over_http.counts([segment.location]) == {}


def test_unreachable_server_raises_without_a_code() -> None:
    store = engines.connected("http://reader@127.0.0.1:9", database="otel")

    with pytest.raises(StoreTrouble) as trouble:
        store.version()

    assert trouble.value.code is None


def test_trial_accepts_a_valid_segment_and_stores_nothing(store: Store, maker: SegmentMaker) -> None:
    segment = maker.make(0, 1, 40)

    assert store.refusal_of(segment.path) is None

    assert store.counts([segment.location]) == {}


@pytest.fixture
def constrained(engine: Store) -> Iterator[Store]:
    """Engine whose table has a constraint that refuses every second row."""
    engine.command("ALTER TABLE otel_traces ADD CONSTRAINT no_shop CHECK ServiceName != 'shop'")
    yield engine
    engine.command("ALTER TABLE otel_traces DROP CONSTRAINT no_shop")


def test_trial_reports_a_refused_segment_and_drops_its_table(constrained: Store, maker: SegmentMaker) -> None:
    segment = maker.make(0, 0)

    refusal = constrained.refusal_of(segment.path)

    assert refusal is not None
    assert refusal.code == 469
    assert trial_tables(constrained) == []


def test_trial_table_left_by_a_crash_is_dropped_at_the_next_start(engine: Store) -> None:
    name = "embedded_1" if engine.embedded else "tests_1"
    engine.command(f"CREATE TABLE trace_drain_trial_{name} (A UInt8) ENGINE = Memory")
    engine.command("CREATE TABLE trace_drain_trial_of_another (A UInt8) ENGINE = Memory")

    engine.forget_trials()

    assert trial_tables(engine) == ["trace_drain_trial_of_another"]
    engine.command("DROP TABLE trace_drain_trial_of_another")


def test_insert_into_an_altered_table_is_refused_until_it_is_restored(
    engine: Store, maker: SegmentMaker
) -> None:
    segment = maker.make(0, 1)
    engine.command("ALTER TABLE otel_traces MODIFY COLUMN Duration Int32")

    with pytest.raises(StoreTrouble, match="column 'Duration' is Int32; expected UInt64"):
        engine.insert(segment.path, token="altered", query_id="trace-drain-altered")
    with pytest.raises(StoreTrouble, match="was altered"):
        engine.probe()
    engine.command("ALTER TABLE otel_traces MODIFY COLUMN Duration UInt64")
    assert engine.insert(segment.path, token="altered", query_id="trace-drain-restored") == 2


def trial_tables(engine: Store) -> list[str]:
    rows = engine.rows(
        "SELECT name FROM system.tables WHERE database = currentDatabase() "
        "AND startsWith(name, 'trace_drain_trial_') ORDER BY name"
    )
    return [str(name) for (name,) in rows]


def test_cancelled_mark_ends_the_queries_with_it_and_no_other(embedded: Store) -> None:
    codes: list[int | None] = []
    answers: list[tuple[int]] = []

    def endless(mark: str) -> None:
        with embedded.marked(mark):
            try:
                embedded.rows("SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) % 7 = 9")
            except StoreTrouble as trouble:
                codes.append(trouble.code)

    query_thread = threading.Thread(target=endless, args=("mark-1",))
    query_thread.start()
    with embedded.marked("mark-2"):
        while query_thread.is_alive():
            embedded.cancel("mark-1")
            answers = embedded.rows("SELECT 1")
    query_thread.join()

    assert codes == [394]
    assert answers == [(1,)]
