"""Store on a ClickHouse cluster: a `Distributed` table over a table of the same columns on every node.

Rows go to the shards by their trace. An INSERT waits until a majority of the replicas of each shard has its
rows; one whose answer was lost may have reached fewer, and replication brings its rows to the others later.
Running statements are looked for on all nodes, because a load balancer may send each request to another node.

Invariant: rows count as stored only if a majority of the replicas has them, and as missing only if every
replica answered that it has none: a replica that is away may have the only copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.cluster import local_table
from receiver.engine.sql import counts_of, quoted_text
from receiver.engine.sql_text import Sql, compose, identifier
from receiver.engine.store import TABLE, Count, Parameters, RowLocation
from receiver.errors import StoreTrouble
from receiver.model import SegmentId

UNKNOWN_STATUS_OF_INSERT = 319

Answer = Mapping[tuple[int, int, str], int]
"""Rows on one replica by epoch, sequence number and day."""

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


def agreed_counts(
    shard_of_node: Sequence[int], answers: Mapping[int, Answer], expected: Mapping[SegmentId, int]
) -> list[Count]:
    """Return the counts by day of a shard, see `DayRows`. Raises `StoreTrouble` while they are undecided.

    `shard_of_node`: shard of each replica. `answers`: by the number of the replica in that list, from 1.
    `expected`: rows that each segment should have; 0: unknown.
    """
    counts: list[Count] = []
    away: list[str] = []
    for shard in sorted(set(shard_of_node)):
        nodes = [node for node, of in enumerate(shard_of_node, start=1) if of == shard]
        given = [answers[node] for node in nodes if node in answers]
        majority = len(nodes) // 2 + 1
        if len(given) < majority:
            raise _undecided(f"{len(given)} of {len(nodes)} replicas of shard {shard} answer")
        if len(given) < len(nodes):
            away.append(f"{len(nodes) - len(given)} of {len(nodes)} replicas of shard {shard}")
        counts += _of_shard(shard, given, majority)
    if away:
        _require_all_rows(counts, expected, ", ".join(away))
    return counts


def _of_shard(shard: int, answers: Sequence[Answer], majority: int) -> list[Count]:
    counts = []
    for epoch, seq, day in sorted({key for answer in answers for key in answer}):
        rows = [answer.get((epoch, seq, day), 0) for answer in answers]
        if rows.count(max(rows)) < majority:
            raise _undecided(f"replicas of shard {shard} have {min(rows)} to {max(rows)} rows of a segment")
        counts.append((epoch, seq, f"{shard}/{day}", max(rows)))
    return counts


def _require_all_rows(counts: Sequence[Count], expected: Mapping[SegmentId, int], away: str) -> None:
    """Raise `StoreTrouble` if rows are missing, which the replicas that are away may have."""
    found: Counter[SegmentId] = Counter()
    for epoch, seq, _, rows in counts:
        found[SegmentId(epoch, seq)] += rows
    for segment, rows in expected.items():
        if not rows or found[segment] < rows:
            raise _undecided(f"{away} do not answer, and may have rows of segment {segment}")


def _undecided(found: str) -> StoreTrouble:
    text = f"{found}; the rows are counted again"
    return StoreTrouble(text, code=UNKNOWN_STATUS_OF_INSERT, name="UNKNOWN_STATUS_OF_INSERT", advice=text)
