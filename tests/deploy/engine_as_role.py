"""The embedded engine with the rights of one role of deploy/clickhouse/roles.sql, in a process of its own.

    python -m tests.deploy.engine_as_role DIRECTORY ROLE   print the error code of each call that fails

The engine here has no CREATE ROLE, so its only user gets the rights of the role. It grants the tables of
`system` to everyone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import clickhouse_connect
import msgspec
from clickhouse_connect.driver.client import Client

from receiver.console.queries.rollup import slots
from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.store import TABLE, Store
from receiver.errors import StoreTrouble
from receiver.settings import GIB, Settings
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker

ROLES = Path(__file__).parents[2] / "deploy/clickhouse/roles.sql"
USERS = """<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default>
<password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>
<grants>{grants}</grants></default></users></clickhouse>"""
CONFIG = """<clickhouse><user_directories><users_xml><path>{users}</path></users_xml></user_directories>
</clickhouse>"""


def statements() -> list[str]:
    text = re.sub(r"^\s*--.*\n", "", ROLES.read_text(), flags=re.MULTILINE)
    return [statement.strip() for statement in text.split(";") if statement.strip()]


def grants_of(role: str) -> list[str]:
    """Return the statements that grant rights to a role, without the role."""
    end = f" TO {role}"
    return [
        text.removesuffix(end) for text in statements() if text.startswith("GRANT") and text.endswith(end)
    ]


class RestrictedStore(EmbeddedStore):
    """Embedded store whose user has some rights only."""

    def __init__(self, directory: Path, grants: list[str]) -> None:
        users, self._config = directory / "users.xml", directory / "config.xml"
        users.write_text(USERS.format(grants="".join(f"<query>{grant}</query>" for grant in grants)))
        self._config.write_text(CONFIG.format(users=users))
        super().__init__(directory / "store", database="otel", memory_bytes_max=GIB, disk_free_min=lambda: 1)

    def _connect(self, database: str | None) -> Client:
        options = {**self._options, "config-file": str(self._config)}
        return clickhouse_connect.get_client(
            interface="chdb", path=str(self._path), database=database, chdb_options=options
        )

    def create_database(self) -> None:
        # As on a server, where it is created only if it is missing.
        if not self._anchor.query("SELECT 1 FROM system.databases WHERE name = 'otel'").result_rows:
            super().create_database()


def calls_of(store: Store, directory: Path) -> Mapping[str, Callable[[], object]]:
    segment = SegmentMaker(directory).make(0, 1)
    location, days = segment.location, list(segment.days)
    return {
        "apply the schema": lambda: schema.apply(store, schema_sources(), *schema.wanted(Settings())),
        # The schema owner runs first and leaves the table for the roles that may not drop it.
        "drop a table": lambda: store.command("DROP TABLE IF EXISTS otel_x"),
        "create a table": lambda: store.command("CREATE TABLE otel_x (a Int8) ENGINE = MergeTree ORDER BY a"),
        "change a table": lambda: store.command(f"ALTER TABLE {TABLE} MODIFY COMMENT ''"),
        "insert a segment": lambda: store.insert(segment.path, token="#0", query_id="trace-drain-0"),
        "probe": store.probe,
        "refill the companion": lambda: store.refill_companion(location, days),
        "try dead letters": lambda: store.refusal_of(segment.path),
        "drop stale trials": store.forget_trials,
        "kill own queries": lambda: store.kill("trace-drain"),
        "invalidate a rollup": lambda: slots.invalidate(store, 1),
        "empty the rollups": lambda: slots.invalidate(store, None),
        "read spans": lambda: store.rows_by_heading(location),
        "read rollups": lambda: store.rows("SELECT count() FROM otel_red"),
        "read migrations": lambda: store.rows("SELECT count() FROM trace_drain_migrations"),
    }


def codes_as(store: Store, directory: Path) -> dict[str, int]:
    """Return the engine's error code of each call that fails."""
    codes = {name: _code_of(call) for name, call in calls_of(store, directory).items()}
    return {name: code for name, code in codes.items() if code}


def _code_of(call: Callable[[], object]) -> int:
    try:
        # A trial returns its refusal.
        result = call()
    except StoreTrouble as trouble:
        result = trouble
    return (result.code or -1) if isinstance(result, StoreTrouble) else 0


def main(directory: Path, role: str) -> None:
    store = RestrictedStore(directory, grants_of(role))
    print(msgspec.json.encode(codes_as(store, directory)).decode())  # noqa: T201 - the output of this program
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
