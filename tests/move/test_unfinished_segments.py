"""Segments that a move leaves to the writer: those in the journal, and pieces of split segments."""

from __future__ import annotations

from pathlib import Path

from receiver.journal.names import SEALED, Kind, file_name, start_name
from receiver.model import SegmentId
from receiver.move.ends import unfinished_segments


def test_open_and_sealed_segments_and_pieces_are_unfinished(tmp_path: Path) -> None:
    epoch, splits = tmp_path / "journal" / start_name(7), tmp_path / "splits"
    epoch.mkdir(parents=True)
    splits.mkdir()
    for seq, kind in enumerate((Kind.OPEN, *SEALED), start=1):
        (epoch / file_name(seq, kind)).touch()
    (splits / f"{SegmentId(7, 1)}.{start_name(9)}.json").touch()
    (splits / "unknown").touch()

    found = unfinished_segments(tmp_path)

    assert [found.holds(SegmentId(7, seq)) for seq in (1, 2, 3, 4)] == [True, True, True, False]
    assert [found.holds(SegmentId(piece, 5)) for piece in (9, 8)] == [True, False]


def test_directory_without_a_journal_has_none(tmp_path: Path) -> None:
    assert not unfinished_segments(tmp_path).segments
