"""Shards of rows: the core divides the rows of a segment as a `Distributed` table does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from receiver import transcode
from receiver.engine import schema
from receiver.engine.store import Store
from tests.support.fake_clickhouse import schema_sources
from tests.support.redelivery import segment_of


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_rows_of_each_day_are_divided_as_the_engine_does(store: Store, tmp_path: Path, shards: int) -> None:
    schema.apply(store, schema_sources(), 30)
    content = segment_of(1, range(12), range(4, 9))
    path = tmp_path / "0000000001.native.lz4"
    path.write_bytes(content)
    store.insert(path, token="a", query_id="a")

    by_core: Counter[tuple[int, int]] = Counter()
    for first, end, day, shard in transcode.day_runs(content, shards):
        by_core[day, shard] += end - first

    by_engine = store.rows(
        "SELECT toInt64(toDate(Timestamp, 'UTC')), toInt64(cityHash64(TraceId) % {shards:UInt32} + 1), "
        "count() FROM otel_traces GROUP BY ALL",
        {"shards": shards},
    )
    assert {(day, shard): rows for day, shard, rows in by_engine} == by_core


def test_without_a_cluster_rows_have_no_shard() -> None:
    assert {shard for *_, shard in transcode.day_runs(segment_of(1, [3]), 0)} == {0}
