"""`trace-drain schema`: reports of dropped tables, and the statements for a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.cli.receiver import schema as command
from receiver.engine import schema
from receiver.engine.store import Store
from receiver.errors import OperatorError
from receiver.ledger.ledger import Ledger
from receiver.ledger.line_sums import Counts
from receiver.model import Heading, SegmentId
from receiver.settings import Ledger as Limits
from receiver.settings import Settings
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources


@pytest.fixture
def store(engine_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    database = f"schema_{uuid4().hex}"
    store = engines.bare(engine_dir, database)

    @contextmanager
    def opened(_settings: Settings) -> Iterator[Store]:
        yield store

    monkeypatch.setattr(command, "store_of", opened)
    yield store
    store.command(f"DROP DATABASE {database}")
    store.close()


def apply(data: Path) -> str:
    result = CliRunner().invoke(main, ["schema", "apply", "--data", str(data)])
    assert result.exit_code == 0, result.output
    return result.output


def test_dropped_table_is_reported_before_it_is_created_again(store: Store, tmp_path: Path) -> None:
    apply(tmp_path)
    store.command("DROP TABLE otel_deployment_events SYNC")

    output = apply(tmp_path)

    assert "applied 0011_otel_deployment_events" in output
    report = (tmp_path / "store.lost").read_text()
    assert "table 'otel_deployment_events' is gone and is created again, empty" in report


def test_empty_store_is_reported_if_the_ledger_has_stored_spans(store: Store, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", Limits(), lambda: 1.8e9, is_first=True)
    ledger.record(SegmentId(1, 1), {Heading("d", "p", 500_000): Counts(received=1, stored=1)})
    ledger.close()

    apply(tmp_path)

    assert "'otel_traces'" in (tmp_path / "store.lost").read_text()
    assert schema.dropped(store, schema_sources(), has_stored=True) == []


@pytest.mark.usefixtures("store")
def test_first_use_of_a_store_reports_nothing(tmp_path: Path) -> None:
    apply(tmp_path)

    assert not (tmp_path / "store.lost").exists()


def printed(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["schema", *arguments])


def test_statements_for_a_cluster_are_printed_without_a_server() -> None:
    text = printed("print", "--cluster", "prod", "--storage-policy", "tiered").stdout

    assert text.startswith("CREATE DATABASE IF NOT EXISTS otel ON CLUSTER 'prod';")
    assert "CREATE TABLE IF NOT EXISTS otel.otel_traces_local ON CLUSTER 'prod'" in text
    assert "ENGINE = Distributed('prod', 'otel', 'otel_traces_local', cityHash64(TraceId))" in text
    assert "storage_policy = 'tiered'" in text
    assert "fsync_after_insert" not in text
    columns = text.partition(f"-- {schema.PROMOTED}")[2]
    altered = re.findall(r"ALTER TABLE (\S+) ON CLUSTER 'prod'", columns)
    assert altered == ["otel.otel_traces_local", "otel.otel_traces"]


def test_name_that_needs_quotes_is_refused() -> None:
    result = printed("print", "--cluster", "a'; DROP TABLE b")

    assert result.exit_code == OperatorError.exit_code
    assert 'store.cluster is "a\'; DROP TABLE b"; expected letters, digits and . _ -' in result.stderr


@pytest.mark.parametrize("name", ["apply", "status"])
def test_cluster_of_the_embedded_store_is_refused(tmp_path: Path, name: str) -> None:
    result = printed(name, "--cluster", "prod", "--data", str(tmp_path))

    assert "store.cluster is set for the embedded store; expected a server" in result.stderr
