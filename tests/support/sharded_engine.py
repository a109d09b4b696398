"""A cluster of shards and replicas in one embedded engine: each node is a database.

The engine knows no cluster, so this module does what its servers do. A statement of `clusterAllReplicas`
runs in each database, one of `cluster` in that of a replica of each shard. Rows reach the other replicas at
once, or later if these are away or late. Other queries read any replica of each shard that answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from receiver.config.addresses import parse_store_url
from receiver.engine import schema
from receiver.engine.cluster_store import ClusterStore
from receiver.engine.store import TABLE, Parameters, Store
from receiver.errors import StoreTrouble
from tests.support import engines
from tests.support.attribute_rollups import PROMOTED
from tests.support.fake_clickhouse import schema_sources

CLUSTER = "prod"
_OF_NODES = re.compile(r"clusterAllReplicas\('prod', view\((.*)\)\)", re.DOTALL)
_OF_SHARDS = re.compile(
    r"\s*INSERT INTO (\w+)(.*?) SELECT \* FROM cluster\('prod', view\((.*)\)\) (SETTINGS .*)", re.DOTALL
)
_TABLE = re.compile(r"(?<![\w'{.])otel_\w+")


class ShardedEngine(ClusterStore):
    """`ClusterStore` whose statements run on an embedded store."""

    def __init__(self, inner: Store, base: str, shards: Sequence[int], random: Random) -> None:
        """`shards`: shard of each node. `base`: database without rows, and prefix of those of the nodes."""
        url = parse_store_url(f"http://127.0.0.1:1/{base}")
        assert url is not None
        super().__init__(
            url, database=base, password="", insert_timeout_s=1, receiver="test", cluster=CLUSTER
        )
        self._inner = inner
        self._base = base
        self._random = random
        self.shards_of_nodes = list(shards)
        self.away: set[int] = set()
        """Nodes that do not answer."""
        self.late: set[int] = set()
        """Nodes that answer, and get new rows later."""
        self.late_for_spans: set[int] = set()
        """Nodes that answer, and get new spans later, but rows of rollups at once."""
        self._waiting: dict[int, list[str]] = {node: [] for node in self.nodes}
        self._count = 0

    @property
    def nodes(self) -> range:
        """Return the numbers of the nodes."""
        return range(1, len(self.shards_of_nodes) + 1)

    def node(self, number: int) -> str:
        """Return the database of a node."""
        return f"{self._base}_{number}"

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        if found := _OF_SHARDS.fullmatch(statement):
            for node in self._replicas():
                self._insert(node, found[1], found[2], self._on_node(found[3], node), found[4], parameters)
            return []
        return self._inner.rows(self._rewritten(statement), parameters)

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        return self._inner.lines(self._rewritten(statement), parameters)

    def command(self, statement: str) -> None:
        if statement.startswith("INSERT INTO otel_traces FORMAT"):
            self._inner.command(statement)
            for node in self._replicas():
                shard, count = self.shards_of_nodes[node - 1], len(set(self.shards_of_nodes))
                rows = f"SELECT * FROM {self._base}.{TABLE} WHERE cityHash64(TraceId) % {count} = {shard - 1}"  # noqa: S608 - ours
                self._insert(node, TABLE, "", rows, "", None)
            self._inner.command(f"TRUNCATE TABLE {self._base}.{TABLE}")
            return
        statement = statement.replace(" ON CLUSTER 'prod'", "").replace(f"{self._base}.", "")
        for node in self.nodes:
            self._apply(node, self._on_tables_of(node, statement))

    def run_on(self, node: int, statement: str) -> None:
        """Run a statement on one node only."""
        self._inner.command(self._on_tables_of(node, statement))

    def catch_up(self) -> None:
        """Let all nodes answer, and give them all rows."""
        self.away, self.late, self.late_for_spans = set(), set(), set()
        for node, statements in self._waiting.items():
            for statement in statements:
                self._inner.command(statement)
            self._waiting[node] = []

    def _insert(  # noqa: PLR0913, PLR0917 - parts of a statement
        self, node: int, table: str, columns: str, query: str, settings: str, parameters: Parameters | None
    ) -> None:
        """Run an INSERT SELECT on a node, and give its rows to the replicas."""
        self._count += 1
        rows = f"{self._base}.rows_{self._count}"
        self._inner.command(f"CREATE TABLE {rows} AS {self._base}.{table} ENGINE = Memory")
        self._inner.rows(f"INSERT INTO {rows}{columns} {query} {settings}", parameters)
        for other in self.nodes:
            if self.shards_of_nodes[other - 1] == self.shards_of_nodes[node - 1]:
                copied = f"INSERT INTO {self._local(table, other)} SELECT * FROM {rows}"  # noqa: S608 - ours
                is_late = other in self.late_for_spans and table == TABLE
                self._apply(other, copied, is_own=other == node, is_late=is_late)

    def _apply(self, node: int, statement: str, *, is_own: bool = False, is_late: bool = False) -> None:
        if is_late or (node in self.away | self.late and not is_own):
            self._waiting[node].append(statement)
        else:
            self._inner.command(statement)

    def _replicas(self) -> list[int]:
        """Return a replica of each shard that answers."""
        chosen = []
        for shard in sorted(set(self.shards_of_nodes)):
            present = [
                node
                for node in self.nodes
                if self.shards_of_nodes[node - 1] == shard and node not in self.away
            ]
            if not present:
                raise StoreTrouble("a shard is away", code=279, name="ALL_CONNECTION_TRIES_FAILED")
            chosen.append(self._random.choice(present))
        return chosen

    def _local(self, table: str, node: int) -> str:
        return f"{self.node(node)}.{table.removesuffix('_local')}_local"

    def _on_tables_of(self, node: int, statement: str) -> str:
        return _TABLE.sub(lambda found: self._local(found[0], node), statement)

    def _on_node(self, query: str, node: int) -> str:
        query = query.replace(f"{self._base}.otel", f"{self.node(node)}.otel")
        nodes = ", ".join(
            f"('prod', {shard}, 1, {number}, 'node{number}', 9000)"
            for number, shard in enumerate(self.shards_of_nodes, start=1)
        )
        columns = (
            "cluster String, shard_num UInt32, shard_weight UInt32, replica_num UInt32, host_name String, "
            "port UInt16"
        )
        query = query.replace("system.clusters", f"values('{columns}', {nodes})")
        return query.replace(f"'{self._base}'", f"'{self.node(node)}'")

    def _rewritten(self, statement: str) -> str:
        if found := _OF_NODES.search(statement):
            of_nodes = " UNION ALL ".join(
                f"SELECT toUInt32({node}) AS _shard_num, * FROM view({self._on_node(found[1], node)})"  # noqa: S608 - ours
                for node in self.nodes
                if node not in self.away
            )
            # The engine's virtual column is not among the columns of `*`.
            head = statement[: found.start()].replace("SELECT _shard_num, *", "SELECT *")
            return f"{head}({of_nodes}){statement[found.end() :]}"
        databases = "|".join(map(self.node, self._replicas()))
        return _TABLE.sub(lambda found: f"merge(REGEXP('^({databases})$'), '^{found[0]}_local$')", statement)


@contextmanager
def sharded_engine(directory: Path, shards: Sequence[int], random: Random) -> Iterator[ShardedEngine]:
    """Yield a cluster with tables on each node, which are dropped at the end. `shards`: of each node."""
    base = f"cluster_{uuid4().hex}"
    inner = engines.bare(directory, base)
    cluster = ShardedEngine(inner, base, shards, random)
    schema.apply(inner, schema_sources(), 30, PROMOTED)
    for number in cluster.nodes:
        node = engines.bare(directory, cluster.node(number))
        schema.apply(node, schema_sources(), 30, PROMOTED)
        node.command("DROP TABLE otel_traces_trace_id_ts_mv SYNC")
        names = node.rows(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'otel%'"
        )
        node.command("RENAME TABLE " + ", ".join(f"{name} TO {name}_local" for (name,) in names))
        node.close()
    yield cluster
    for database in (base, *map(cluster.node, cluster.nodes)):
        inner.command(f"DROP DATABASE {database}")
    inner.close()
