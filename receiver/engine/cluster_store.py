"""Store on a ClickHouse cluster: a `Distributed` table over a table of the same columns on every node.

Rows go to the shards by their trace. An INSERT waits until a majority of the replicas of each shard has its
rows. Rows are counted on all replicas, and running statements are looked for on all nodes, because a load
balancer may send each request to another node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.cluster import local_table
from receiver.engine.replicas import Count, agreed_counts
from receiver.engine.sql import counts_of, quoted_text
from receiver.engine.sql_text import Sql, compose, identifier
from receiver.engine.store import TABLE, Parameters, RowLocation
from receiver.errors import StoreTrouble

_NODES = """
SELECT shard_num, shard_weight, host_name, port FROM system.clusters
WHERE cluster = {cluster:String} ORDER BY shard_num, replica_num
"""


class ClusterStore(ClickHouseStore):
    _marked_settings: ClassVar[Mapping[str, str]] = {"distributed_product_mode": "global"}
    _insert_settings: ClassVar[Mapping[str, str]] = {"insert_quorum": "auto"}
    _running_id = Sql("initial_query_id")

    def shards(self) -> int:
        return len(set(self._shard_of_node()))

    def _shard_of_node(self) -> list[int]:
        """Return the shard of each replica of the cluster, in the order in which the server numbers them."""
        rows = self.rows(_NODES, {"cluster": self._cluster})
        if not rows:
            raise self._unusable("is not among the clusters that the server knows (system.clusters)")
        if any(weight != 1 for _, weight, *_ in rows):
            raise self._unusable("has shards of different weights; expected a weight of 1 for each")
        if len({(host, port) for _, _, host, port in rows}) < len(rows):
            raise self._unusable("names a server twice; expected a server for each replica")
        return [int(shard) for shard, *_ in rows]

    def _unusable(self, reason: str) -> StoreTrouble:
        cause = f"cluster '{self._cluster}' {reason}"
        return StoreTrouble(cause, name="CLUSTER_UNUSABLE", advice=cause)

    def _counted(self, parameters: Parameters, locations: Sequence[RowLocation]) -> list[Count]:
        # Before the count: a replica that is added between the two gives no answer, or one too many.
        shard_of_node = self._shard_of_node()
        local = compose(
            "{database}.{local}", database=identifier(self._database), local=identifier(local_table(TABLE))
        )
        # Each replica returns one row, so that `agreed_counts` finds out which of them were skipped.
        statement = compose(
            "SELECT _shard_num, counts FROM clusterAllReplicas('{cluster}', view({counts})) "
            "SETTINGS skip_unavailable_shards = 1",
            cluster=identifier(self._cluster),
            counts=counts_of(local),
        )
        answers = {
            int(node): {(epoch, seq, day): rows for epoch, seq, day, rows in counts}
            for node, counts in self.rows(statement, parameters)
        }
        expected = {location.segment: location.rows for location in locations}
        return agreed_counts(shard_of_node, answers, expected)

    def _processes(self) -> Sql:
        return compose("clusterAllReplicas('{cluster}', system.processes)", cluster=identifier(self._cluster))

    def kill(self, prefix: str) -> None:
        self.command(
            f"KILL QUERY ON CLUSTER '{self._cluster}' "
            f"WHERE startsWith(initial_query_id, {quoted_text(prefix)}) ASYNC"
        )

    def refill_companion(self, location: RowLocation, days: Sequence[str]) -> None:
        """See `Store`. On every shard, since a refill is idempotent."""
        super().refill_companion(location, sorted({day.rpartition("/")[2] for day in days}))

    def create_database(self) -> None:
        self._create_database(f" ON CLUSTER '{self._cluster}'")
