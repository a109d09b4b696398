"""`trace-drain schema apply` reports dropped tables as the receiver does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from receiver.cli import main
from receiver.cli.receiver import schema as command
from receiver.engine import schema
from receiver.engine.store import Store
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
