"""Indexes on attribute values: merges build them; queries return the same rows from parts without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.console.queries.filters.filter import Attribute, Comparison
from receiver.console.queries.filters.filter_sql import compiled
from receiver.engine.store import Store
from tests.support import engines
from tests.support.segments import SegmentMaker

QUERY = "SELECT count() FROM otel_traces WHERE SpanAttributes['k'] = 'v0'"


@pytest.fixture(params=engines.BOTH_KINDS)
def store(request: pytest.FixtureRequest, engine_dir: Path) -> Iterator[Store]:
    made = (
        engines.embedded(engine_dir)
        if request.param == "embedded"
        else engines.over_http(request.getfixturevalue("server_url"))
    )
    with made as store:
        yield store


def index_bytes(store: Store) -> dict[str, int]:
    rows = store.rows(
        "SELECT name, data_compressed_bytes FROM system.data_skipping_indices "
        "WHERE database = currentDatabase() AND table = 'otel_traces'"
    )
    return {str(name): int(size) for name, size in rows}


def test_merges_build_the_indexes_and_queries_find_the_same_rows_before(store: Store, tmp_path: Path) -> None:
    store.command("SYSTEM STOP MERGES otel_traces")
    maker = SegmentMaker(tmp_path)
    for _ in range(2):
        segment = maker.make(0, 0)
        store.insert(segment.path, token=segment.path.name, query_id=segment.path.name)
    inserted, found_before = index_bytes(store), store.rows(QUERY)

    store.command("SYSTEM START MERGES otel_traces")
    store.command("OPTIMIZE TABLE otel_traces FINAL")

    merged = index_bytes(store)
    for index in ("idx_span_attr_value", "idx_resource_attr_value", "idx_resource_value"):
        assert inserted["idx_trace_id"] > inserted[index] == 0
        assert merged[index] > 0
    assert found_before == store.rows(QUERY) == [(2,)]


def test_query_finds_rows_while_only_some_parts_have_the_index(store: Store, tmp_path: Path) -> None:
    maker = SegmentMaker(tmp_path)
    for _ in range(2):
        segment = maker.make(0)
        store.insert(segment.path, token=segment.path.name, query_id=segment.path.name)
        if segment.location.segment.seq == 1:
            store.command("OPTIMIZE TABLE otel_traces FINAL")
            store.command("SYSTEM STOP MERGES otel_traces")

    parts = store.rows(
        "SELECT count() FROM system.parts "
        "WHERE active AND database = currentDatabase() AND table = 'otel_traces'"
    )

    assert (parts, index_bytes(store)["idx_span_attr_value"] > 0) == ([(2,)], True)
    assert store.rows(QUERY) == [(2,)]
    assert store.rows(QUERY.replace("v0", "absent")) == [(0,)]


def test_search_for_an_absent_value_of_span_or_resource_reads_no_granule(
    store: Store, tmp_path: Path
) -> None:
    segment = SegmentMaker(tmp_path).make(0, 0)
    store.insert(segment.path, token=segment.path.name, query_id=segment.path.name)
    store.command("OPTIMIZE TABLE otel_traces FINAL")

    conditions = [compiled(store, Comparison(Attribute("", "k"), "=", value)) for value in ("v0", "absent")]
    granules = [
        [
            line
            for (line,) in store.rows(
                f"EXPLAIN indexes = 1 SELECT count() FROM otel_traces WHERE {condition.sql}",  # noqa: S608 - compiled
                condition.parameters,
            )
            if "Granules:" in line
        ]
        for condition in conditions
    ]

    assert [lines[-1].split()[-1] for lines in granules] == ["1/1", "0/1"]
