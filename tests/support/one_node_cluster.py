"""A cluster of one node on the embedded engine, which has neither Keeper nor other servers.

Statements are rewritten: `clusterAllReplicas` to a subquery, replicated tables to plain ones, `Distributed`
to `Merge` tables. `system.clusters` and `system.macros` are lists of the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

from receiver.config.addresses import parse_store_url
from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.cluster_store import ClusterStore
from receiver.engine.store import Parameters, Store

CLUSTER = "prod"
_NAME = r"(?:'prod'|\{cluster:String\})"
_REWRITTEN = (
    # the virtual column is not among those of `*`
    (rf"_shard_num, \* FROM clusterAllReplicas\({_NAME}, view\((.*)\)\)", r"1, * FROM (\1)"),
    (rf"clusterAllReplicas\({_NAME}, view\((.*)\)\)", r"(SELECT 1 AS _shard_num, * FROM (\1))"),
    (rf"clusterAllReplicas\({_NAME}, (system\.\w+)\)", r"(SELECT 1 AS _shard_num, * FROM \1)"),
    (r"clusterAllReplicas\('prod', (\w+), (\w+)\)", r"\1.\2"),
    (r"\(name, engine\)", "(name, if(engine = 'Merge', 'Distributed', engine))"),
    (" ON CLUSTER 'prod'", ""),
    (r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?", r"\1("),
    (r"^\s*INSERT INTO (otel_\w+) \(", r"INSERT INTO \1_local ("),
    (r"\breplicated_deduplication_window = ", "non_replicated_deduplication_window = "),
    (r",\s+replicated_deduplication_window_seconds = \d+", ""),
    (r"Distributed\('prod', '(\w+)', '(\w+)'[^\n]*\)", r"Merge('\1', '^\2$')"),
)


class OneNodeCluster(ClusterStore):
    """`ClusterStore` whose statements run on an embedded store."""

    def __init__(self, inner: Store, database: str) -> None:
        url = parse_store_url(f"http://127.0.0.1:1/{database}")
        assert url is not None
        super().__init__(
            url, database=database, password="", insert_timeout_s=1, receiver="test", cluster=CLUSTER
        )
        self._inner = inner
        self.nodes: Sequence[tuple[int, int, str]] = [(1, 1, "node1")]
        """Shard, weight and host of each replica."""
        self.macros: dict[str, str] = {"shard": "1", "replica": "a"}
        self.commands: list[str] = []
        """Statements without an answer, as a server would get them."""

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        return self._inner.rows(self._rewritten(statement), parameters)

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        return self._inner.lines(self._rewritten(statement), parameters)

    def insert_arrow(self, table: str, body: IO[bytes], *, token: str, query_id: str) -> int:
        assert isinstance(self._inner, ClickHouseStore)
        return self._inner.insert_arrow(f"{table}_local", body, token=token, query_id=query_id)

    def command(self, statement: str) -> None:
        self.commands.append(statement)
        self._inner.command(self._rewritten(statement))

    def create_database(self) -> None: ...

    def _rewritten(self, statement: str) -> str:
        for pattern, replacement in _REWRITTEN:
            statement = re.sub(pattern, replacement, statement, flags=re.DOTALL)
        nodes = ", ".join(
            f"('prod', {shard}, {weight}, {number}, '{host}', 9000)"
            for number, (shard, weight, host) in enumerate(self.nodes, start=1)
        )
        columns = (
            "cluster String, shard_num UInt32, shard_weight UInt32, replica_num UInt32, host_name String, "
            "port UInt16"
        )
        rows = nodes or "('another', 1, 1, 1, '', 0)"
        statement = statement.replace("system.clusters", f"values('{columns}', {rows})")
        macros = ", ".join(f"('{name}', '{value}')" for name, value in self.macros.items())
        return statement.replace(
            "system.macros", f"values('macro String, substitution String', {macros or repr(('', ''))})"
        )
