"""`ledger --verify` on a real engine: detected damage to the table, and differences that are harmless."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.engine.embedded import EmbeddedStore
from receiver.engine.store import COMPANION, TABLE, Parameters
from receiver.journal.segments import Journal
from receiver.ledger import table as ledger_table
from receiver.ledger.balance import Backlog, LiveBalanceSource, OfflineBalanceSource
from receiver.ledger.query import ledger, parse_ledger_query, verified
from receiver.ledger.table import HOURS_END, hours_at_a_time, unknown_epochs
from receiver.reports import LedgerReport
from receiver.settings import Ledger as Limits
from tests.support import engines
from tests.support.fake_clickhouse import open_ledger
from tests.support.ledger_workspace import Workspace

HOUR = 500_000


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[EmbeddedStore]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture
def workspace(tmp_path: Path, store: EmbeddedStore) -> Workspace:
    for table in (TABLE, COMPANION):
        store.command(f"TRUNCATE TABLE {table}")
    return Workspace(tmp_path, store)


def by_project(answer: LedgerReport) -> dict[str, tuple[int, int, int, int, int | None, str]]:
    return {
        line.project: (line.received, line.stored, line.rejected, line.journal, line.table, line.verdict)
        for line in answer.lines
    }


def test_stored_spans_agree_and_waiting_spans_are_in_the_journal(workspace: Workspace) -> None:
    workspace.send("a", 3)
    workspace.send("b", 2, bad=1)
    workspace.writer.drain()
    workspace.send("a", 4)

    answer = workspace.query()

    assert by_project(answer) == {"a": (7, 3, 0, 4, 3, "same"), "b": (3, 2, 1, 0, 2, "same")}
    assert all(line.difference == 0 for line in answer.lines)
    assert {line.project for line in workspace.query(project="a").lines} == {"a"}
    assert workspace.query(drain="other").lines == []


def test_rows_of_other_receivers_are_ignored(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    other = Workspace(tmp_path / "replica", workspace.store)
    for receiver in (workspace, other):
        receiver.send("a", 3)
        receiver.writer.drain()
    foreign = "(Timestamp, ProjectId, ReceivedAt) VALUES (now64(9), 'a', now64(3))"
    workspace.store.command(f"INSERT INTO otel_traces {foreign}")

    assert by_project(workspace.query()) == {"a": (3, 3, 0, 0, 3, "same")}
    assert by_project(other.query()) == {"a": (3, 3, 0, 0, 3, "same")}


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        pytest.param("ALTER TABLE otel_traces DELETE WHERE", 0, id="lost"),
        pytest.param("INSERT INTO otel_traces SELECT * FROM otel_traces WHERE", 6, id="stored twice"),
    ],
)
def test_changed_table_rows_are_reported(workspace: Workspace, statement: str, table: int) -> None:
    workspace.send("a", 3)
    workspace.send("b", 2)
    workspace.writer.drain()
    workspace.store.command(f"{statement} ProjectId = 'a' SETTINGS mutations_sync = 2")

    assert by_project(workspace.query()) == {
        "a": (3, 3, 0, 0, table, "different"),
        "b": (2, 2, 0, 0, 2, "same"),
    }


def test_replaced_rows_are_reported_although_their_count_agrees(workspace: Workspace) -> None:
    workspace.send("a", 16)
    workspace.writer.drain()
    some = "SpanId <= '0000000000000008'"
    workspace.store.command(f"ALTER TABLE otel_traces DELETE WHERE {some} SETTINGS mutations_sync = 2")
    workspace.store.command("INSERT INTO otel_traces SELECT * FROM otel_traces")

    [line] = workspace.query().lines

    assert (line.stored, line.table, line.verdict) == (16, 16, "different")
    assert line.problem == "as many rows as were stored, but with another checksum"


def test_repeated_spans_in_one_delivery_are_not_a_difference(workspace: Workspace) -> None:
    workspace.send("a", 1)
    workspace.send("a", 3, trace_id="5a" * 16)
    workspace.writer.drain()

    assert by_project(workspace.query()) == {"a": (4, 4, 0, 0, 4, "same")}


def test_traces_missing_in_the_companion_table_are_reported(workspace: Workspace) -> None:
    workspace.send("a", 3)
    workspace.send("b", 2)
    workspace.writer.drain()
    workspace.store.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    workspace.send("c", 4)
    workspace.writer.drain()

    problems = {line.project: (line.table, line.verdict, line.problem) for line in workspace.query().lines}

    assert problems == {
        "a": (3, "different", "3 rows are not found by trace id"),
        "b": (2, "different", "2 rows are not found by trace id"),
        "c": (4, "same", ""),
    }


def test_spans_outside_their_companion_time_range_are_reported(workspace: Workspace) -> None:
    workspace.send("a", 1, trace_id="5a" * 16)
    workspace.writer.drain()
    workspace.now_s += 5
    workspace.send("a", 2, trace_id="5a" * 16)
    workspace.writer.drain()
    workspace.store.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    workspace.store.command(
        "INSERT INTO otel_traces_trace_id_ts SELECT TraceId, max(Timestamp), max(Timestamp) "
        "FROM otel_traces GROUP BY TraceId"
    )

    assert [line.problem for line in workspace.query().lines] == ["1 row is not found by trace id"]


def test_rows_of_an_epoch_that_the_ledger_lost_are_counted_and_listed(workspace: Workspace) -> None:
    workspace.send("a", 3)
    workspace.writer.drain()
    workspace.ledger.close()
    shutil.rmtree(workspace.root / "ledger")
    (workspace.root / "ledger.head").unlink()
    epoch = f"{workspace.appender.choose().epoch:016x}"

    workspace.ledger = open_ledger(workspace.root)
    workspace.balances = LiveBalanceSource(workspace.ledger, Backlog(workspace.root / "journal"))
    [unknown] = workspace.query().unknown

    assert (unknown.epoch, unknown.rows, unknown.is_lost) == (epoch, 3, True)


def test_rows_of_an_unknown_epoch_on_a_server_may_be_another_receivers(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "replica").mkdir()
    other = Workspace(tmp_path / "replica", workspace.store)
    for receiver in (workspace, other):
        receiver.send("a", 3)
        receiver.writer.drain()

    class Server:
        """The same rows in a store that other receivers may write to."""

        embedded = False

        def rows(self, statement: str, parameters: Parameters) -> list[tuple[object, ...]]:
            return workspace.store.rows(statement, parameters)

    query = parse_ledger_query({"since": "2h", "verify": "1"}, now_s=time.time(), row_lifetime_hours=72)
    [unknown] = ledger(workspace.balances, Server, query).unknown  # type: ignore[arg-type]

    assert (unknown.rows, unknown.is_lost) == (3, False)


def test_rows_of_unrecorded_pieces_are_not_an_unknown_epoch(tmp_path: Path) -> None:
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "0000000000000007-0000000001.00000000000000ff.json").touch()
    (tmp_path / "splits" / "something.else.json").touch()

    balance = OfflineBalanceSource(tmp_path, Limits()).balance()

    assert balance.part_epochs == {255}
    assert unknown_epochs({255: Counter({HOUR: 1})}, balance) == []


def test_few_rows_are_read_in_one_statement_and_many_hour_by_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_table, "VERIFY_ROWS_MAX", 10)

    assert list(hours_at_a_time({}, 5)) == [(5, HOURS_END)]
    assert list(hours_at_a_time({5: 3, 7: 7}, 5)) == [(5, HOURS_END)]
    assert list(hours_at_a_time({5: 3, 6: 8, 7: 2, 9: 50}, 4)) == [(4, 6), (6, 9), (9, HOURS_END)]


def test_reading_hour_by_hour_gives_the_same_result(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ago in (2, 1, 0):
        workspace.now_s = time.time() - ago * 3_600
        workspace.send("a", 3)
    workspace.writer.drain()
    whole = workspace.query(since="5h").lines
    monkeypatch.setattr(ledger_table, "VERIFY_ROWS_MAX", 1)

    assert workspace.query(since="5h").lines == whole
    assert [(line.table, line.verdict) for line in whole] == [(3, "same")] * 3


@pytest.mark.parametrize("when", ["before the count", "after the count"])
def test_segments_recorded_during_the_count_are_excluded_on_both_sides(
    workspace: Workspace, when: str
) -> None:
    workspace.send("a", 3)
    workspace.writer.drain()
    workspace.send("a", 4)
    counts = []

    class Interrupted:
        """Engine whose answers arrive while the writer works."""

        def rows(self, statement: str, parameters: object) -> list[tuple[object, ...]]:
            counts.append(1)
            if when == "before the count":
                workspace.writer.drain()
            rows = workspace.store.rows(statement, parameters)  # type: ignore[arg-type]
            if when == "after the count":
                workspace.writer.drain()
            return rows

    query = parse_ledger_query({"since": "2h"}, now_s=time.time(), row_lifetime_hours=72)
    balance, compared, unknown = verified(workspace.balances, Interrupted(), query)  # type: ignore[arg-type]

    assert len(counts) == len(("epochs", "rows"))
    assert unknown == []
    assert [line.verdict for line in compared.values()] == ["same"]
    assert sum(counts.stored for counts in balance.sums.lines.values()) == 7


def test_inserted_but_unrecorded_segment_counts_as_in_the_journal(workspace: Workspace) -> None:
    workspace.send("a", 3)
    [segment] = Journal(workspace.root / "journal").sealed()
    workspace.store.insert(segment.path, token="x", query_id="trace-drain-x")

    assert by_project(workspace.query()) == {"a": (3, 0, 0, 3, None, "")}
