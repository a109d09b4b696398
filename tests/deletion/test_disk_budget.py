"""Limit of disk space: which day is deleted, and when none is."""

from __future__ import annotations

from itertools import count

import pytest
from structlog.testing import capture_logs

from receiver.deletion.automatic import CHECK_S
from receiver.deletion.deletions import Deletions
from receiver.deletion.disk_budget import DiskBudget
from receiver.journal.segments import Journal
from receiver.ledger.ledger import deletion_path
from tests.support.ledger_workspace import Workspace

DAY_S = 86_400


@pytest.fixture
def days(workspace: Workspace) -> Workspace:
    """Store a span of today and of the two days before."""
    now_s = workspace.now_s
    for age in (0, 1, 2):
        workspace.now_s = now_s - age * DAY_S
        workspace.send(f"day{age}", age + 1)
    workspace.now_s = now_s
    workspace.writer.drain()
    return workspace


def budget_of(workspace: Workspace, bytes_max: int) -> DiskBudget:
    deletions = Deletions(deletion_path(workspace.root), workspace.store, workspace.balances)
    ticks = count(0.0, CHECK_S)
    return DiskBudget(workspace.store, deletions, bytes_max, monotonic=lambda: next(ticks))


def deleted_by_project(workspace: Workspace) -> dict[str, int]:
    report = workspace.query(since="7d")
    assert {line.verdict for line in report.lines} == {"same"}
    assert not any(line.difference for line in report.lines)
    return {line.project: line.deleted for line in report.lines}


def test_oldest_day_is_deleted_at_each_check_and_the_newest_never(days: Workspace) -> None:
    budget = budget_of(days, 1)

    budget.check()
    assert deleted_by_project(days) == {"day0": 0, "day1": 0, "day2": 3}
    budget.check()
    assert deleted_by_project(days) == {"day0": 0, "day1": 2, "day2": 3}
    with capture_logs() as logged:
        budget.check()
    assert deleted_by_project(days) == {"day0": 0, "day1": 2, "day2": 3}
    assert [line["event"] for line in logged] == [
        "store.disk_bytes_max is exceeded, and no older day is left"
    ]


@pytest.mark.parametrize("bytes_max", [0, 1 << 40])
def test_nothing_is_deleted_without_a_limit_or_below_it(days: Workspace, bytes_max: int) -> None:
    budget_of(days, bytes_max).check()

    assert deleted_by_project(days) == {"day0": 0, "day1": 0, "day2": 0}


def test_newest_day_stays_although_no_older_day_has_spans_to_delete(workspace: Workspace) -> None:
    # The probe row of the writer has the epoch 0.
    workspace.store.command(
        "INSERT INTO otel_traces (Timestamp, SegmentEpoch) SELECT now() - INTERVAL 1 DAY, 0"
    )
    workspace.send("today", 1)
    workspace.writer.drain()

    budget_of(workspace, 1).check()

    assert deleted_by_project(workspace) == {"today": 0}


def test_today_stays_although_a_span_is_of_tomorrow(workspace: Workspace) -> None:
    workspace.send("today", 1)
    workspace.writer.drain()
    workspace.store.command(
        "INSERT INTO otel_traces (Timestamp, SegmentEpoch) SELECT now() + INTERVAL 1 DAY, 77"
    )

    budget_of(workspace, 1).check()

    assert deleted_by_project(workspace) == {"today": 0}


def test_other_tables_do_not_count_because_they_keep_their_rows(days: Workspace) -> None:
    [(spans_bytes,)] = days.store.rows(
        "SELECT sum(bytes_on_disk) FROM system.parts "
        "WHERE database = currentDatabase() AND table = 'otel_traces' AND active"
    )

    budget_of(days, spans_bytes).check()

    assert deleted_by_project(days) == {"day0": 0, "day1": 0, "day2": 0}


def test_rows_of_the_oldest_day_that_the_writer_still_counts_stay(days: Workspace) -> None:
    days.now_s -= 2 * DAY_S
    # The probe row of the writer has the epoch 0. A day that has no other row is passed over.
    days.store.command("INSERT INTO otel_traces (Timestamp, SegmentEpoch) SELECT now() - INTERVAL 3 DAY, 0")
    days.send("late", 4)
    [segment] = Journal(days.root / "journal").sealed()
    days.store.insert(segment.path, token="x", query_id="trace-drain-x")
    deletions = Deletions(
        deletion_path(days.root), days.store, days.balances, monotonic=count(0.0, 10.0).__next__
    )
    DiskBudget(days.store, deletions, 1).check()
    while deletions.day:
        deletions.advance()
    assert days.store.rows("SELECT count() FROM otel_traces WHERE ProjectId = 'late'") == [(4,)]

    days.restart()
    days.writer.drain()

    assert deleted_by_project(days) == {"day0": 0, "day1": 0, "day2": 3, "late": 0}
