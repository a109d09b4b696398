"""Retention rules: which spans of which days are deleted, and when."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from structlog.testing import capture_logs

from receiver.config.retention import RULES_MAX
from receiver.deletion import retention_rules
from receiver.deletion.automatic import CHECK_S
from receiver.deletion.retention_rules import RetentionRules
from receiver.engine.sql_text import compose
from receiver.settings import RetentionRule
from tests.support.deletions import deletions_of, finish, stored_projects
from tests.support.ledger_workspace import Workspace

DAY_S = 86_400
PASS = 6
"""Checks that are enough to delete every expired day."""


@pytest.fixture
def days(workspace: Workspace) -> Workspace:
    """Store spans of two projects and two drains on each of four days, the last of which is today."""
    for _ in range(4):
        send(workspace)
        workspace.now_s -= DAY_S
    workspace.now_s += 4 * DAY_S
    workspace.writer.drain()
    return workspace


def send(workspace: Workspace) -> None:
    workspace.send("a", 1)
    workspace.send("b", 10)
    workspace.send("a", 100, drain="staging")


def check(workspace: Workspace, *rules: RetentionRule) -> RetentionRules:
    """Check these rules until every expired span is deleted."""
    ticks = count(0.0, CHECK_S)
    deletions = deletions_of(workspace)
    retention = RetentionRules(
        workspace.store, deletions, rules, monotonic=lambda: next(ticks), now_s=lambda: workspace.now_s
    )
    check_again(retention)
    return retention


def check_again(retention: RetentionRules) -> None:
    for _ in range(PASS):
        retention.check()
        finish(retention.deletions)


def deleted(workspace: Workspace) -> Counter[tuple[str, str]]:
    """Return the deleted spans by drain and project. The ledger must agree with the table."""
    report = workspace.query(since="5d")
    assert {line.verdict for line in report.lines} == {"same"}
    deleted = Counter[tuple[str, str]]()
    for line in report.lines:
        deleted[line.drain, line.project] += line.deleted
    return +deleted


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        pytest.param(
            RetentionRule(days=1, project="a"), {("d", "a"): 2, ("staging", "a"): 200}, id="project"
        ),
        pytest.param(
            RetentionRule(days=2, project="a"), {("d", "a"): 1, ("staging", "a"): 100}, id="two days"
        ),
        pytest.param(RetentionRule(days=3, project="a"), {}, id="longer than the spans are old"),
        pytest.param(RetentionRule(days=1, drain="staging"), {("staging", "a"): 200}, id="drain"),
        pytest.param(RetentionRule(days=1, project="a", drain="d"), {("d", "a"): 2}, id="project at a drain"),
        pytest.param(RetentionRule(days=1, project="absent"), {}, id="project without spans"),
    ],
)
def test_only_days_that_are_older_than_the_retention_are_deleted(
    days: Workspace, retention: RetentionRule, expected: dict[tuple[str, str], int]
) -> None:
    check(days, retention)

    assert deleted(days) == expected


def test_each_project_and_drain_has_its_own_retention(days: Workspace) -> None:
    check(days, RetentionRule(days=1, project="b"), RetentionRule(days=2, drain="staging"))

    assert deleted(days) == {("d", "b"): 20, ("staging", "a"): 100}


def test_spans_that_arrive_expired_are_deleted_on_the_next_day(days: Workspace) -> None:
    retention = check(days, RetentionRule(days=1, project="a"))
    days.now_s -= 3 * DAY_S
    send(days)
    days.now_s += 3 * DAY_S
    days.writer.drain()
    stored = stored_projects(days.store)

    check_again(retention)
    assert stored_projects(days.store) == stored

    days.now_s += DAY_S
    check_again(retention)
    # Those of a day that has expired since, too.
    assert stored_projects(days.store) == {"a": 101, "b": 50}


def test_nothing_is_begun_without_room_for_a_copy_of_the_day(
    days: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_rules, "_ROOM", compose("SELECT 1000, 999"))
    with capture_logs() as logged:
        check(days, RetentionRule(days=1, project="a"))

    assert not deleted(days)
    assert {line["event"] for line in logged} == {
        "no spans can be deleted for store.retention_rule: too little free disk space"
    }


def test_as_many_rules_as_allowed_with_the_longest_names_are_a_statement_that_the_engine_accepts(
    days: Workspace,
) -> None:
    longest = [RetentionRule(days=1, project=256 * "\U0001f600", drain=64 * "d")] * (RULES_MAX - 1)

    check(days, *longest, RetentionRule(days=1, project="b"))

    assert deleted(days) == {("d", "b"): 20}


def test_rule_that_would_choose_all_spans_is_refused(days: Workspace) -> None:
    with pytest.raises(ValueError, match="chooses all spans"):
        check(days, RetentionRule(days=1))


def test_nothing_is_deleted_without_a_rule(days: Workspace) -> None:
    check(days)

    assert not deleted(days)
