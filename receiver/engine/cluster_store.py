"""Store on a ClickHouse cluster: a `Distributed` table over a table of the same columns on every node.

Rows go to the shards by their trace. An INSERT waits until a majority of the replicas of each shard has its
rows; one whose answer was lost may have reached fewer, and replication brings its rows to the others later.
Running statements are looked for on all nodes, because a load balancer may send each request to another node.

Invariant: rows count as stored only if a majority of the replicas has them, and as missing only if every
replica answered that it has none: a replica that is away may have the only copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.cluster import local_table
from receiver.engine.columns import PROBE_OF_SHARDS
from receiver.engine.copying import pieces_of
from receiver.engine.sql import counts_of, headings_of, quoted_text
from receiver.engine.sql_text import Sql, compose, identifier
from receiver.engine.store import TABLE, Count, Parameters, RowLocation
from receiver.errors import StoreTrouble
from receiver.model import SegmentId

UNKNOWN_STATUS_OF_INSERT = 319

T = TypeVar("T")
Key = TypeVar("Key", bound=tuple[Any, ...])
Value = TypeVar("Value", int, tuple[int, int])
Answers = dict[int, list[Any]]
"""Array of each replica that answered, by the number of the replica."""
Answer = Mapping[tuple[int, int, str], int]
"""Rows on one replica by epoch, sequence number and day."""

Sums = Mapping[tuple[Any, ...], tuple[int, int]]
"""Row count and checksum of each key on one replica."""


class ClusterStore(ClickHouseStore):
    _marked_settings: ClassVar[Mapping[str, str]] = {"distributed_product_mode": "global"}
    _insert_settings: ClassVar[Mapping[str, str]] = {"insert_quorum": "auto"}
    _running_id = Sql("initial_query_id")

    def shards(self) -> int:
        return len(set(self._shard_of_node()))

    def _shard_of_node(self) -> list[int]:
        return self.layout.shard_of_node(self)

    def _of_replicas(self, statement: Callable[[Sql], Sql], column: Sql, parameters: Parameters) -> Answers:
        """Run a statement that returns one array, on the rows of each replica.

        Each replica returns one row, so that those that were skipped, because they are away, are missed.
        """
        local = compose(
            "{database}.{local}", database=identifier(self._database), local=identifier(local_table(TABLE))
        )
        of_replicas = compose(
            "SELECT _shard_num, {column} FROM clusterAllReplicas('{cluster}', view({of_replica})) "
            "SETTINGS skip_unavailable_shards = 1",
            column=column,
            cluster=identifier(self._cluster),
            of_replica=statement(local),
        )
        return {int(node): list(array) for node, array in self.rows(of_replicas, parameters)}

    def _counted(self, parameters: Parameters, locations: Sequence[RowLocation]) -> list[Count]:
        # Before the count: a replica that is added between the two gives no answer, or one too many.
        shard_of_node = self._shard_of_node()
        answers = {
            node: {(epoch, seq, day): rows for epoch, seq, day, rows in counts}
            for node, counts in self._of_replicas(counts_of, identifier("counts"), parameters).items()
        }
        expected = {location.segment: location.rows for location in locations}
        return agreed_counts(shard_of_node, answers, expected)

    def _headings(self, parameters: Parameters) -> list[Any]:
        return self._sums(headings_of, identifier("headings"), parameters)

    def _piece_sums(self, parameters: Parameters) -> list[Any]:
        """See `ClickHouseStore`. Of all replicas: one that is away may have rows that the others lack."""
        return self._sums(pieces_of, identifier("pieces"), parameters, is_of_all=True)

    def _sums(
        self, statement: Callable[[Sql], Sql], column: Sql, parameters: Parameters, *, is_of_all: bool = False
    ) -> list[Any]:
        shard_of_node = self._shard_of_node()
        answers = {
            node: {tuple(key): (rows, checksum) for *key, rows, checksum in sums}
            for node, sums in self._of_replicas(statement, column, parameters).items()
        }
        return agreed_sums(shard_of_node, answers, is_of_all=is_of_all)

    def probe(self) -> None:
        """See `Store`. A row on each shard: a shard that fails is no fault of the data of a segment."""
        self._column_check.run()
        self._insert_select(PROBE_OF_SHARDS, {"shards": self.shards()}, self._insert_settings)

    def _processes(self) -> Sql:
        return compose("clusterAllReplicas('{cluster}', system.processes)", cluster=identifier(self._cluster))

    def _all_rows(self) -> Sql:
        return compose(
            "clusterAllReplicas('{cluster}', {database}, {local})",
            cluster=identifier(self._cluster),
            database=identifier(self._database),
            local=identifier(local_table(TABLE)),
        )

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
    for shard, given, majority in _by_shard(shard_of_node, answers):
        for (epoch, seq, day), rows in _agreed(given, majority, 0):
            counts.append((epoch, seq, f"{shard}/{day}", rows))
    if away := len(shard_of_node) - len(answers):
        _require_all_rows(counts, expected, f"{away} of {len(shard_of_node)} replicas")
    return counts


def agreed_sums(
    shard_of_node: Sequence[int], answers: Mapping[int, Sums], *, is_of_all: bool = False
) -> list[Any]:
    """Return keys with row count and checksum, as the majorities have them. See `agreed_counts`.

    `is_of_all`: raise unless every replica answers.
    """
    away = len(shard_of_node) - len(answers)
    if is_of_all and away:
        raise _undecided(f"{away} of {len(shard_of_node)} replicas do not answer")
    sums: dict[tuple[object, ...], tuple[int, int]] = {}
    for _, given, majority in _by_shard(shard_of_node, answers):
        for key, (rows, checksum) in _agreed(given, majority, (0, 0)):
            before = sums.get(key, (0, 0))
            sums[key] = (before[0] + rows, (before[1] + checksum) % (1 << 64))
    return [(*key, *value) for key, value in sums.items()]


def _by_shard(
    shard_of_node: Sequence[int], answers: Mapping[int, T]
) -> Iterator[tuple[int, Sequence[T], int]]:
    """Yield each shard with the answers of its replicas, and the number of replicas that is a majority."""
    for shard in sorted(set(shard_of_node)):
        nodes = [node for node, of in enumerate(shard_of_node, start=1) if of == shard]
        given = [answers[node] for node in nodes if node in answers]
        majority = len(nodes) // 2 + 1
        if len(given) < majority:
            raise _undecided(f"{len(given)} of {len(nodes)} replicas of shard {shard} answer")
        yield shard, given, majority


def _agreed(
    answers: Sequence[Mapping[Key, Value]], majority: int, none: Value
) -> Iterator[tuple[Key, Value]]:
    """Yield the value of each key that a majority has; `none` is that of a replica without the key."""
    for key in sorted({key for answer in answers for key in answer}):
        values = [answer.get(key, none) for answer in answers]
        if values.count(max(values)) < majority:
            raise _undecided("the replicas of a shard have different rows of a segment")
        yield key, max(values)


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
