"""Deletion of spans on a real engine: what is deleted, what stays, and what the ledger counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from threading import Thread

import pytest

from receiver.console.queries.rollup.mutations import read_mutations
from receiver.deletion.rows import Chosen, Deletion
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.retention import ROLLUP_TABLES
from receiver.errors import DiskTrouble, StoreTrouble
from receiver.journal.segments import Journal
from receiver.ledger.book import Book
from receiver.ledger.ledger import deletion_path
from receiver.reports import LedgerLine
from tests.support.cases import each_case
from tests.support.deletions import PATIENCE_S, day_of, deletions_of, finish, stored_projects
from tests.support.faulty_disk import WRITE_CALLS, faults_at_each_call, process_with
from tests.support.ledger_workspace import Workspace
from tests.support.memory_disk import Killed, broken_disk

TRACE = "5a" * 16


def delete(workspace: Workspace, chosen: Chosen) -> int:
    deletions = deletions_of(workspace)
    deleted = deletions.begin(day_of(workspace), chosen)
    finish(deletions)
    return deleted


def line_of(workspace: Workspace, project: str) -> LedgerLine:
    [line] = workspace.query(project=project).lines
    assert (line.difference, line.problem) == (0, "")
    return line


def test_spans_of_a_project_are_deleted_and_the_ledger_counts_them(workspace: Workspace) -> None:
    workspace.send("a", 3, bad=1)
    workspace.send("b", 2)
    workspace.writer.drain()
    workspace.send("a", 4)

    assert delete(workspace, Chosen(project="a")) == 3

    assert stored_projects(workspace.store) == {"b": 2}
    line = line_of(workspace, "a")
    counts = (line.received, line.rejected, line.stored, line.deleted, line.journal, line.table)
    assert counts == (8, 1, 0, 3, 4, 0)
    workspace.writer.drain()
    line = line_of(workspace, "a")
    assert (line.stored, line.deleted, line.table, line.verdict) == (4, 3, 4, "same")
    assert line_of(workspace, "b").verdict == "same"


def test_spans_of_a_trace_are_deleted_in_every_project(workspace: Workspace) -> None:
    workspace.send("a", 2, trace_id=TRACE)
    workspace.send("b", 3, trace_id=TRACE)
    workspace.send("b", 1)
    workspace.writer.drain()

    assert delete(workspace, Chosen(trace=TRACE)) == 5

    assert stored_projects(workspace.store) == {"b": 1}
    assert (line_of(workspace, "a").deleted, line_of(workspace, "b").deleted) == (2, 3)


@each_case("project", ["a' OR 1 --", "\\'; {x:String}", "ünï\n\0", "*"])
def test_only_the_named_project_is_deleted_whatever_its_name(workspace: Workspace, project: str) -> None:
    for name in (project, "other"):
        workspace.send(name, 2)
    workspace.writer.drain()
    stored = stored_projects(workspace.store)

    assert delete(workspace, Chosen(project=project)) == stored.pop(project)

    assert stored_projects(workspace.store) == stored


def test_rows_that_are_not_recorded_yet_stay_and_are_stored_once(workspace: Workspace) -> None:
    workspace.send("a", 2)
    workspace.writer.drain()
    workspace.send("a", 3)
    [segment] = Journal(workspace.root / "journal").sealed()
    workspace.store.insert(segment.path, token="x", query_id="trace-drain-x")

    assert delete(workspace, Chosen(project="a")) == 2
    workspace.restart()
    workspace.writer.drain()

    line = line_of(workspace, "a")
    assert (line.received, line.stored, line.deleted, line.table) == (5, 3, 2, 3)


def test_rows_of_a_segment_that_is_recorded_and_still_in_the_journal_stay(workspace: Workspace) -> None:
    workspace.send("a", 3)
    [segment] = Journal(workspace.root / "journal").sealed()
    content = segment.path.read_bytes()
    workspace.writer.drain()
    workspace.send("a", 2)
    workspace.writer.drain()
    # As after a kill between the entry in the ledger and the deletion of the file.
    segment.path.parent.mkdir(exist_ok=True)
    segment.path.write_bytes(content)
    workspace.restart()

    assert delete(workspace, Chosen(project="a")) == 2
    workspace.restart()
    workspace.writer.drain()

    line = line_of(workspace, "a")
    assert (line.stored, line.deleted, line.table, line.verdict) == (3, 2, 3, "same")


def test_deletion_that_is_refused_because_of_the_disk_does_not_happen_later(workspace: Workspace) -> None:
    workspace.send("a", 3)
    workspace.writer.drain()
    for fault in faults_at_each_call(WRITE_CALLS, broken_disk, is_permanent=False):
        with process_with(fault), suppress(DiskTrouble):
            deletions_of(workspace).begin(day_of(workspace), Chosen(project="a"))
            break
        workspace.restart()
        finish(deletions_of(workspace))
        assert line_of(workspace, "a").deleted == 0

    assert fault.at > len(("create", "write", "sync", "rename"))


def test_spans_counted_as_other_projects_are_deleted_there_after_the_limit_was_raised(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Book, "_place", lambda _, heading: heading._replace(project="(other)"))
        workspace.send("a", 3)
        workspace.writer.drain()

    assert delete(workspace, Chosen(project="a")) == 3

    line = line_of(workspace, "(other)")
    assert (line.stored, line.deleted, line.table) == (0, 3, 0)
    assert workspace.query(project="a").lines == []


def test_damaged_file_of_a_deletion_is_reported_by_its_path(workspace: Workspace) -> None:
    path = deletion_path(workspace.root)
    path.write_bytes(b"{")

    with pytest.raises(OSError, match="it is damaged; restore or delete it") as raised:
        deletions_of(workspace)
    assert raised.value.filename == str(path)


def test_rows_of_unknown_origin_are_deleted_and_not_counted(workspace: Workspace) -> None:
    workspace.send("a", 2)
    workspace.writer.drain()
    workspace.store.command(
        "INSERT INTO otel_traces (Timestamp, ProjectId, ReceivedAt, SegmentEpoch) "
        "VALUES (now64(9), 'a', now64(3), 77)"
    )

    assert delete(workspace, Chosen(project="a")) == 3

    assert stored_projects(workspace.store) == {}
    assert line_of(workspace, "a").deleted == 2


def test_rollups_lose_the_rows_of_the_day_which_have_names_and_values_of_the_spans(
    workspace: Workspace,
) -> None:
    deletions, day = deletions_of(workspace), day_of(workspace)
    midnight = f"toDateTime(YYYYMMDDToDate({day}), 'UTC')"
    hours = f"{midnight} + 3600 * arrayJoin([-2, -1, 0, 23, 24, 25])"
    for project in ("a", "b"):
        workspace.send(project, 1)
        workspace.writer.drain()
        for table in ROLLUP_TABLES:
            workspace.store.command(f"TRUNCATE TABLE {table}")
            workspace.store.command(f"INSERT INTO {table} (Hour) SELECT {hours}")

        deletions.begin(day, Chosen(project=project))
        finish(deletions)

        for table in ROLLUP_TABLES:
            left = workspace.store.rows(f"SELECT (Hour - {midnight}) / 3600 FROM {table} ORDER BY Hour")  # noqa: S608 - ours
            assert left == [(-2,), (25,)], table
        # The rollups of other days stay proven.
        assert read_mutations(workspace.store)[-1][1] == day


def test_difference_is_unverifiable_until_the_rows_are_gone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.send("a", 2)
    workspace.writer.drain()
    deletions = deletions_of(workspace)
    with monkeypatch.context() as patch:
        patch.setattr(Deletion, "delete", lambda *_: None)
        deletions.begin(day_of(workspace), Chosen(project="a"))
    [line] = workspace.query().lines

    assert (line.deleted, line.table, line.verdict) == (2, 2, "unverifiable")
    with pytest.raises(DiskTrouble, match="expected one deletion at a time"):
        deletions.begin(day_of(workspace), Chosen(project="b"))
    finish(deletions)
    assert line_of(workspace, "a").deleted == 2


def test_difference_on_a_server_is_one_although_the_file_of_a_deletion_is_left(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a change of `store.url` while spans of the embedded store were being deleted."""
    workspace.send("a", 2)
    workspace.writer.drain()
    workspace.store.command("TRUNCATE TABLE otel_traces")
    deletion_path(workspace.root).touch()
    [of_embedded] = workspace.query().lines

    monkeypatch.setattr(EmbeddedStore, "embedded", False)
    [of_server] = workspace.query().lines

    assert (of_embedded.verdict, of_server.verdict) == ("unverifiable", "different")


def test_error_of_the_store_is_reported_and_the_deletion_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.send("a", 2)
    workspace.writer.drain()
    deletions = deletions_of(workspace)

    def full(*_: object) -> None:
        raise StoreTrouble("no space", code=243)

    with monkeypatch.context() as patch:
        patch.setattr(Deletion, "delete", full)
        assert deletions.begin(day_of(workspace), Chosen(project="a")) == 2
    assert "243" in deletions.trouble
    workspace.send("a", 4)
    workspace.writer.drain()
    finish(deletions)

    line = line_of(workspace, "a")
    assert (deletions.trouble, line.stored, line.deleted, line.table) == ("", 4, 2, 4)


def test_writer_does_not_wait_until_a_day_is_rewritten(workspace: Workspace) -> None:
    workspace.send("a", 2)
    workspace.send("b", 1)
    workspace.writer.drain()
    deletions = deletions_of(workspace)

    begin = Thread(target=deletions.begin, args=(day_of(workspace), Chosen(project="a")))

    # The engine rewrites nothing meanwhile.
    workspace.store.command("SYSTEM STOP MERGES otel_traces")
    begin.start()
    begin.join(PATIENCE_S / 4)
    is_waiting, stored = begin.is_alive(), stored_projects(workspace.store)
    workspace.store.command("SYSTEM START MERGES otel_traces")
    begin.join()
    finish(deletions)

    assert (is_waiting, stored) == (False, {"a": 2, "b": 1})
    assert stored_projects(workspace.store) == {"b": 1}


def test_nothing_to_delete_leaves_no_trace(workspace: Workspace) -> None:
    workspace.send("b", 1)
    workspace.writer.drain()

    assert delete(workspace, Chosen(project="a")) == 0
    assert not deletion_path(workspace.root).exists()


@contextmanager
def killed_at(store: EmbeddedStore, at: int, *, is_after: bool) -> Iterator[None]:
    """Kill the process at a statement, before the engine has run it or after."""
    numbers = count(1)

    def run(call: Callable[..., object], *arguments: object) -> object:
        is_killed = next(numbers) == at
        if is_killed and not is_after:
            raise Killed
        answer = call(*arguments)
        if is_killed:
            raise Killed
        return answer

    with pytest.MonkeyPatch.context() as patch:
        for name in ("command", "rows"):
            patch.setattr(store, name, partial(run, getattr(store, name)))
        yield


def prepared(workspace: Workspace, number: int) -> str:
    """Store spans of a new project, and restart. Returns its id."""
    project = f"p{number}"
    workspace.send(project, 3)
    workspace.send("other", 1)
    workspace.writer.drain()
    return project


def continue_after_kill(workspace: Workspace, project: str) -> None:
    """Start again, store more spans of the project, finish, and compare ledger and table."""
    workspace.restart()
    workspace.send(project, 2)
    workspace.writer.drain()
    deletions = deletions_of(workspace)
    begun = bool(deletions.day)
    finish(deletions)
    workspace.restart()
    line = line_of(workspace, project)
    assert (line.received, line.stored + line.deleted, line.verdict) == (5, 5, "same")
    # Either nothing was begun before the kill, or all of it is finished; later spans stay.
    assert line.deleted in ({3} if begun else {0, 3})
    assert line_of(workspace, "other").deleted == 0


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_at_each_statement_deletes_all_or_nothing_and_counts_it_once(
    workspace: Workspace, *, is_after: bool
) -> None:
    is_killed, at = True, 0
    while is_killed:
        at += 1
        project = prepared(workspace, at)
        with killed_at(workspace.store, at, is_after=is_after), suppress(Killed):
            delete(workspace, Chosen(project=project))
            is_killed = False
        continue_after_kill(workspace, project)


def test_kill_at_each_change_of_a_file_deletes_all_or_nothing_and_counts_it_once(
    workspace: Workspace,
) -> None:
    for number, fault in enumerate(faults_at_each_call(WRITE_CALLS, Killed, is_permanent=True)):
        project = prepared(workspace, number)
        with process_with(fault), suppress(Killed):
            delete(workspace, Chosen(project=project))
        continue_after_kill(workspace, project)
