"""Tables of a cluster: their statements, the checks before them, and the state of each node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine import schema
from receiver.engine.cluster import Layout
from receiver.engine.columns import PROBE_OF_SHARDS
from receiver.engine.schema import Engine
from receiver.engine.store import RowLocation, Store, Version
from receiver.errors import OperatorError, StoreTrouble
from receiver.model import SegmentId
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources
from tests.support.one_node_cluster import CLUSTER, OneNodeCluster
from tests.support.segments import RECEIVED_MS, SegmentMaker

SERVER = Engine(Version(26, 9), embedded=False)


@pytest.fixture
def database() -> str:
    return f"cluster_{uuid4().hex}"


@pytest.fixture
def inner(engine_dir: Path, database: str) -> Iterator[Store]:
    store = engines.bare(engine_dir, database)
    yield store
    store.command(f"DROP DATABASE {database}")
    store.close()


@pytest.fixture
def layout(database: str) -> Layout:
    return Layout(CLUSTER, database)


@pytest.fixture
def cluster(inner: Store, database: str) -> OneNodeCluster:
    return OneNodeCluster(inner, database)


@contextmanager
def local_table(inner: Store) -> Iterator[None]:
    inner.command("RENAME TABLE otel_traces TO otel_traces_merged, otel_traces_local TO otel_traces")
    yield
    inner.command("RENAME TABLE otel_traces TO otel_traces_local, otel_traces_merged TO otel_traces")


def statements(layout: Layout) -> list[str]:
    return [each.sql for each in schema.emit(schema_sources(), SERVER, 30, layout=layout)]


def test_every_statement_names_the_cluster_and_the_database() -> None:
    for statement in statements(Layout("prod", "otel")):
        place = r"(CREATE (TABLE|MATERIALIZED VIEW) IF NOT EXISTS|ALTER TABLE) otel\.\w+ ON CLUSTER 'prod'"
        assert re.search(place, statement), statement
        assert not re.search(r"(FROM|AS|TO) otel_", re.sub("--.*", "", statement)), statement


def test_each_table_is_replicated_in_its_shard_below_a_distributed_table() -> None:
    text = "\n".join(statements(Layout("prod", "otel")))
    local = set(re.findall(r"CREATE TABLE IF NOT EXISTS otel\.(\w+)_local ON CLUSTER", text))
    paths = set(re.findall(r"MergeTree\('/clickhouse/tables/\{shard\}/otel/(\w+)', '\{replica\}'", text))
    distributed = set(re.findall(r"ENGINE = Distributed\('prod', 'otel', '(\w+)_local'", text))

    assert local == paths == distributed
    assert {"otel_traces", "otel_traces_trace_id_ts", "otel_red", "otel_calls"} <= local
    assert "Distributed('prod', 'otel', 'otel_traces_local', cityHash64(TraceId))" in text
    assert (
        "ReplicatedMergeTree('/clickhouse/tables/all/otel/trace_drain_migrations', '{shard}-{replica}')"
        in text
    )


def test_keeper_remembers_tokens_for_a_week_instead_of_an_hour() -> None:
    spans = statements(Layout("prod", "otel"))[1]

    assert "    replicated_deduplication_window = 10000,\n" in spans
    assert "    replicated_deduplication_window_seconds = 604800,\n" in spans


def test_storage_policy_is_that_of_the_spans_only() -> None:
    for layout in (Layout(storage_policy="tiered"), Layout("prod", "otel", "tiered")):
        with_policy = [text for text in statements(layout) if "storage_policy = 'tiered'" in text]

        assert len(with_policy) == 1
        assert "SpanAttributes" in with_policy[0]


def test_on_one_server_the_statements_stay_as_they_are() -> None:
    assert statements(Layout()) == [each.sql for each in schema.emit(schema_sources(), SERVER, 30)]


def test_tables_are_created_once(cluster: OneNodeCluster, layout: Layout) -> None:
    applied = schema.apply(cluster, schema_sources(), 30, layout=layout)
    again = schema.apply(cluster, schema_sources(), 30, layout=layout)
    status = schema.status(cluster, schema_sources(), 30, layout=layout)

    assert applied == [each.name for each in schema.emit(schema_sources(), SERVER, 30)]
    assert again == []
    assert (status.missing, status.retention_days) == ((), 30)
    assert status.nodes == (("shard 1, node1", "complete"),)


def test_table_that_a_node_lacks_is_reported_and_created(
    cluster: OneNodeCluster, layout: Layout, inner: Store
) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    inner.command("DROP TABLE otel_errors_local")

    lacking = schema.status(cluster, schema_sources(), 30, layout=layout).nodes
    applied = schema.apply(cluster, schema_sources(), 30, layout=layout)

    assert lacking == (("shard 1, node1", "lacks otel_errors_local"),)
    assert applied == ["0012_otel_errors"]


def test_node_that_is_added_gets_the_table_with_its_later_changes(
    cluster: OneNodeCluster, layout: Layout, inner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    inner.command("ALTER TABLE otel_errors_local MODIFY COMMENT 'changed later'")
    cluster.commands.clear()
    rows = cluster.rows

    def of_two_nodes(statement: str, parameters: object = None) -> list[tuple[object, ...]]:
        found = rows(statement, parameters)  # type: ignore[arg-type]  # passed on
        if "groupArray((macro" in statement:
            return [*found, (2, [("shard", "1"), ("replica", "b")])]
        if "groupArray((name, engine))" in statement:
            lacking = [(name, engine) for name, engine in found[0][1] if name != "otel_errors_local"]
            return [*found, (2, lacking)]
        return found

    cluster.nodes = [(1, 1, "node1"), (1, 1, "node2")]
    monkeypatch.setattr(cluster, "rows", of_two_nodes)

    assert schema.apply(cluster, schema_sources(), 30, layout=layout) == ["0012_otel_errors"]
    created = [command for command in cluster.commands if "otel_errors_local ON CLUSTER" in command]
    assert [command.count("COMMENT 'changed later'") for command in created] == [1]
    assert created[0].startswith("CREATE TABLE IF NOT EXISTS ")


def test_receiver_starts_while_a_node_does_not_answer(cluster: OneNodeCluster, layout: Layout) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    cluster.nodes = [(1, 1, "node1"), (1, 1, "node2")]
    cluster.commands.clear()

    applied = schema.apply(cluster, schema_sources(), 30, layout=layout)
    status = schema.status(cluster, schema_sources(), 30, layout=layout)

    assert (applied, cluster.commands) == ([], [])
    assert status.nodes == (("shard 1, node1", "complete"), ("shard 1, node2", "does not answer"))


def test_nothing_is_created_while_a_node_does_not_answer(cluster: OneNodeCluster, layout: Layout) -> None:
    cluster.nodes = [(1, 1, "node1"), (1, 1, "node2")]

    with pytest.raises(OperatorError, match="node 'node2' has no macro 'shard'"):
        schema.apply(cluster, schema_sources(), 30, layout=layout)
    assert cluster.commands == []


def test_retention_is_changed_on_the_nodes(cluster: OneNodeCluster, layout: Layout) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    cluster.commands.clear()

    applied = schema.apply(cluster, schema_sources(), 7, layout=layout)

    assert applied == ["retention of 7 days"]
    changes = [command for command in cluster.commands if "MODIFY TTL" in command]
    assert changes
    assert all(f"_local ON CLUSTER '{CLUSTER}'" in command for command in changes)
    assert schema.status(cluster, schema_sources(), 7, layout=layout).retention_days == 7


def test_altered_table_of_the_node_is_refused(cluster: OneNodeCluster, layout: Layout, inner: Store) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    inner.command("ALTER TABLE otel_traces_local MODIFY COLUMN Duration UInt32")

    with pytest.raises(OperatorError, match="'otel_traces_local' was altered: column 'Duration' is UInt32"):
        schema.apply(cluster, schema_sources(), 30, layout=layout)


def test_table_of_one_server_is_refused_and_stays(
    cluster: OneNodeCluster, layout: Layout, inner: Store
) -> None:
    schema.apply(inner, schema_sources(), 30)

    with pytest.raises(OperatorError, match="table 'otel_traces' has the engine MergeTree, of one server"):
        schema.apply(cluster, schema_sources(), 30, layout=layout)
    assert cluster.commands == []


def test_unknown_cluster_is_refused_with_the_known_ones(cluster: OneNodeCluster, database: str) -> None:
    with pytest.raises(OperatorError, match="does not know the cluster 'other'; it knows 'prod'"):
        schema.apply(cluster, schema_sources(), 30, layout=Layout("other", database))
    assert cluster.commands == []


@pytest.mark.parametrize("name", ["shard", "replica"])
def test_node_without_a_macro_is_refused_before_the_first_statement(
    cluster: OneNodeCluster, layout: Layout, name: str
) -> None:
    del cluster.macros[name]

    with pytest.raises(OperatorError, match=f"node 'node1' has no macro '{name}'"):
        schema.apply(cluster, schema_sources(), 30, layout=layout)
    assert cluster.commands == []


def test_nodes_with_the_same_macros_are_refused(
    cluster: OneNodeCluster, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.nodes = [(1, 1, "node1"), (1, 1, "node2")]
    rows = cluster.rows

    def two_nodes(statement: str, parameters: object = None) -> list[tuple[object, ...]]:
        found = rows(statement, parameters)  # type: ignore[arg-type]  # passed on
        return [(node, found[0][1]) for node in (1, 2)] if "macro" in statement else found

    monkeypatch.setattr(cluster, "rows", two_nodes)

    with pytest.raises(OperatorError, match="nodes 'node1' and 'node2' have the same macros"):
        layout.require_macros(cluster)


def test_rows_are_counted_by_day_of_the_shard(
    cluster: OneNodeCluster, layout: Layout, inner: Store, tmp_path: Path
) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    segment = SegmentMaker(tmp_path).make(0, 0, 1)
    with local_table(inner):
        inner.insert(segment.path, token="a", query_id="a")

    counts = cluster.counts([segment.location, RowLocation(SegmentId(1, 1), RECEIVED_MS)])

    assert counts == {segment.location.segment: {f"1/{day}": rows for day, rows in segment.days.items()}}
    assert cluster.shards() == 1
    assert cluster.running("trace-drain-") == []


def test_ledger_gets_the_sums_of_the_replicas(
    cluster: OneNodeCluster, layout: Layout, inner: Store, tmp_path: Path
) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    segment = SegmentMaker(tmp_path).make(0, 0, 1)
    with local_table(inner):
        inner.insert(segment.path, token="a", query_id="a")
        expected = inner.rows_by_heading(segment.location)

    assert cluster.rows_by_heading(segment.location) == expected
    assert sum(sums.rows for sums in expected.values()) == 3


def test_probe_has_a_row_for_each_shard(inner: Store) -> None:
    schema.apply(inner, schema_sources(), 0)

    inner.rows(PROBE_OF_SHARDS, {"shards": 3})

    shards = inner.rows("SELECT cityHash64(TraceId) % 3, count() FROM otel_traces GROUP BY ALL ORDER BY ALL")
    assert shards == [(0, 1), (1, 1), (2, 1)]


def test_probe_waits_for_a_majority_of_each_shard(
    cluster: OneNodeCluster, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.apply(cluster, schema_sources(), 30, layout=layout)
    sent: list[tuple[object, ...]] = []
    monkeypatch.setattr(cluster, "_insert_select", lambda *call: sent.append(call))

    cluster.probe()

    assert sent == [(PROBE_OF_SHARDS, {"shards": 1}, {"insert_quorum": "auto"})]


def test_nodes_that_list_other_shards_are_not_trusted(
    cluster: OneNodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = cluster.rows
    monkeypatch.setattr(cluster, "rows", lambda *call: [*rows(*call), (2, [(1, 1, "a", 1), (2, 1, "b", 1)])])

    with pytest.raises(StoreTrouble, match="has other shards or replicas on some nodes"):
        cluster.shards()


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([], "is not among the clusters that the server knows"),
        ([(1, 1, "a"), (2, 3, "b")], "shards of different weights"),
        ([(1, 1, "a"), (2, 1, "a")], "names a server twice"),
    ],
)
def test_rows_are_not_divided_on(
    cluster: OneNodeCluster, nodes: list[tuple[int, int, str]], reason: str
) -> None:
    cluster.nodes = nodes

    with pytest.raises(StoreTrouble, match=reason):
        cluster.shards()
