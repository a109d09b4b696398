"""Tables of a cluster on an engine with ZooKeeper, which speaks the protocol of Keeper."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from receiver.engine import schema
from receiver.engine.cluster import Layout
from tests.engine.test_cluster import SERVER
from tests.support.fake_clickhouse import ROOT, schema_sources

KEEPER_JARS = "/usr/share/java/*"
KEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
IN_ENGINE_WITH_KEEPER = """
import json, os, sys
import chdb

store = chdb.connect(sys.argv[1])
store.query("CREATE DATABASE otel")
failed = {}
for statement in json.load(sys.stdin):
    try:
        store.query(statement.replace(" ON CLUSTER 'prod'", ""))
    except RuntimeError as error:
        failed[statement] = str(error)
listed = "SELECT name, create_table_query FROM system.tables WHERE database = 'otel' FORMAT JSONCompact"
print(json.dumps([failed, json.loads(store.query(listed).bytes())["data"]]), flush=True)
# The engine does not end while Keeper is connected.
os._exit(0)
"""
CONFIG = """<clickhouse>
<zookeeper><node><host>127.0.0.1</host><port>{port}</port></node></zookeeper>
<remote_servers><prod><shard><internal_replication>true</internal_replication>
<replica><host>127.0.0.1</host><port>9000</port></replica></shard></prod></remote_servers>
<macros><shard>1</shard><replica>{replica}</replica></macros>
</clickhouse>"""


@pytest.fixture
def keeper_port(tmp_path: Path) -> Iterator[int]:
    """Port of a ZooKeeper, which speaks the protocol of Keeper."""
    java = shutil.which("java")
    if java is None or not Path("/usr/share/java/zookeeper.jar").exists():
        pytest.skip("needs java and Debian's package zookeeper")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
    config = tmp_path / "zoo.cfg"
    config.write_text(
        f"tickTime=500\ndataDir={tmp_path}/keeper\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
    )
    process = subprocess.Popen(
        [java, "-cp", KEEPER_JARS, KEEPER, str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
                break
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def in_engine_with_keeper(
    directory: Path, port: int, emitted: list[str]
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Run statements on a replica. Returns the errors by statement, and each table with its CREATE query."""
    directory.mkdir()
    config = directory / "config.xml"
    config.write_text(CONFIG.format(port=port, replica=directory.name))
    done = subprocess.run(
        [sys.executable, "-c", IN_ENGINE_WITH_KEEPER, f"{directory}/store?config-file={config}"],
        input=json.dumps(emitted),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout, done.stderr
    failed, tables = json.loads(done.stdout.splitlines()[-1])
    return failed, tables


def test_engine_with_keeper_creates_every_table(tmp_path: Path, keeper_port: int) -> None:
    emitted = [each.sql for each in schema.emit(schema_sources(), SERVER, 30, layout=Layout("prod", "otel"))]

    failed, tables = in_engine_with_keeper(tmp_path / "a", keeper_port, emitted)

    # No replica listens for other replicas here, so tables are read-only, and an ALTER is refused.
    assert all("ALTER TABLE" in text and "READ_ONLY" in error for text, error in failed.items())
    local = {name: query for name, query in tables if name.endswith("_local")}
    assert len(local) == sum(" ENGINE = Distributed" in f" {text.splitlines()[-1]}" for text in emitted)
    assert all("ENGINE = Replicated" in query for query in local.values())


def test_replica_that_is_added_creates_a_table_that_was_altered(tmp_path: Path, keeper_port: int) -> None:
    layout = Layout("prod", "otel")
    earlier, altered = (
        [each for each in schema.emit(schema_sources(), SERVER, days, layout=layout) if each.number < 3]
        for days in (30, 7)
    )
    _, tables = in_engine_with_keeper(tmp_path / "a", keeper_port, [each.sql for each in altered])
    other_node: Any = SimpleNamespace(rows=lambda *_: tables)
    created = [schema.as_created(each, layout.create_queries(other_node)).sql for each in earlier]

    refused, _ = in_engine_with_keeper(tmp_path / "b", keeper_port, [each.sql for each in earlier])
    failed, _ = in_engine_with_keeper(tmp_path / "c", keeper_port, created)

    local = {text for text in refused if "_local" in text and "Distributed" not in text}
    assert len(local) == 2
    assert all("TTL" in refused[text] for text in local)
    assert failed == {}
