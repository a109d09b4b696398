"""Replicas of a shard during a derivation: each of its statements may read another one.

A derivation is discarded unless the replicas of each shard have the same spans before its first statement and
after its last, and its statements that read rows of a rollup wait until all replicas have these rows. Without
a cluster there is nothing to compare.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from receiver.console.queries.rollup.proof import nodes_of
from receiver.console.queries.rollup.tables import (
    CALLS,
    HOUR_NS,
    ROLLUPS,
    SETTINGS,
    TOTALLED,
    rollup_compose,
)
from receiver.engine.sql_text import Sql, joined
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble

Counts = Mapping[int, Mapping[int, int]]
"""Node → hour → number of spans."""
CHECKS_MAX = 50
CHECK_S = 0.2
ROWS_OF_VERSION: Final = Sql("""
Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
    AND Version = {version:UInt64}
""")
_SPANS = rollup_compose("""
SELECT toInt64({hour}) AS hour, count() AS spans FROM {table}
WHERE {in_range} AND toUnixTimestamp64Milli(ReceivedAt)
    <= transform(hour, {hours:Array(Int64)}, {received_to:Array(Int64)}, toInt64(0))
GROUP BY hour
""")
_ROWS = joined(
    " UNION ALL ",
    (
        rollup_compose(
            "SELECT '{rollup}' AS rollup, count() AS rows FROM {rollup} WHERE {of_version}",
            rollup=table,
            of_version=ROWS_OF_VERSION,
        )
        for table in (*(rollup.table for rollup in ROLLUPS), *TOTALLED, CALLS)
    ),
)
_SHARDS_OF_TRACES = rollup_compose("""
SELECT groupUniqArray(cityHash64(TraceId) % {shards:UInt32}) AS shards FROM {table} WHERE {in_range}
""")


def counts_of_nodes(store: Store, received_to_ms: Mapping[int, int]) -> Counts:
    """Count the spans of hours that were received until the time that is given for each hour."""
    parameters: Parameters = {
        "from_ns": min(received_to_ms) * HOUR_NS,
        "to_ns": (max(received_to_ms) + 1) * HOUR_NS,
        "hours": list(received_to_ms),
        "received_to": list(received_to_ms.values()),
    }
    counts = defaultdict[int, dict[int, int]](dict)
    for node, hour, spans in store.layout.rows_of_nodes(store, _SPANS, parameters, SETTINGS):
        counts[node][hour] = spans
    return counts


def agreed_counts(store: Store, hours: Sequence[int], received_to_ms: int) -> Counts | None:
    """Return the spans of each node; `None` while the replicas of a shard differ, or a shard is away."""
    if not store.layout.cluster:
        return {}
    nodes = nodes_of(store)
    counts = counts_of_nodes(store, dict.fromkeys(hours, received_to_ms))
    of_shards: dict[int, Mapping[int, int]] = {}
    for node, table in nodes.items():
        of_node = counts.get(node, {})
        if of_shards.setdefault(table.shard, of_node) != of_node:
            return None
    return {node: counts.get(node, {}) for node in nodes} or None


def await_replicas(store: Store, parameters: Parameters) -> None:
    """Wait until all replicas have the rows of a version, because the next statement may read any of them."""
    if not store.layout.cluster:
        return
    shards = dict(enumerate(store.layout.shard_of_node(store), start=1))
    for _ in range(CHECKS_MAX):
        counts = store.layout.rows_of_nodes(store, _ROWS, parameters)
        found = {(shards.get(node), rollup, rows) for node, rollup, rows in counts}
        if len(found) == len({(shard, rollup) for shard, rollup, _ in found}):
            return
        time.sleep(CHECK_S)
    cause = "the replicas of a shard have different rows of a rollup"
    raise StoreTrouble(cause, name="REPLICAS_DIFFER", advice=f"{cause}; the hours are derived again")


def has_divided_traces(store: Store, parameters: Parameters) -> bool:
    """Return whether a shard has spans of another shard's traces, as after a shard was added."""
    if not store.layout.cluster:
        return False
    nodes = nodes_of(store)
    shards = len({table.shard for table in nodes.values()})
    rows = store.layout.rows_of_nodes(store, _SHARDS_OF_TRACES, {**parameters, "shards": shards}, SETTINGS)
    return any(node not in nodes or {*found} - {nodes[node].shard - 1} for node, found in rows)
