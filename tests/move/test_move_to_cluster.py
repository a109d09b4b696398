"""Move to a cluster: each row is copied once to its shard, whichever shards and replicas fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from random import Random
from typing import IO, Any
from uuid import uuid4

import pytest
from pyarrow import ipc  # type: ignore[import-untyped]  # it has no types

from receiver.engine import schema
from receiver.engine.cluster import Layout
from receiver.engine.cluster_store import agreed_sums
from receiver.engine.copying import DAY_HOURS, Pieces, Read, named_pieces
from receiver.engine.store import Store
from receiver.errors import CommandFailed, StoreTrouble
from receiver.model import SegmentId
from receiver.move import mover
from receiver.move.ends import lines_of, pieces_in
from receiver.move.mover import Moved
from tests.support import engines
from tests.support.cases import RANDOM_CASES
from tests.support.fake_clickhouse import TODAY, schema_sources
from tests.support.memory_cluster import REPLICAS, TRACES_OF_A_DAY, MemoryCluster, row, shard_of
from tests.support.memory_disk import Killed
from tests.support.moves import EPOCH, HOUR, Move, add, content, unreachable
from tests.support.one_node_cluster import CLUSTER, OneNodeCluster

RUNS_MAX = 200


class MemorySource:
    """Embedded store with rows of some segments, all of the first hour of their day."""

    def __init__(self, segments: dict[int, list[int]]) -> None:
        """`segments`: rows by sequence number."""
        self.segments = segments

    def lines(self, read: Read) -> list[dict[str, Any]]:
        """See `MoveSource`."""
        rows = [number for numbers in self.segments.values() for number in numbers]
        days = sorted({number // TRACES_OF_A_DAY for number in rows})
        if read.what == "days":
            return [{"day": "20260131", "spans": len(rows)} for _ in days[:1]]
        if read.what == "hours":
            return [{"hour": day * DAY_HOURS} for day in days]
        if read.what != "segments":
            return []
        pieces = (
            (shard, seq, self.rows_of(read, seq, shard))
            for shard in range(read.shards)
            for seq in self.segments
        )
        return [
            {"shard": shard, "epoch": EPOCH, "seq": seq, "rows": len(numbers), "checksum": sum(numbers)}
            for shard, seq, numbers in pieces
            if numbers
        ]

    def arrow(self, read: Read) -> Iterator[bytes]:
        """See `MoveSource`."""
        [seq] = read.seqs
        yield json.dumps([seq, self.rows_of(read, seq, read.shard)]).encode()

    def rows_of(self, read: Read, seq: int, shard: int) -> list[int]:
        return [
            number
            for number in self.segments[seq]
            if number // TRACES_OF_A_DAY * DAY_HOURS == read.hour
            and shard_of(number, read.shards) == shard + 1
        ]


class MemoryTarget(MemoryCluster):
    """`MemoryCluster` with the methods that a move calls. Keeper forgets tokens now and then."""

    away, settled = 0.5, 0.2

    def insert_arrow(self, _table: str, body: IO[bytes], *, token: str, query_id: str) -> int:
        if self.is_faulty and self.random.random() < 0.1:
            raise Killed
        body.seek(0)
        seq, rows = json.loads(body.read())
        [number] = {shard_of(each, self.shards()) for each in rows}
        fault, shard = self._fault(), self.nodes[number - 1]
        if self.is_faulty and self.random.random() < 0.2:
            shard.tokens.clear()
        self._apply(shard, fault, (SegmentId(EPOCH, seq), rows, token), query_id)
        if self.is_faulty and self.random.random() < 0.1:
            raise Killed
        if fault:
            self.fault_count += 1
            raise StoreTrouble(fault)
        return len(rows)

    def pieces(self, read: Read) -> Pieces:
        # Time passes for the statements that still run, and for replication.
        self.running("")
        self.lose_replicas()
        node_shards = [number for number in range(1, self.shards() + 1) for _ in range(REPLICAS)]
        answers = {
            (number - 1) * REPLICAS + replica + 1: self.sums_of(number, replica, read.hour)
            for number, shard in enumerate(self.nodes, start=1)
            for replica in set(range(REPLICAS)) - shard.away
        }
        return named_pieces(agreed_sums(node_shards, answers, is_of_all=True))

    def sums_of(self, number: int, replica: int, hour: int) -> dict[tuple[int, ...], tuple[int, int]]:
        sums: dict[tuple[int, ...], tuple[int, int]] = {}
        for part in self.nodes[number - 1].parts:
            if replica in part.replicas and part.day * DAY_HOURS == hour:
                key = (number - 1, part.segment.epoch, part.segment.seq)
                rows, checksum = sums.get(key, (0, 0))
                sums[key] = (rows + len(part.rows), checksum + sum(part.rows))
        return sums

    def rows(self, *_: object) -> list[tuple[object, ...]]:
        return []

    def lines(self, *_: object) -> Iterator[bytes]:
        yield b""


def moved(source: MemorySource, target: MemoryTarget) -> Moved:
    stores: Any = (source, target)
    return Move(*stores).run(source=source)


@pytest.mark.random_cases
@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_each_row_is_copied_once_whatever_fails(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "CHUNK_SEGMENTS_MAX", 1)
    random = Random(seed)
    target = MemoryTarget(random, shards=random.randint(1, 4))
    days = [TODAY - day for day in range(2)]
    segments = {
        seq: [row(random.choice(days), trace) for trace in range(seq * 20, seq * 20 + random.randint(1, 12))]
        for seq in range(random.randint(1, 8))
    }
    source = MemorySource(segments)
    everything = sorted(number for numbers in segments.values() for number in numbers)
    target.is_faulty = True

    for _ in range(RUNS_MAX):
        with suppress(StoreTrouble, CommandFailed, Killed):
            assert moved(source, target).equal == len(everything)
            break
    else:
        target.is_faulty = False
        moved(source, target)

    target.is_faulty = False
    target.lose_replicas()
    assert target.stored_rows == everything


def test_rows_of_a_shard_that_are_there_in_part_are_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "CHUNK_SEGMENTS_MAX", 1)
    target = MemoryTarget(Random(1))
    source = MemorySource({1: [row(TODAY, trace) for trace in range(8)]})
    moved(source, target)
    target.nodes[0].parts[0].rows.pop()

    with pytest.raises(CommandFailed, match=r"the cluster has a part of 1 segment, such as .*-0000000001"):
        moved(source, target)


def test_reads_divide_the_rows_by_shard_as_the_distributed_table_does(source: Store) -> None:
    add(source, 1, rows=60)
    table = Layout(CLUSTER, "otel").statements("CREATE TABLE IF NOT EXISTS otel_traces\nENGINE = MergeTree")[
        1
    ]
    key = table.rpartition("'otel_traces_local', ")[2].removesuffix(")")
    by_shard = f"SELECT {key} % 3 AS shard, count() FROM otel_traces GROUP BY shard ORDER BY shard"  # noqa: S608 - ours
    counted = source.rows(by_shard)

    pieces = pieces_in(lines_of(source, Read("segments", HOUR, shards=3)))
    spans = [
        b"".join(Read("spans", HOUR, EPOCH, (1,), shards=3, shard=shard).run(source)) for shard in range(3)
    ]

    assert sorted((piece.shard, rows.rows) for piece, rows in pieces.items()) == counted
    assert [(shard, ipc.open_stream(rows).read_all().num_rows) for shard, rows in enumerate(spans)] == counted


def test_every_column_reaches_the_tables_of_a_cluster(source: Store, server_url: str) -> None:
    database = f"move_{uuid4().hex}"
    with closing(engines.connected(server_url, database=database)) as server:
        server.create_database()
        cluster = OneNodeCluster(server, database)
        schema.apply(cluster, schema_sources(), 30, layout=Layout(CLUSTER, database))
        for seq in (1, 2):
            add(source, seq)

        assert Move(source, cluster).run() == Moved(copied=20, equal=20, unfinished=0)

        assert content(cluster) == content(source)
        # As after a kill of the server between the two tables.
        server.command("TRUNCATE TABLE otel_traces_trace_id_ts_local")
        assert unreachable(cluster)
        assert Move(source, cluster).run() == Moved(copied=0, equal=20, unfinished=0)
        assert unreachable(cluster) == 0
        server.command(f"DROP DATABASE {database}")
