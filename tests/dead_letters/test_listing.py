"""List of dead letters and quarantined bodies: an unreadable file does not hide the other entries."""

from __future__ import annotations

from pathlib import Path

from receiver.dead_letters.directory import DeadLetterList


def test_files_that_cannot_be_read_do_not_hide_the_other_dead_letters(tmp_path: Path) -> None:
    dead, bodies = tmp_path / "dead", tmp_path / "aside"
    for directory in (dead, bodies):
        directory.mkdir()
    for name in ("a", "b"):
        (dead / f"{name}.native.lz4").write_bytes(b"rows")
        (dead / f"{name}.json").mkdir()
        (bodies / f"{name}.json.body").write_bytes(b"body")
        (bodies / f"{name}.json.json").mkdir()
    (dead / "notes.native.lz4").write_bytes(b"bytes of an operator")
    (dead / "notes.json").write_text("not JSON")
    (dead / ".c.tmp").mkdir()
    listing = DeadLetterList(tmp_path)

    listing.dead.tidy()

    entries = listing.entries()
    assert [entry.id for entry in entries] == ["a", "b", "notes", "a", "b"]
    assert "its reason cannot be read" in entries[0].text
