"""Child process with an engine that knows clusters of itself: rollups are derived by the real statements.

    python -m tests.console.rollup.cluster_child DIRECTORY

The engine takes its own address for the nodes, so no port is needed. Prints the number of derived hours, and
how often a cluster of two shards, which both have the same tables, derives each span.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from receiver.console.queries import projects
from receiver.console.queries.rollup.derivation import insert_statement
from receiver.console.queries.rollup.tables import HOUR_NS, OPERATIONS
from receiver.engine import schema
from receiver.engine.cluster import Layout
from receiver.engine.embedded import EmbeddedStore
from tests.support import attribute_rollups as of_attributes
from tests.support import error_rollups as of_errors
from tests.support.attribute_rollups import PROMOTED
from tests.support.fake_clickhouse import schema_sources
from tests.support.random_filters import insert
from tests.support.rollups import FROM_NS, TO_NS, assert_equal, derive_all, random_spans

_SHARD = "<shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>"
CONFIG = (
    f"<clickhouse><tcp_port>9000</tcp_port><remote_servers><prod>{_SHARD}</prod><two>{_SHARD * 2}</two>"
    "</remote_servers><macros><shard>1</shard><replica>a</replica></macros></clickhouse>"
)
DATABASE = "otel"


class ClusterOfItself(EmbeddedStore):
    """Embedded store that is a cluster of one node."""

    layout = Layout("prod", DATABASE)

    def _connect(self, database: str | None) -> Client:
        config = self._path.with_name("config.xml")
        config.write_text(CONFIG)
        return clickhouse_connect.get_client(
            interface="chdb",
            path=str(self._path),
            database=database,
            chdb_options={"config-file": str(config)},
        )

    def command(self, statement: str) -> None:
        """See `Store`. Without Keeper, the engine knows neither replicas nor `ON CLUSTER`."""
        statement = statement.replace(" ON CLUSTER 'prod'", "")
        statement = re.sub(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?", r"\1(", statement)
        super().command(re.sub(r"replicated_deduplication_window\w* = \d+,\s*", "", statement))


def main(directory: Path) -> None:
    store = ClusterOfItself(
        directory / "store", database=DATABASE, memory_bytes_max=2 << 30, disk_free_min=lambda: 0
    )
    applied = schema.apply(store, schema_sources(), 30, PROMOTED, layout=store.layout)
    assert schema.PROMOTED in applied
    assert schema.apply(store, schema_sources(), 30, PROMOTED, layout=store.layout) == []
    spans = random_spans(random.Random(1))
    insert(store, spans)
    assert_equal(store, spans)
    of_attributes.assert_equal(store, spans)
    derived = derive_all(store)
    assert_equal(store, spans, slots_min=40)
    of_attributes.assert_equal(store, spans)
    of_errors.assert_equal(store, reads_rollups=True)

    for table in projects.TABLES:
        with store.marked("limited", projects.table_filters(["prj_1"])):
            found = store.rows(f"SELECT DISTINCT ProjectId FROM {table}")  # noqa: S608 - ours
        assert set(found) <= {("prj_1",)}, table
    store.command("CREATE TABLE red_local AS otel_red_local ENGINE = MergeTree ORDER BY tuple()")
    store.command(f"CREATE TABLE red AS red_local ENGINE = Distributed('two', '{DATABASE}', 'red_local')")
    of_two_shards = Layout("two", DATABASE).on_shards(insert_statement(OPERATIONS))
    store.rows(
        of_two_shards.replace("INTO otel_red ", "INTO red "),
        {
            "hours": list(range(FROM_NS // HOUR_NS, TO_NS // HOUR_NS)),
            "from_ns": FROM_NS,
            "to_ns": TO_NS,
            "received_to_ms": TO_NS // 10**6,
            "version": 1,
        },
    )
    ((counted,),) = store.rows("SELECT sum(Spans) FROM red_local")
    in_range = sum(FROM_NS <= span["start_ns"] < TO_NS for span in spans)
    print(json.dumps({"hours": len(derived), "times": counted / in_range}))  # noqa: T201 - the parent reads it
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
