"""A cluster of real servers, two shards with two replicas each: `make test-cluster`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from receiver import transcode
from receiver.config.addresses import parse_store_url
from receiver.console.queries.rollup.slots import invalidate
from receiver.engine import schema
from receiver.engine.cluster import Layout
from receiver.engine.cluster_store import ClusterStore
from receiver.engine.store import RowLocation
from receiver.model import SegmentId
from receiver.writer.outcome import rows_by_day
from tests.support import attribute_rollups as of_attributes
from tests.support import error_rollups as of_errors
from tests.support.attribute_rollups import PROMOTED
from tests.support.fake_clickhouse import schema_sources
from tests.support.random_filters import as_row
from tests.support.redelivery import EPOCH, segment_of
from tests.support.rollups import assert_equal, derive_all, random_spans
from tests.support.segments import RECEIVED_MS

URL = os.environ.get("TRACE_DRAIN_TEST_CLUSTER", "")
CLUSTER = "prod"
SHARDS = 2

pytestmark = pytest.mark.skipif(not URL, reason="TRACE_DRAIN_TEST_CLUSTER is not set")


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout(CLUSTER, f"cluster_{uuid4().hex}")


@contextmanager
def tables_of(layout: Layout) -> Iterator[ClusterStore]:
    url = parse_store_url(URL)
    assert url is not None
    store = ClusterStore(
        replace(url, database=layout.database),
        database="",
        password="",
        insert_timeout_s=60,
        receiver="tests",
        cluster=CLUSTER,
    )
    store.create_database()
    schema.apply(store, schema_sources(), 30, PROMOTED, layout=layout)
    yield store
    store.command(f"DROP DATABASE {layout.database} ON CLUSTER '{CLUSTER}' SYNC")
    store.close()


@pytest.fixture(scope="module")
def cluster(layout: Layout) -> Iterator[ClusterStore]:
    with tables_of(layout) as store:
        yield store


def test_rollups_equal_the_spans() -> None:
    spans = random_spans(random.Random(1))
    rows = "\n".join(map(as_row, spans))
    with tables_of(Layout(CLUSTER, f"rollups_{uuid4().hex}")) as store:
        settings = "SETTINGS distributed_foreground_insert = 1"
        store.command(f"INSERT INTO otel_traces {settings} FORMAT JSONEachRow\n{rows}")
        derived = derive_all(store)

        assert len(derived) >= 47
        assert_equal(store, spans, slots_min=40)
        of_attributes.assert_equal(store, spans)
        of_errors.assert_equal(store, reads_rollups=True)
        invalidate(store, None)
        assert_equal(store, spans)


def test_tables_are_on_every_node(cluster: ClusterStore, layout: Layout) -> None:
    status = schema.status(cluster, schema_sources(), 30, PROMOTED, layout=layout)

    assert status.missing == ()
    assert [state for _, state in status.nodes] == ["complete"] * 4
    assert schema.apply(cluster, schema_sources(), 30, PROMOTED, layout=layout) == []


def test_retention_is_changed_on_every_node(cluster: ClusterStore, layout: Layout) -> None:
    schema.apply(cluster, schema_sources(), 7, layout=layout)

    assert schema.status(cluster, schema_sources(), 7, layout=layout).retention_days == 7
    schema.apply(cluster, schema_sources(), 30, layout=layout)


def test_rows_are_counted_once_by_shard_and_day_and_a_token_twice_adds_none(
    cluster: ClusterStore, tmp_path: Path
) -> None:
    content = segment_of(1, range(8))
    path = tmp_path / "0000000001.native.lz4"
    path.write_bytes(content)
    rows = rows_by_day(transcode.day_runs(content, SHARDS))
    location = RowLocation(SegmentId(EPOCH, 1), RECEIVED_MS, rows.total())

    for _ in range(2):
        cluster.insert(path, token="1#0", query_id="trace-drain-1#0")

        assert cluster.counts([location]) == {location.segment: rows}
    cluster.refill_companion(location, tuple(rows))
    traces = cluster.rows("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts")
    assert traces == cluster.rows("SELECT uniqExact(TraceId) FROM otel_traces")


def test_statements_of_all_nodes_are_listed_and_ended(cluster: ClusterStore) -> None:
    assert cluster.shards() == SHARDS
    assert cluster.running("trace-drain-") == []
    cluster.kill("trace-drain-")


def test_probe_and_trial_are_accepted(cluster: ClusterStore, tmp_path: Path) -> None:
    path = tmp_path / "0000000002.native.lz4"
    path.write_bytes(segment_of(2, [1]))

    cluster.probe()

    assert cluster.refusal_of(path) is None
