"""Tests of `trace-drain journal`, which reads a journal, even one in use, and never changes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from receiver.durable.files import DISK
from receiver.journal.appender import Appender
from receiver.journal.names import start_name
from tests.support import commands
from tests.support.cases import each_case
from tests.support.journal import append, appender
from tests.support.record_layout import record


@pytest.fixture
def live(tmp_path: Path) -> Appender:
    """Return an intake with one sealed and one open segment."""
    journal = appender(root=tmp_path / "journal")
    append(journal, "a", rows=2)
    append(journal, "b", rows=3)
    journal.seal()
    append(journal, "c")
    return journal


def run(tmp_path: Path, command: str, *arguments: str) -> Result:
    return commands.run("journal", command, "--data", str(tmp_path), *arguments)


def sealed_path(tmp_path: Path, live: Appender) -> Path:
    return tmp_path / "journal" / start_name(live.epoch) / "0000000000.native.lz4"


def rows_of(listing: str) -> list[list[str]]:
    return [line.split() for line in listing.splitlines()[1:]]


def test_ls_shows_state_size_records_and_rows_of_each_segment(tmp_path: Path, live: Appender) -> None:
    listed = rows_of(run(tmp_path, "ls").output)

    name = start_name(live.epoch)
    assert [row[:2] for row in listed] == [[f"{name}-0000000000", "sealed"], [f"{name}-0000000001", "open"]]
    assert [row[3:5] for row in listed] == [["2", "5"], ["1", "1"]]
    assert listed[1][2] == str(len(record("c")))


def test_ls_marks_a_segment_of_an_orphaned_epoch(tmp_path: Path) -> None:
    orphaned = appender(root=tmp_path / "journal")
    append(orphaned, "a")
    live_listing = rows_of(run(tmp_path, "ls").output)

    orphaned._files.close(orphaned._directory.lock_fd)  # noqa: SLF001 - as the death of the process does

    assert live_listing[0][1] == "open"
    assert rows_of(run(tmp_path, "ls").output)[0][1:3] == ["left", "open"]


def test_ls_of_a_missing_journal_is_a_note_without_a_table(tmp_path: Path) -> None:
    result = run(tmp_path, "ls")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no segments\n")


def test_verify_reports_no_damage_in_a_journal_in_use(tmp_path: Path, live: Appender) -> None:
    append(live, "d")

    result = run(tmp_path, "verify")

    assert (result.exit_code, result.output) == (0, "2 segments, 4 complete records, 0 damaged ranges\n")


def test_verify_reports_damage_and_exits_with_1(tmp_path: Path, live: Appender) -> None:
    path = sealed_path(tmp_path, live)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)

    result = run(tmp_path, "verify")

    assert result.exit_code == 1
    assert f"segment {start_name(live.epoch)}-0000000000 at byte 0, {len(record('a'))} bytes" in result.output
    assert "2 segments, 2 complete records, 1 damaged range" in result.output


def test_file_with_the_name_of_an_epoch_directory_is_ignored(tmp_path: Path, live: Appender) -> None:
    (tmp_path / "journal" / start_name(7)).write_text("strange")

    assert len(rows_of(run(tmp_path, "ls").output)) == 2
    assert run(tmp_path, "verify").exit_code == 0
    assert live.epoch != 7


def test_inspect_lists_records_and_deliveries_of_a_segment(tmp_path: Path, live: Appender) -> None:
    result = run(tmp_path, "inspect", f"{start_name(live.epoch)}-0000000000", "--format", "json")

    listing = json.loads(result.output)
    assert result.exit_code == 0
    assert listing["state"] == "sealed"
    assert listing["damage"] == []
    assert [record["rows"] for record in listing["records"]] == [2, 3]
    assert listing["records"][0]["deliveries"] == [
        {
            "drain": "a",
            "digest": b"d".hex() * 16,
            "received_at": "1970-01-01T00:00:00.000+00:00",
            "received_at_ns": 1,
            "rows": 2,
            "tallies": [{"project": "prj", "received": 2, "kept": 2, "sampled_out": 0, "rejected": 0}],
        }
    ]


def test_inspect_accepts_a_path_outside_the_journal(tmp_path: Path, live: Appender) -> None:
    copy = tmp_path / "copy.native.lz4"
    copy.write_bytes(sealed_path(tmp_path, live).read_bytes()[:-1])

    result = run(tmp_path, "inspect", str(copy))

    assert f"segment {start_name(live.epoch)}-0000000000, sealed" in result.output
    assert "delivery 64646464646464646464646464646464 from drain 'a'" in result.output
    assert "project 'prj': 2 received, 2 kept, 0 sampled_out, 0 rejected" in result.output
    assert "damage: segment" in result.output
    assert result.exit_code == 1


def test_inspect_of_a_path_needs_no_data_directory_or_configuration(
    tmp_path: Path, live: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sealed_path(tmp_path, live)
    working_directory = tmp_path / "working"
    working_directory.mkdir()
    (working_directory / "trace-drain.toml").write_text("broken")
    monkeypatch.chdir(working_directory)

    result = commands.run("journal", "inspect", str(path))

    assert f"segment {start_name(live.epoch)}-0000000000, sealed" in result.output
    assert result.exit_code == 0


def test_inspect_of_a_missing_segment_states_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "0000000000.native.lz4"

    unknown = run(tmp_path, "inspect", "0000000000000001-0000000001")
    # A path does not require the data directory.
    missing = run(tmp_path / "absent", "inspect", str(path))

    assert (unknown.exit_code, missing.exit_code) == (1, 1)
    assert "does not exist; expected a path or a name that `journal ls` prints" in unknown.output
    assert f"segment '{path}' does not exist; expected a path or a name" in missing.output


@each_case("content", [b"", b"root:x:0:0:", bytes(1 << 16)], ids=["empty", "text", "zeros"])
def test_inspect_of_a_file_that_is_not_a_segment_exits_with_1(tmp_path: Path, content: bytes) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(content)

    result = run(tmp_path, "inspect", str(foreign))

    assert result.output == f"trace-drain: '{foreign}' holds no record of a journal; expected a segment\n"
    assert result.exit_code == 1


def test_unreadable_file_is_named_without_a_traceback(tmp_path: Path, live: Appender) -> None:
    path = sealed_path(tmp_path, live)
    path.unlink()
    path.mkdir()

    result = run(tmp_path, "verify")

    assert (result.exit_code, result.output) == (
        1,
        f"trace-drain: a file cannot be used: '{path}': Is a directory\n",
    )


def test_ls_and_verify_change_no_file(tmp_path: Path, live: Appender) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        statuses = {path: path.stat() for path in tmp_path.rglob("*") if path.is_file()}
        return {path: (status.st_size, status.st_mtime_ns) for path, status in statuses.items()}

    before = files()

    for command in ("ls", "verify"):
        run(tmp_path, command)

    assert files() == before
    assert DISK.size_bytes(tmp_path / "journal" / start_name(live.epoch) / "0000000001.open")
