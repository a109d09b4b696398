"""Rows of segments on the replicas of a cluster: the counts that a majority of the replicas agrees on.

An INSERT with a quorum is acknowledged when a majority of the replicas of a shard has its rows, and an INSERT
whose answer was lost may have reached fewer. Replication brings the rows to the others later.

Invariant: rows count as stored only if a majority of the replicas has them, and as missing only if every
replica answered that it has none: a replica that is away may have the only copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from receiver.errors import StoreTrouble
from receiver.model import SegmentId

UNKNOWN_STATUS_OF_INSERT = 319

Count = tuple[int, int, str, int]
"""Epoch and sequence number of a segment, day and rows."""
Answer = Mapping[tuple[int, int, str], int]
"""Rows on one replica by epoch, sequence number and day."""


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
