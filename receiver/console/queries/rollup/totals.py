"""Total rows: each proves for an hour that the other rows of a rollup are complete.

Invariant: the total row of an hour is written last. It holds the sum of the other rows, so that lost,
repeated and missing rows are noticed, and their definition, so that rows with another meaning are not read.
"""

from __future__ import annotations

import time

from receiver.console.queries.rollup.tables import CALLS, ROLLUPS, TOTALLED, rollup_compose
from receiver.engine.sql_text import Sql, joined
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble

ROWS_OF_VERSION = Sql("""
Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
    AND Version = {version:UInt64}
""")
_TOTAL = """
INSERT INTO {rollup} (Hour, Key, Version, Spans)
SELECT hour, {key}, {version:UInt64}, sum(spans)
FROM
(
    SELECT toDateTime(arrayJoin({hours:Array(UInt32)}) * {hour_s}, 'UTC') AS hour, toUInt64(0) AS spans
    UNION ALL
    SELECT Hour AS hour, Spans AS spans FROM {rollup} WHERE {rows}
)
GROUP BY hour
{settings}
"""


_DEFINITION = Sql("{definition:String}")
_COUNTS = joined(
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
REPLICATION_CHECKS = 50
CHECK_S = 0.2


def await_replicas(store: Store, parameters: Parameters) -> None:
    """Wait until all replicas have the rows of a version, because the next statement may read any of them."""
    if not store.layout.cluster:
        return
    shards = dict(enumerate(store.layout.shard_of_node(store), start=1))
    for _ in range(REPLICATION_CHECKS):
        counts = store.layout.rows_of_nodes(store, _COUNTS, parameters)
        found = {(shards.get(node), rollup, rows) for node, rollup, rows in counts}
        if len(found) == len({(shard, rollup) for shard, rollup, _ in found}):
            return
        time.sleep(CHECK_S)
    cause = "the replicas of a shard have different rows of a rollup"
    raise StoreTrouble(cause, name="REPLICAS_DIFFER", advice=f"{cause}; the hours are derived again")


def write_total(store: Store, table: Sql, parameters: Parameters, key: Sql = _DEFINITION) -> None:
    """Write the total row of each derived hour. `parameters`: as for the rows, and those of the key."""
    await_replicas(store, parameters)
    statement = rollup_compose(_TOTAL, rollup=table, rows=ROWS_OF_VERSION, key=key)
    store.rows(store.layout.on_shards(statement), parameters)
