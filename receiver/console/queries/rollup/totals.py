"""Total rows: each proves for an hour that the other rows of a rollup are complete.

Invariant: the total row of an hour is written last. It holds the sum of the other rows, so that lost,
repeated and missing rows are noticed, and their definition, so that rows with another meaning are not read.
"""

from __future__ import annotations

from receiver.console.queries.rollup.replicas import ROWS_OF_VERSION, await_replicas
from receiver.console.queries.rollup.tables import rollup_compose
from receiver.engine.sql_text import Sql
from receiver.engine.store import Parameters, Store

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


def write_total(store: Store, table: Sql, parameters: Parameters, key: Sql = _DEFINITION) -> None:
    """Write the total row of each derived hour. `parameters`: as for the rows, and those of the key."""
    await_replicas(store, parameters)
    statement = rollup_compose(_TOTAL, rollup=table, rows=ROWS_OF_VERSION, key=key)
    store.rows(store.layout.on_shards(statement), parameters)
