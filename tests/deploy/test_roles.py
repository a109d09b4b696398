"""The roles for a ClickHouse server: each may do what it is for, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from receiver.engine.connection_check import RIGHTS_OF_NEW_DATABASE
from receiver.engine.store import Store, Version
from tests.deploy.engine_as_role import codes_as, grants_of, statements
from tests.support import engines

ROOT: Final = Path(__file__).parents[2]
OWNER: Final = "trace_drain_schema"
CHANGES: Final = {"create a table", "change a table", "drop a table"}
WRITES: Final = {
    *("insert a segment", "probe", "refill the companion", "try dead letters"),
    *("invalidate a rollup", "empty the rollups"),
}
DENIED: Final = {
    "trace_drain_writer": CHANGES,
    "trace_drain_reader": {"apply the schema", "read migrations"} | CHANGES | WRITES,
    "trace_drain_project_example": {"apply the schema", "read migrations", "read rollups"} | CHANGES | WRITES,
    "trace_drain_operator": CHANGES | WRITES,
    OWNER: {"empty the rollups"},
}
"""Role → calls that the engine denies. The writer finds nothing to apply, because the owner has done so."""
ALWAYS_READABLE: Final = {
    *("columns", "databases", "functions", "one", "settings", "table_functions", "tables")
}
"""Tables of `system` that need no right, even with select_from_system_db_requires_grant."""
READ_PROCESSES: Final = {"trace_drain_writer", "trace_drain_operator"}
EMBEDDED_ONLY: Final = {"embedded.py", "expiry.py", "mutations.py"}


SERVER: Final = os.environ.get("TRACE_DRAIN_TEST_CLICKHOUSE", "")
PREFIXES_SINCE: Final = Version(24, 10)
ACCESS_DENIED: Final = 497


def codes_of(role: str, directory: Path) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.engine_as_role", str(directory), role],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    codes: dict[str, int] = json.loads(done.stdout)
    return codes


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a store whose schema the owner has applied."""
    directory = tmp_path_factory.mktemp("roles")
    codes_of(OWNER, directory)
    return directory


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.mark.parametrize("role", DENIED)
def test_engine_denies_a_role_only_what_the_role_is_not_for(directory: Path, role: str) -> None:
    assert codes_of(role, directory) == dict.fromkeys(DENIED[role], ACCESS_DENIED)


@pytest.mark.skipif(not SERVER, reason="TRACE_DRAIN_TEST_CLICKHOUSE is not set")
def test_server_denies_a_role_only_what_the_role_is_not_for(tmp_path: Path) -> None:
    admin = engines.connected(SERVER, database="default")
    if admin.version() < PREFIXES_SINCE:
        pytest.skip(f"ClickHouse {admin.version()} has no grants on prefixes of tables")
    suffix = uuid4().hex
    roles = "|".join(DENIED)
    for statement in statements():
        admin.command(
            re.sub(rf"\b({roles})\b", rf"\1_{suffix}", re.sub(r"\botel\.", f"otel_{suffix}.", statement))
        )
    for role in (OWNER, *DENIED):
        user = f"user_of_{role}_{suffix}"
        admin.command(f"CREATE USER IF NOT EXISTS {user} IDENTIFIED WITH sha256_password BY '{suffix}'")
        admin.command(f"GRANT {role}_{suffix} TO {user}")
        url = SERVER.partition("://")[0] + f"://{user}:{suffix}@" + SERVER.rpartition("@")[2]
        store = engines.connected(url, database=f"otel_{suffix}")
        codes = codes_as(store, tmp_path)
        store.close()
        # Only the writer and the operator may read the list of running queries.
        unable = set() if role in READ_PROCESSES else {"kill own queries"}
        assert codes == dict.fromkeys(DENIED[role] | unable, ACCESS_DENIED), role
    admin.command(f"DROP DATABASE otel_{suffix}")
    admin.close()


def test_engine_parses_every_statement(store: Store) -> None:
    for statement in statements():
        assert store.rows(f"EXPLAIN AST {statement}"), statement


def test_writer_and_owner_may_read_exactly_the_system_tables_that_statements_name() -> None:
    sources = [
        path
        for part in ("engine", "console/queries", "platform", "writer")
        for path in (ROOT / "receiver" / part).rglob("*.py")
        if path.name not in EMBEDDED_ONLY
    ]
    named = {
        name
        for path in sources
        for name in re.findall(r'(?:FROM |JOIN |, |")system\.(\w+)', path.read_text())
    }
    granted = {
        name
        for role in (OWNER, "trace_drain_writer")
        for grant in grants_of(role)
        for name in re.findall(r"ON system\.(\w+)$", grant)
    }

    assert granted == named - ALWAYS_READABLE


def test_owner_has_every_right_that_config_check_requires() -> None:
    (grant,) = (grant for grant in grants_of(OWNER) if grant.endswith("ON otel.*"))

    rights = grant.removeprefix("GRANT ").removesuffix(" ON otel.*").split(", ")
    assert sorted(rights) == sorted(RIGHTS_OF_NEW_DATABASE)


def test_every_role_that_reads_spans_has_a_row_policy() -> None:
    roles = {name for text in statements() for name in re.findall(r"CREATE ROLE IF NOT EXISTS (\w+)", text)}
    policies = [text for text in statements() if text.startswith("CREATE ROW POLICY")]

    assert roles == set(DENIED)
    assert {name for text in policies for name in re.findall(r"\w+", text.rpartition(" TO ")[2])} == roles
