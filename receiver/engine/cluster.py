"""Tables on a ClickHouse cluster: the statements of the schema, as they are there.

    otel_traces_local         on each node, replicated within its shard: columns, indexes, TTL
    otel_traces               on each node, `Distributed` over all shards by `cityHash64(TraceId)`
    trace_drain_migrations    replicated over all nodes

Each node needs the macros `shard` and `replica`. The paths in Keeper contain the name of the table and not
its id, so that a node that is added later joins the replicas of its shard.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from receiver.engine.sql_text import COMPANION, DEPLOYMENT_EVENTS, TABLE, Parameters, Sql, compose, identifier
from receiver.errors import OperatorError, StoreTrouble

WINDOW_S = 7 * 86_400
"""Time that Keeper remembers the tokens of INSERTs."""
ON_ALL_NODES = frozenset({"trace_drain_migrations"})
"""Tables whose rows every node has, without a `Distributed` table."""
SHARDED_BY = {TABLE: "TraceId", COMPANION: "TraceId", DEPLOYMENT_EVENTS: "DeploymentId"}
"""Column by which an INSERT is divided. The other tables take no INSERT: rows are derived on each shard."""

_CREATED = re.compile(r"CREATE (TABLE|MATERIALIZED VIEW) IF NOT EXISTS (\w+)(?: (AS|TO) (\w+))?")
_ALTERED = re.compile(r"ALTER TABLE (\w+)")
_SELECTED = re.compile(r"^FROM (\w+)", re.MULTILINE)
_ENGINE = re.compile(r"^ENGINE = (\w*MergeTree)(?:\((\w+)\))?", re.MULTILINE)
_STORED = re.compile(r"(?<![\w'{.])otel_\w+")
"""A table in a query: not a text, and not a parameter."""
_WINDOW = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")

_NODES = """
SELECT shard_num, host_name FROM system.clusters
WHERE cluster = {cluster:String} ORDER BY shard_num, replica_num
"""
_DEFINITION = """
SELECT groupArray((shard_num, shard_weight, host_name, port)) AS nodes
FROM
(
    SELECT shard_num, shard_weight, host_name, port FROM system.clusters
    WHERE cluster = '{cluster}' ORDER BY shard_num, replica_num
)
"""
_MACROS = """
SELECT _shard_num, groupArray((macro, substitution))
FROM clusterAllReplicas({cluster:String}, system.macros) WHERE macro IN ('shard', 'replica')
GROUP BY _shard_num
"""
_TABLES = """
SELECT _shard_num, names FROM clusterAllReplicas({cluster:String}, view(
    SELECT groupArray((name, engine)) AS names FROM system.tables WHERE database = {database:String}
))
SETTINGS skip_unavailable_shards = 1
"""
"""Each node that answers returns one row, also without tables."""
_CREATE_QUERIES = """
SELECT name, create_table_query FROM clusterAllReplicas({cluster:String}, system.tables)
WHERE database = {database:String} LIMIT 1 BY name
SETTINGS skip_unavailable_shards = 1
"""


_NO_SETTINGS = Sql("")


class Queried(Protocol):
    """The part of a store that this module needs."""

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """Run a query with a short answer."""


class Node(NamedTuple):
    """A replica of a shard."""

    host: str
    shard: int
    number: int
    """Position in the cluster, from 1."""


def local_table(table: str) -> str:
    """Return the name of the table that has the rows of a node."""
    return table if table in ON_ALL_NODES else f"{table}_local"


class Layout(NamedTuple):
    """Where the tables are: on one server, or on the nodes of a cluster."""

    cluster: str = ""
    """Empty: one server."""
    database: str = ""
    storage_policy: str = ""
    """Storage policy of the spans; empty: that of the server."""

    def altered(self, table: str) -> str:
        """Return what an ALTER names to change a table."""
        return self._on_cluster(local_table(table)) if self.cluster else table

    def tables_of_columns(self, table: str) -> list[str]:
        """Return what ALTERs name to add a column: the table that has the rows, and that of the queries."""
        return [self.altered(table), *([self._on_cluster(table)] if self.cluster else [])]

    def stored(self, table: str) -> str:
        """Return the name of the table that has the rows, on this server."""
        return local_table(table) if self.cluster else table

    def statements(self, sql: str) -> list[str]:
        """Return the statements that do here what a statement of the schema does on one server."""
        if not self.cluster:
            return [self._with_policy(sql)]
        if altered := _ALTERED.search(sql):
            return [_replaced(sql, altered, f"ALTER TABLE {self.altered(altered[1])}")]
        created = _CREATED.search(sql)
        # A comment, or a statement that only some engines need.
        if created is None:
            return [sql]
        kind, name, joint, other = created.groups()
        source = f" {joint} {self._qualified(local_table(other))}" if joint else ""
        if kind != "TABLE":
            view = _replaced(sql, created, f"CREATE {kind} IF NOT EXISTS {self._on_cluster(name)}{source}")
            return [_SELECTED.sub(lambda found: f"FROM {self._qualified(local_table(found[1]))}", view)]
        create = f"CREATE {kind} IF NOT EXISTS {self._on_cluster(local_table(name))}{source}"
        local = _replaced(self._with_policy(sql), created, create)
        local = _ENGINE.sub(lambda found: self._replicated(name, *found.groups()), local)
        local = _WINDOW.sub(
            r"replicated_deduplication_window = \1,"
            rf"\n    replicated_deduplication_window_seconds = {WINDOW_S}",
            local,
        )
        return [local] if name in ON_ALL_NODES else [local, self._distributed(name)]

    def rows_of_nodes(
        self, store: Queried, query: Sql, parameters: Parameters | None = None, settings: Sql = _NO_SETTINGS
    ) -> list[tuple[Any, ...]]:
        """Run a query on the tables of each node that answers. Returns the rows of all nodes.

        Their first column is the number of the node: see `shard_of_node`. On a cluster the filters of
        `Store.marked` do not apply, so the query may return no value of a row.
        """
        if not self.cluster:
            whole = compose("{query} {settings}", query=query, settings=settings)
            return [(1, *row) for row in store.rows(whole, parameters)]
        on_nodes = compose(
            "SELECT _shard_num, * FROM clusterAllReplicas('{cluster}', view({query})) {settings}",
            cluster=identifier(self.cluster),
            query=self._on_node(query),
            settings=_with_setting(settings, Sql("skip_unavailable_shards = 1")),
        )
        return store.rows(on_nodes, parameters)

    def on_shards(self, insert: Sql) -> Sql:
        """Return the statement that runs an INSERT SELECT on the tables of each shard."""
        if not self.cluster:
            return insert
        head, _, rest = insert.partition("SELECT")
        query, settings, values = rest.partition("SETTINGS")
        return compose(
            "{head} SELECT * FROM cluster('{cluster}', view(SELECT {query})) {settings}",
            head=Sql(head),
            cluster=identifier(self.cluster),
            query=self._on_node(Sql(query)),
            settings=_with_setting(Sql(f"{settings}{values}"), Sql("parallel_distributed_insert_select = 2")),
        )

    def _on_node(self, query: Sql) -> Sql:
        # On another node, the database of the connection is unknown.
        text = _STORED.sub(lambda found: self._qualified(local_table(found[0])), query)
        return Sql(text.replace("currentDatabase()", f"'{self.database}'"))

    def definition(self) -> Sql:
        """Return the query for the cluster as a node knows it, as one array."""
        return compose(_DEFINITION, cluster=identifier(self.cluster))

    def shard_of_node(self, store: Queried) -> list[int]:
        """Return the shard of each replica of the cluster, in the order in which the server numbers them.

        Raises `StoreTrouble` if the nodes disagree: the next statement may be answered by another one.
        """
        if not self.cluster:
            return [1]
        answers = self.rows_of_nodes(store, self.definition())
        nodes = list(answers[0][1]) if answers else []
        if not nodes:
            raise self._unusable("is not among the clusters that the server knows (system.clusters)")
        shards = [(shard, weight) for shard, weight, *_ in nodes]
        if any([(shard, weight) for shard, weight, *_ in others] != shards for _, others in answers):
            raise self._unusable(
                "has other shards or replicas on some nodes; expected the same remote_servers"
            )
        if any(weight != 1 for _, weight in shards):
            raise self._unusable("has shards of different weights; expected a weight of 1 for each")
        if len({(host, port) for _, _, host, port in nodes}) < len(nodes):
            raise self._unusable("names a server twice; expected a server for each replica")
        return [int(shard) for shard, _ in shards]

    def _unusable(self, reason: str) -> StoreTrouble:
        cause = f"cluster '{self.cluster}' {reason}"
        return StoreTrouble(cause, name="CLUSTER_UNUSABLE", advice=cause)

    def create_queries(self, store: Queried) -> dict[str, str]:
        """Return the tables that have rows, and statements that create them as they are on the nodes now.

        Of a node that is added: as a replica it is refused unless its table has all later changes.
        """
        if not self.cluster:
            return {}
        rows = store.rows(_CREATE_QUERIES, {"cluster": self.cluster, "database": self.database})
        return {
            name: f"CREATE TABLE IF NOT EXISTS {self._on_cluster(name)} {sql[sql.index('(') :]}"
            for name, sql in rows
            if name in ON_ALL_NODES or name.endswith(local_table(""))
        }

    def _with_policy(self, sql: str) -> str:
        if not self.storage_policy or f"EXISTS {TABLE}\n" not in sql:
            return sql
        return f"{sql.rstrip()},\n    storage_policy = '{self.storage_policy}'"

    def _replicated(self, table: str, engine: str, version: str | None) -> str:
        shard, replica = ("all", "{shard}-{replica}") if table in ON_ALL_NODES else ("{shard}", "{replica}")
        path = f"/clickhouse/tables/{shard}/{self.database}/{table}"
        return f"ENGINE = Replicated{engine}('{path}', '{replica}'{f', {version}' if version else ''})"

    def _distributed(self, table: str) -> str:
        key = f", cityHash64({SHARDED_BY[table]})" if table in SHARDED_BY else ""
        local = local_table(table)
        return (
            f"CREATE TABLE IF NOT EXISTS {self._on_cluster(table)} AS {self._qualified(local)}\n"
            f"ENGINE = Distributed('{self.cluster}', '{self.database}', '{local}'{key})"
        )

    def _on_cluster(self, table: str) -> str:
        return f"{self._qualified(table)} ON CLUSTER '{self.cluster}'"

    def _qualified(self, table: str) -> str:
        # With its database, which the other nodes do not know otherwise.
        return f"{self.database}.{table}"

    def nodes(self, store: Queried) -> list[Node]:
        """Return the replicas of all shards. Raises `OperatorError` if the cluster is unknown."""
        rows = store.rows(_NODES, {"cluster": self.cluster})
        if not rows:
            known = store.rows("SELECT DISTINCT cluster FROM system.clusters ORDER BY cluster")
            names = ", ".join(f"'{name}'" for (name,) in known) or "none"
            raise OperatorError(f"the server does not know the cluster '{self.cluster}'; it knows {names}")
        return [Node(str(host), int(shard), number) for number, (shard, host) in enumerate(rows, start=1)]

    def tables_of_nodes(self, store: Queried) -> Mapping[Node, frozenset[str] | None]:
        """Return the tables that each node has; `None` if it does not answer.

        Raises `OperatorError` for a table of one server, whose rows no other node would have.
        """
        answers = store.rows(_TABLES, {"cluster": self.cluster, "database": self.database})
        found = {number: dict(pairs) for number, pairs in answers}
        for table in SHARDED_BY:
            engines = {engines[table] for engines in found.values() if table in engines} - {"Distributed"}
            if engines:
                raise OperatorError(
                    f"table '{table}' has the engine {engines.pop()}, of one server; expected Distributed: "
                    "give the cluster another database (store.database, or the path of store.url)"
                )
        return {
            node: frozenset(found[node.number]) if node.number in found else None
            for node in self.nodes(store)
        }

    def require_macros(self, store: Queried) -> None:
        """Raise `OperatorError` unless the macros tell the replicas and shards apart."""
        nodes = self.nodes(store)
        macros = {node: dict(pairs) for node, pairs in store.rows(_MACROS, {"cluster": self.cluster})}
        replicas: dict[tuple[str, str], Node] = {}
        shards: dict[str, int] = {}
        for node in nodes:
            names = macros.get(node.number, {})
            if missing := [name for name in ("shard", "replica") if not names.get(name)]:
                raise OperatorError(
                    f"node '{node.host}' has no macro '{missing[0]}'; expected it in <macros>"
                )
            replica = (names["shard"], names["replica"])
            if (other := replicas.setdefault(replica, node)) != node:
                raise OperatorError(
                    f"nodes '{other.host}' and '{node.host}' have the same macros shard and replica, "
                    f"'{replica[0]}' and '{replica[1]}'; expected another replica, or another shard"
                )
            if shards.setdefault(names["shard"], node.shard) != node.shard:
                raise OperatorError(
                    f"node '{node.host}' is in shard {node.shard} of the cluster, and its macro shard "
                    f"'{names['shard']}' is that of shard {shards[names['shard']]}"
                )


ONE_SERVER = Layout()


def _with_setting(settings: Sql, added: Sql) -> Sql:
    """Return the end of a statement with another setting. `settings`: its end; may be empty."""
    if settings:
        return compose("{settings}, {added}", settings=settings, added=added)
    return compose("SETTINGS {added}", added=added)


def _replaced(sql: str, found: re.Match[str], text: str) -> str:
    return sql[: found.start()] + text + sql[found.end() :]
