"""A cluster in memory for the writer's tests: shards with replicas, and faults of an INSERT on each shard.

A row of a segment is a number: its day and its trace. The trace decides the shard.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from receiver.engine.cluster_store import Answer, agreed_counts
from receiver.engine.store import DayRows, RowLocation
from receiver.errors import StoreTrouble
from receiver.journal.segment_core import DayRun
from receiver.model import SegmentId
from receiver.writer.outcome import partition_id
from tests.support.fake_clickhouse import FakeCore, MemoryStore

TRACES_OF_A_DAY = 1_000
REPLICAS = 3
FAULTS = ("down", "answer_lost", "one_replica", "one_replica_then_none", "late")
"""Outcomes of an INSERT on one shard, besides success:

not applied; applied, but its answer is lost; applied on one replica, and on the others later; applied on one
replica, and removed again; applied some time after the connection is lost.
"""


def row(day: int, trace: int) -> int:
    return day * TRACES_OF_A_DAY + trace


def shard_of(number: int, shards: int) -> int:
    return number % TRACES_OF_A_DAY % shards + 1


class ClusterCore(FakeCore):
    """`FakeCore`, whose rows belong to shards."""

    def day_runs(self, segment: bytes, shards: int, /) -> list[DayRun]:
        """See `Core`."""
        return [
            (at, at + 1, number // TRACES_OF_A_DAY, shard_of(number, shards) if shards else 0)
            for at, number in enumerate(rows_of(segment))
        ]


def rows_of(segment: bytes) -> list[int]:
    return [number for record in json.loads(segment) for number in record]


@dataclass
class Part:
    """Rows of one INSERT on one shard, of one day."""

    segment: SegmentId
    day: int
    rows: list[int]
    replicas: set[int]
    resolve: Callable[[], None] | None = None
    """What happens to a part that not every replica has."""


@dataclass
class Shard:
    parts: list[Part] = field(default_factory=list)
    tokens: set[tuple[str, int]] = field(default_factory=set)
    away: set[int] = field(default_factory=set)
    """Replicas that answer nothing now."""

    def apply(self, segment: SegmentId, rows: Sequence[int], token: str, replicas: set[int]) -> list[Part]:
        """Store a part for each day whose token Keeper does not know yet."""
        days: dict[int, list[int]] = {}
        for number in rows:
            days.setdefault(number // TRACES_OF_A_DAY, []).append(number)
        new = []
        for day, of_day in days.items():
            if (token, day) not in self.tokens:
                self.tokens.add((token, day))
                new.append(Part(segment, day, of_day, set(replicas)))
        self.parts += new
        return new

    def remove(self, part: Part, token: str) -> None:
        self.parts.remove(part)
        self.tokens.discard((token, part.day))


class MemoryCluster(MemoryStore):
    """Store contract of a cluster, with faults that a random generator chooses while `is_faulty`."""

    away, settled = 0.2, 0.5
    """Probability that a shard has a replica that is away during a count, and that a part reaches all."""

    def __init__(self, random: Random, shards: int = 2) -> None:
        super().__init__()
        self.random = random
        self.nodes = [Shard() for _ in range(shards)]
        self.listed = 0
        """Number of shards that the servers list; 0: all."""
        self.is_faulty = False
        self.fault_count = 0
        self.late: list[tuple[int, str, Callable[[], object]]] = []
        """Statements that still run: polls until they end, query id, and what they do then."""

    def shards(self) -> int:
        return self.listed or len(self.nodes)

    def add_shard(self) -> None:
        self.nodes.append(Shard())

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """See `Store`. Each shard succeeds or fails for itself, as behind a `Distributed` table."""
        self.tokens.append(token)
        epoch, _, seq = segment.name.partition(".")[0].rpartition("-")
        segment_id = SegmentId(int(epoch or "7", 16), int(seq))
        rows = rows_of(segment.read_bytes())
        failed = []
        for number, shard in enumerate(self.nodes[: self.shards()], start=1):
            own = [row for row in rows if shard_of(row, self.shards()) == number]
            fault = self._fault() if own else ""
            self._apply(shard, fault, (segment_id, own, token), query_id)
            failed += [fault] if fault else []
        if failed:
            self.fault_count += len(failed)
            raise StoreTrouble(
                f"shards failed: {', '.join(failed)}", code=self.random.choice((None, 319, 279))
            )
        return len(rows)

    def _fault(self) -> str:
        return self.random.choice(FAULTS) if self.is_faulty and self.random.random() < 0.4 else ""

    def _apply(
        self, shard: Shard, fault: str, insert: tuple[SegmentId, list[int], str], query_id: str
    ) -> None:
        everywhere = set(range(REPLICAS))
        token = insert[2]
        if fault in {"", "answer_lost"}:
            shard.apply(*insert, everywhere)
        elif fault == "late":
            polls = self.random.randint(1, 4)
            self.late.append((polls, query_id, lambda: shard.apply(*insert, everywhere)))
        elif fault.startswith("one_replica"):
            for part in shard.apply(*insert, {self.random.randrange(REPLICAS)}):
                spread = lambda part=part: part.replicas.update(everywhere)  # noqa: E731 - bound to the part
                remove = lambda part=part: shard.remove(part, token)  # noqa: E731 - as above
                part.resolve = spread if fault == "one_replica" else remove

    def running(self, prefix: str) -> list[str]:
        """See `Store`. A statement ends after some polls."""
        polled = [(polls - 1, query_id, apply) for polls, query_id, apply in self.late]
        for polls, _, apply in polled:
            if polls <= 0:
                apply()
        self.late = [statement for statement in polled if statement[0] > 0]
        return [query_id for _, query_id, _ in self.late if query_id.startswith(prefix)]

    def kill(self, prefix: str) -> None:
        """See `Store`."""
        self.late = [statement for statement in self.late if not statement[1].startswith(prefix)]

    def counts(self, locations: Sequence[RowLocation]) -> dict[SegmentId, DayRows]:
        """See `Store`."""
        self.lose_replicas()
        node_shards = [number for number in range(1, self.shards() + 1) for _ in range(REPLICAS)]
        expected = {location.segment: location.rows for location in locations}
        answers = {
            (number - 1) * REPLICAS + replica + 1: self._answer(shard, replica, expected.keys())
            for number, shard in enumerate(self.nodes[: self.shards()], start=1)
            for replica in set(range(REPLICAS)) - shard.away
        }
        counts: dict[SegmentId, dict[str, int]] = {}
        for epoch, seq, day, rows in agreed_counts(node_shards, answers, expected):
            counts.setdefault(SegmentId(epoch, seq), {})[day] = rows
        return dict(counts)

    def lose_replicas(self) -> None:
        """Between two counts: some replicas are away, and some parts reach the others."""
        for shard in self.nodes:
            is_away = self.is_faulty and self.random.random() < self.away
            shard.away = {self.random.randrange(REPLICAS)} if is_away else set()
            for part in [part for part in shard.parts if part.resolve]:
                if not self.is_faulty or self.random.random() < self.settled:
                    self._resolve(part)

    @staticmethod
    def _resolve(part: Part) -> None:
        if part.resolve:
            part.resolve()
        part.resolve = None

    @staticmethod
    def _answer(shard: Shard, replica: int, segments: object) -> Answer:
        rows: Counter[tuple[int, int, str]] = Counter()
        for part in shard.parts:
            if replica in part.replicas and part.segment in segments:  # type: ignore[operator]  # keys of a dict
                rows[part.segment.epoch, part.segment.seq, partition_id(part.day, 0)] += len(part.rows)
        return dict(rows)

    @property
    def stored_rows(self) -> list[int]:
        """Rows of all shards, in order. Every replica must have them."""
        parts = [part for shard in self.nodes for part in shard.parts]
        assert all(len(part.replicas) == REPLICAS for part in parts)
        return sorted(number for part in parts for number in part.rows)
