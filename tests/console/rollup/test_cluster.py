"""Rollups on a cluster never change an answer, whatever replica a question reads."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from receiver.console.queries.aggregates.red_source import Wanted, red_source
from receiver.console.queries.rollup import replicas, status
from receiver.console.queries.rollup.derivation import Closing, derive
from receiver.console.queries.rollup.slots import invalidate
from receiver.console.queries.rollup.tables import HOUR_NS, TABLES
from receiver.errors import StoreTrouble
from tests.support import attribute_rollups as of_attributes
from tests.support import call_rollups as of_calls
from tests.support import error_rollups as of_errors
from tests.support.random_filters import NOW_S, Span, insert
from tests.support.rollups import (
    CLOSING,
    FROM_NS,
    HOUR_S,
    MIDNIGHT_S,
    TO_NS,
    InterleavedStore,
    Killed,
    KilledStore,
    assert_equal,
    derive_all,
    due_count,
    random_spans,
    span_at,
)
from tests.support.sharded_engine import ShardedEngine, sharded_engine
from tests.support.strace import run_child

WANTED = Wanted(FROM_NS, TO_NS)


DAY_NS = (MIDNIGHT_S * 10**9, (MIDNIGHT_S + 86_400) * 10**9)


@pytest.fixture(autouse=True)
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "CHECKS_MAX", 2)
    monkeypatch.setattr(replicas, "CHECK_S", 0)


@pytest.fixture
def cluster(engine_dir: Path) -> Iterator[ShardedEngine]:
    """Yield two shards of two replicas."""
    with sharded_engine(engine_dir, [1, 1, 2, 2], random.Random(5)) as cluster:
        yield cluster


@pytest.fixture
def spans(cluster: ShardedEngine) -> list[Span]:
    spans = random_spans(random.Random(6))
    insert(cluster, spans)
    return spans


@pytest.fixture
def derived(cluster: ShardedEngine, spans: list[Span]) -> list[Span]:
    """Return spans whose closed hours are derived."""
    derive_all(cluster)
    return spans


def test_rollups_of_all_shards_equal_the_spans(cluster: ShardedEngine, spans: list[Span]) -> None:
    assert_equal(cluster, spans)
    derived = derive_all(cluster)

    assert len(derived) == len(set(derived)) >= 47
    assert due_count(cluster) == 0
    assert_equal(cluster, spans, slots_min=40)
    of_attributes.assert_equal(cluster, spans)
    of_errors.assert_equal(cluster, reads_rollups=True)
    assert {day.proven for day in status.days(cluster, CLOSING)} == {True}
    assert sum(day.spans for day in status.days(cluster, CLOSING)) == len(spans)
    assert {table.table for table in status.tables(cluster) if table.rows} == {*TABLES}


def test_real_engine_runs_the_statements_of_a_cluster(tmp_path: Path) -> None:
    done = run_child("tests.console.rollup.cluster_child", str(tmp_path))

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["hours"] >= 47
    assert result["times"] == 2


@pytest.mark.fault_tier
def test_calls_between_services_are_derived_on_their_shard(cluster: ShardedEngine) -> None:
    spans = of_calls.call_spans(random.Random(7))
    insert(cluster, spans)
    derive_all(cluster)

    of_calls.assert_equal(cluster, spans, hours_min=40)


@pytest.mark.fault_tier
def test_late_spans_are_read_beside_the_slots(cluster: ShardedEngine, derived: list[Span]) -> None:
    rng = random.Random(1)
    late = [span_at(rng, 1_000 + n, MIDNIGHT_S + n * 1_000, NOW_S) for n in range(10)]
    insert(cluster, late)

    assert_equal(cluster, derived + late, slots_min=40)
    derive_all(cluster, Closing(NOW_S + 601, 600))
    assert_equal(cluster, derived + late, slots_min=40)


def test_replica_that_lacks_rows_of_rollups_changes_no_answer(
    cluster: ShardedEngine, spans: list[Span]
) -> None:
    cluster.away = {2}
    derive_all(cluster)
    assert_equal(cluster, spans, slots_min=40)
    cluster.away, cluster.late = set(), {2}
    assert_equal(cluster, spans)
    cluster.catch_up()

    assert due_count(cluster) == 0
    assert_equal(cluster, spans, slots_min=40)


@pytest.mark.fault_tier
def test_hours_are_not_derived_while_a_replica_is_late(cluster: ShardedEngine, spans: list[Span]) -> None:
    cluster.late = {2, 3}
    with pytest.raises(StoreTrouble, match="the replicas of a shard have different rows of a rollup"):
        derive_all(cluster)
    assert_equal(cluster, spans)
    cluster.catch_up()
    derive_all(cluster)

    assert_equal(cluster, spans, slots_min=40)


@pytest.mark.fault_tier
def test_node_that_returns_during_a_question_ends_its_proof(
    cluster: ShardedEngine, derived: list[Span]
) -> None:
    cluster.away = {3}
    source = red_source(cluster, WANTED)
    assert source.slots
    assert source.is_unchanged(cluster)
    derive(cluster, [max(source.slots)], CLOSING)
    source = red_source(cluster, WANTED)
    cluster.away, cluster.late = set(), {3}

    assert not source.is_unchanged(cluster)
    assert_equal(cluster, derived)
    # The query may have read the node before it got its rows.
    cluster.catch_up()
    assert not source.is_unchanged(cluster)


@pytest.mark.fault_tier
def test_replica_that_gets_spans_between_two_statements_changes_no_answer(
    cluster: ShardedEngine, derived: list[Span]
) -> None:
    for statement in range(4, 44, 10):
        cluster.late = {1, 4}
        late = random_spans(random.Random(statement), 20)
        insert(cluster, late)
        derived += late
        fetching: Any = InterleavedStore(cluster, statement, cluster.catch_up)
        with suppress(StoreTrouble):
            derive_all(fetching, Closing(NOW_S + statement * 200, 600))
        cluster.catch_up()
        assert_equal(cluster, derived)
        of_errors.assert_equal(cluster, filters=[""])


@pytest.mark.fault_tier
@pytest.mark.parametrize("seed", range(3))
def test_hours_whose_spans_a_replica_lacks_are_derived_once_it_has_them(engine_dir: Path, seed: int) -> None:
    with sharded_engine(engine_dir, [1, 1], random.Random(seed)) as cluster:
        spans = random_spans(random.Random(6), 200)
        insert(cluster, spans[:100])
        cluster.late_for_spans = {2}
        insert(cluster, spans[100:])
        derive_all(cluster)
        cluster.catch_up()

        for _ in range(2):
            assert_equal(cluster, spans)
            of_errors.assert_equal(cluster, filters=["", "project=prj_1"])
            derive_all(cluster)
        assert due_count(cluster) == 0
        of_attributes.assert_equal(cluster, spans)


@pytest.mark.fault_tier
def test_node_that_returns_without_any_row_ends_a_proof(cluster: ShardedEngine) -> None:
    cluster.away = {3}
    insert(cluster, random_spans(random.Random(6)))
    derive_all(cluster)
    source = red_source(cluster, WANTED)
    assert len(source.slots) >= 40
    assert source.is_unchanged(cluster)
    cluster.away, cluster.late = set(), {3}

    assert not source.is_unchanged(cluster)


@pytest.mark.fault_tier
def test_node_that_returns_between_two_statements_changes_no_answer(
    cluster: ShardedEngine, spans: list[Span]
) -> None:
    for statement in range(4, 44, 10):
        cluster.away = {2}
        returning: Any = InterleavedStore(cluster, statement, cluster.catch_up)
        derive_all(returning, Closing(NOW_S + statement * 200, 600))
        assert_equal(cluster, spans)


@pytest.mark.fault_tier
def test_calls_of_traces_that_two_shards_have_are_read_from_the_spans(engine_dir: Path) -> None:
    with sharded_engine(engine_dir, [1, 2, 3], random.Random(5)) as cluster:
        spans = of_calls.call_spans(random.Random(7))
        cluster.shards_of_nodes = [1, 2]
        insert(cluster, spans[:300])
        cluster.shards_of_nodes = [1, 2, 3]
        insert(cluster, spans[300:])
        derive_all(cluster)

        of_calls.assert_equal(cluster, spans)
        assert derive_all(cluster) == []


@pytest.mark.fault_tier
def test_shard_that_is_away_is_an_error(cluster: ShardedEngine, derived: list[Span]) -> None:
    cluster.away = {3, 4}

    assert red_source(cluster, WANTED).slots == {}
    with pytest.raises(StoreTrouble):
        assert_equal(cluster, derived)


@pytest.mark.fault_tier
def test_rows_that_one_replica_lost_are_derived_again(cluster: ShardedEngine, derived: list[Span]) -> None:
    cluster.run_on(4, "ALTER TABLE otel_red DELETE WHERE Spans > 0 SETTINGS mutations_sync = 1")

    assert_equal(cluster, derived)
    assert derive_all(cluster)
    assert_equal(cluster, derived, slots_min=40)


@pytest.mark.fault_tier
def test_spans_that_one_shard_lost_and_another_got_are_noticed(
    cluster: ShardedEngine, derived: list[Span]
) -> None:
    day = time.strftime("%Y%m%d", time.gmtime(MIDNIGHT_S))
    for node in (1, 2):
        cluster.run_on(node, f"ALTER TABLE otel_traces DROP PARTITION ID '{day}'")
    from_first = of_first_shard(cluster, derived)
    lost = [
        span
        for span in derived
        if DAY_NS[0] <= span["start_ns"] < DAY_NS[1] and span["TraceId"] in from_first
    ]
    left = [span for span in derived if span not in lost]
    assert_equal(cluster, left)
    of_second = cluster.rows(
        "SELECT TraceId FROM otel_traces WHERE cityHash64(TraceId) % 2 = 1 AND ProjectId != '' LIMIT 1"
    )
    hours = [span["start_ns"] // HOUR_NS for span in lost]
    got = [
        span_at(random.Random(n), 5_000 + n, hour * HOUR_S, hour * HOUR_S + 1) | {"TraceId": of_second[0][0]}
        for n, hour in enumerate(hours)
    ]
    insert(cluster, got)

    assert len(left) + len(got) == len(derived)
    assert_equal(cluster, left + got)


def of_first_shard(cluster: ShardedEngine, spans: list[Span]) -> set[str]:
    traces = sorted({span["TraceId"] for span in spans})
    query = "SELECT arrayFilter(id -> cityHash64(id) % 2 = 0, {traces:Array(String)})"
    return {*cluster.rows(query, {"traces": traces})[0][0]}


@pytest.mark.fault_tier
def test_spans_that_were_changed_are_derived_once_all_replicas_changed_them(
    cluster: ShardedEngine, derived: list[Span]
) -> None:
    change = "ALTER TABLE otel_traces UPDATE StatusCode = 'Ok' WHERE 1 SETTINGS mutations_sync = 1"
    cluster.late = {2}
    cluster.command(change)
    assert derive_all(cluster) == []
    cluster.catch_up()
    changed = [span | {"StatusCode": "Ok"} for span in derived]

    assert_equal(cluster, changed)
    assert len(derive_all(cluster)) >= 40
    assert_equal(cluster, changed, slots_min=40)


@pytest.mark.fault_tier
def test_hours_are_derived_again_when_a_shard_is_added(engine_dir: Path) -> None:
    with sharded_engine(engine_dir, [1, 2, 3], random.Random(5)) as cluster:
        cluster.shards_of_nodes = [1, 2]
        spans = random_spans(random.Random(6))
        insert(cluster, spans)
        derive_all(cluster)
        assert_equal(cluster, spans, slots_min=40)
        cluster.shards_of_nodes = [1, 2, 3]
        more = random_spans(random.Random(8), 100)
        insert(cluster, more)

        assert_equal(cluster, spans + more)
        assert len(derive_all(cluster)) >= 40
        assert_equal(cluster, spans + more, slots_min=40)


@pytest.mark.fault_tier
def test_rollups_are_emptied_on_all_nodes(cluster: ShardedEngine, derived: list[Span]) -> None:
    invalidate(cluster, MIDNIGHT_S // HOUR_S)
    assert 0 < due_count(cluster) < 47
    invalidate(cluster, None)

    assert not any(table.rows for table in status.tables(cluster))
    assert_equal(cluster, derived)


@pytest.mark.fault_tier
@pytest.mark.parametrize("seed", range(2))
def test_answers_equal_the_spans_after_any_events(engine_dir: Path, seed: int) -> None:
    rng = random.Random(seed)
    with sharded_engine(engine_dir, [1, 1, 2, 2], rng) as cluster:
        spans = random_spans(rng)
        insert(cluster, spans)
        for step in range(8):
            if rng.random() < 0.3:
                # A question that reads a late replica cannot know which spans it lacks.
                cluster.catch_up()
                late = random_spans(rng, 20)
                insert(cluster, late)
                spans += late
            cluster.away, cluster.late = {rng.choice([0, 1, 3])}, {rng.choice([0, 2, 4])}
            killed: Any = KilledStore(cluster, rng.randrange(200), is_after=rng.random() < 0.5)
            with suppress(Killed, StoreTrouble):
                derive_all(rng.choice([cluster, killed]), Closing(NOW_S + step * 700, 600))
            assert_equal(cluster, spans)
        cluster.catch_up()
        derive_all(cluster, Closing(NOW_S + 10 * HOUR_S, 600))
        assert_equal(cluster, spans, slots_min=40)
