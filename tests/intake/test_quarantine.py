"""Tests of the quarantine of bodies that crashed the core: its limits, and the crash count per body."""

from __future__ import annotations

from pathlib import Path

from receiver.errors import CoreCrashed, MalformedBody
from receiver.journal.quarantine import Quarantine
from tests.support.committer import delivery


def test_quarantine_is_limited_in_files_and_bytes(tmp_path: Path) -> None:
    few, small = Quarantine(tmp_path / "few", files_max=2), Quarantine(tmp_path / "small", bytes_max=3)

    for name in ("a", "b", "c"):
        few.keep(delivery(name))
        small.keep(delivery(name))

    assert len(list((tmp_path / "few").glob("*.body"))) == 2
    assert [path.read_bytes() for path in (tmp_path / "small").glob("*.body")] == [b"\na"]


def test_crashes_of_the_same_body_are_counted_across_restarts(tmp_path: Path) -> None:
    reasons = [Quarantine(tmp_path).keep(delivery("poison")) for _ in range(3)]

    assert [type(reason) for reason in reasons] == [CoreCrashed, CoreCrashed, MalformedBody]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_unreadable_quarantine_note_still_gives_an_answer(tmp_path: Path) -> None:
    Quarantine(tmp_path).keep(delivery("poison"))
    (note,) = tmp_path.glob("*.json")
    note.unlink()
    note.mkdir()

    quarantine = Quarantine(tmp_path)
    reasons = [quarantine.keep(delivery("poison")) for _ in range(3)]

    # A body in the directory has crashed the decoder at least once.
    assert [type(reason) for reason in reasons] == [CoreCrashed, MalformedBody, MalformedBody]
