"""Claims about `trace-drain journal`: it reads a journal, also a live one, and never touches it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.durable.files import DISK
from receiver.journal.appender import Appender
from receiver.journal.names import start_name
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


def run(tmp_path: Path, verb: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["journal", verb, "--data", str(tmp_path), *words])


def rows_of(listing: str) -> list[list[str]]:
    return [line.split() for line in listing.splitlines()[1:]]


def test_ls_shows_what_each_segment_is_and_holds(tmp_path: Path, live: Appender) -> None:
    listed = rows_of(run(tmp_path, "ls").output)

    name = start_name(live.epoch)
    assert [row[:2] for row in listed] == [[f"{name}-0000000000", "sealed"], [f"{name}-0000000001", "open"]]
    assert [row[3:5] for row in listed] == [["2", "5"], ["1", "1"]]
    assert listed[1][2] == str(len(record("c")))


def test_ls_tells_a_segment_that_a_dead_start_left(tmp_path: Path) -> None:
    dead = appender(root=tmp_path / "journal")
    append(dead, "a")
    live_listing = rows_of(run(tmp_path, "ls").output)

    dead._files.close(dead._directory.lock_fd)  # noqa: SLF001 - as a death would

    assert live_listing[0][1] == "open"
    assert rows_of(run(tmp_path, "ls").output)[0][1:3] == ["left", "open"]


def test_ls_of_a_journal_that_is_not_there_is_empty(tmp_path: Path) -> None:
    done = run(tmp_path, "ls")

    assert (done.exit_code, rows_of(done.output)) == (0, [])


def test_verify_finds_nothing_wrong_in_a_live_journal(tmp_path: Path, live: Appender) -> None:
    append(live, "d")

    done = run(tmp_path, "verify")

    assert (done.exit_code, done.output) == (0, "2 segments, 4 whole records, 0 damaged places\n")


def test_verify_names_the_damage_and_exits_with_1(tmp_path: Path, live: Appender) -> None:
    path = tmp_path / "journal" / start_name(live.epoch) / "0000000000.native.lz4"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)

    done = run(tmp_path, "verify")

    assert done.exit_code == 1
    assert f"segment {start_name(live.epoch)}-0000000000 at byte 0, {len(record('a'))} bytes" in done.output
    assert "2 segments, 2 whole records, 1 damaged place" in done.output


def test_a_file_in_the_place_of_a_start_is_passed_over(tmp_path: Path, live: Appender) -> None:
    (tmp_path / "journal" / start_name(7)).write_text("strange")

    assert len(rows_of(run(tmp_path, "ls").output)) == 2
    assert run(tmp_path, "verify").exit_code == 0
    assert live.epoch != 7


def test_inspect_says_what_a_segment_answers_for(tmp_path: Path, live: Appender) -> None:
    done = run(tmp_path, "inspect", f"{start_name(live.epoch)}-0000000000", "--format", "json")

    listing = json.loads(done.output)
    assert done.exit_code == 0
    assert listing["state"] == "sealed"
    assert listing["damage"] == []
    assert [found["rows"] for found in listing["records"]] == [2, 3]
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


def test_inspect_takes_a_path_too_wherever_the_file_is(tmp_path: Path, live: Appender) -> None:
    copy = tmp_path / "set-aside.native.lz4"
    source = tmp_path / "journal" / start_name(live.epoch) / "0000000000.native.lz4"
    copy.write_bytes(source.read_bytes()[:-1])

    done = run(tmp_path, "inspect", str(copy))

    assert f"segment {start_name(live.epoch)}-0000000000, sealed" in done.output
    assert "delivery 64646464646464646464646464646464 from drain 'a'" in done.output
    assert "project 'prj': 2 received, 2 kept, 0 sampled_out, 0 rejected" in done.output
    assert "damage: segment" in done.output
    assert done.exit_code == 1


def test_a_path_needs_no_data_directory_and_no_configuration(
    tmp_path: Path, live: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal" / start_name(live.epoch) / "0000000000.native.lz4"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "trace-drain.toml").write_text("broken")
    monkeypatch.chdir(elsewhere)

    done = CliRunner().invoke(main, ["journal", "inspect", str(path)])

    assert f"segment {start_name(live.epoch)}-0000000000, sealed" in done.output
    assert done.exit_code == 0


def test_a_path_to_nothing_is_not_there_whatever_the_data_directory(tmp_path: Path) -> None:
    path = tmp_path / "0000000000.native.lz4"

    done = run(tmp_path / "absent", "inspect", str(path))

    assert done.exit_code == 1
    assert f"segment '{path}' does not exist; expected a path or a name" in done.output


@pytest.mark.parametrize("content", [b"", b"root:x:0:0:", bytes(1 << 16)], ids=["empty", "text", "zeros"])
def test_inspect_of_a_file_that_is_no_segment_says_so_and_exits_with_1(
    tmp_path: Path, content: bytes
) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(content)

    done = run(tmp_path, "inspect", str(foreign))

    assert done.output == f"trace-drain: '{foreign}' holds no record of a journal; expected a segment\n"
    assert done.exit_code == 1


def test_a_file_that_cannot_be_read_is_named_without_a_traceback(tmp_path: Path, live: Appender) -> None:
    path = tmp_path / "journal" / start_name(live.epoch) / "0000000000.native.lz4"
    path.unlink()
    path.mkdir()

    done = run(tmp_path, "verify")

    assert (done.exit_code, done.output) == (
        1,
        f"trace-drain: a file cannot be used: '{path}': Is a directory\n",
    )


def test_inspect_of_what_is_not_there_says_what_was_expected(tmp_path: Path) -> None:
    done = run(tmp_path, "inspect", "0000000000000001-0000000001")

    assert done.exit_code != 0
    assert "does not exist; expected a path or a name that `journal ls` prints" in done.output


def test_looking_changes_nothing(tmp_path: Path, live: Appender) -> None:
    before = {path: path.stat() for path in sorted(tmp_path.rglob("*")) if path.is_file()}

    for verb in ("ls", "verify"):
        run(tmp_path, verb)

    after = {path: path.stat() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    assert {path: (status.st_size, status.st_mtime_ns) for path, status in before.items()} == {
        path: (status.st_size, status.st_mtime_ns) for path, status in after.items()
    }
    assert DISK.size_bytes(tmp_path / "journal" / start_name(live.epoch) / "0000000001.open")
