"""Child process: trial INSERT over a `Distributed` table of an embedded engine. `… DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker

CLUSTER = (
    "<clickhouse><remote_servers><local><shard><replica><host>127.0.0.1</host><port>9</port></replica></shard>"
    "</local></remote_servers></clickhouse>"
)


class Clustered(EmbeddedStore):
    """Embedded store with a cluster on a closed port: nothing may be sent there."""

    def _connect(self, database: str | None) -> Client:
        config = self._path.with_name("config.xml")
        config.write_text(CLUSTER)
        options = {"config-file": str(config)}
        return clickhouse_connect.get_client(
            interface="chdb", path=str(self._path), database=database, chdb_options=options
        )


def main(directory: Path) -> None:
    """Print the error code of the refusal, without and with a constraint on the underlying table."""
    store = Clustered(directory / "store", database="otel", memory_bytes_max=2 << 30, disk_free_min=lambda: 0)
    schema.apply(store, schema_sources(), 30)
    store.command("RENAME TABLE otel_traces TO otel_traces_local")
    store.command(
        "CREATE TABLE otel_traces AS otel_traces_local "
        "ENGINE = Distributed(local, currentDatabase(), otel_traces_local, cityHash64(TraceId))"
    )
    segment = SegmentMaker(directory).make(0, 0)
    before = store.refusal_of(segment.path)
    store.command("ALTER TABLE otel_traces_local ADD CONSTRAINT no_shop CHECK ServiceName != 'shop'")
    refusal = store.refusal_of(segment.path)
    print(before, refusal.code if refusal else None)  # noqa: T201 - the parent process reads it
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
