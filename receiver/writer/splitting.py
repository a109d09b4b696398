"""Segments that are more than the store can take at once, cut up into smaller ones that it can.

    DATA/cuts/<segment>.<epoch>/0000000001.native.lz4 …     the parts: segments of their own

Each part has an identity of its own in its name and rows, so it is inserted, counted and let go of like any
segment; if it is still too large, it is cut up in turn. All parts of one segment share an epoch. The segment
itself stays in the journal, with its promise to the redelivery window, until the last part is gone.

Keeps: all parts are on the disk before any is seen, in one rename: that is the decision, and from then on
nothing is inserted out of the segment itself. What has another name than ours is told and left alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from receiver.durable.files import DISK, write_durably
from receiver.journal.names import SEALED, Kind, epoch_of, file_name, parse_file_name, start_name
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core
from receiver.journal.segments import SegmentFile as PartFile
from receiver.journal.start import draw_epoch
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.writer.dead_lettering import unreadable
from receiver.writer.outcome import Finding, Found
from receiver.writer.row_search import Rows, count_of, halves_of
from receiver.writer.segment_state import SegmentFile, SegmentState, runs_of

PARTS = 4
"""Out of one segment."""

_NAME = re.compile(r"(\.?)([0-9a-f]{16})-([0-9]{10,20})\.[0-9a-f]{16}")
"""Of a directory of parts, or, with a dot before it, of one that was not complete yet."""


class SegmentSplitter:
    """The directory of parts."""

    def __init__(self, root: Path, core: Core, epoch: Callable[[], int] = draw_epoch) -> None:
        self._root = root
        self._core = core
        self._epoch = epoch
        self._parts_of: dict[SegmentId, Path] = {}
        self._is_synced = not root.exists()
        for path in root.glob("*"):
            self._find(path)

    def is_cut(self, segment: SegmentId) -> bool:
        """Whether its rows are the business of its parts."""
        return segment in self._parts_of

    def is_part(self, segment: SegmentId) -> bool:
        """Whether it was cut from another one."""
        return segment.epoch in {self.epoch_of(one) for one in self._parts_of}

    def epoch_of(self, segment: SegmentId) -> int | None:
        """The epoch of all parts of a segment, and of theirs."""
        directory = self._parts_of.get(segment)
        return None if directory is None else epoch_of(directory.suffix[1:])

    def in_place(self, sealed: Iterable[SegmentFile]) -> Iterator[SegmentFile]:
        """Put the parts in place of what they were cut from, until none is left."""
        is_synced = self._synced()
        for segment in sealed:
            parts = list(self._parts(segment.id))
            if not parts:
                yield segment
            elif is_synced:
                yield from self.in_place(parts)

    def cut(self, case: SegmentState, finding: Finding) -> None:
        """Cut up what is not stored: from then on the case has nothing to insert."""
        epoch, first_seq = self._identities(case.file.id)
        target = self._root / f"{case.file.id}.{start_name(epoch)}"
        draft = self._root / f".{target.name}"
        draft.mkdir(mode=0o700, parents=True)
        kind = Kind.ZSTD if case.file.codec == "zstd" else Kind.LZ4
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, draft, ignore_errors=True)
            for seq, content in enumerate(self._contents(case, finding, epoch, first_seq), start=first_seq):
                write_durably(draft / file_name(seq, kind), content)
            DISK.sync_directory(self._root.parent)
            draft.rename(target)
            undo.pop_all()
        self._parts_of[case.file.id] = target
        self._is_synced = False
        case.rows, case.rest, case.is_too_large = 0, "dead", False
        limited.warning("writer: cut", f"segment {case.file.id} is too large for the store and was cut up")

    def forget(self, segment: SegmentId) -> None:
        """Let go of the directory of a segment that was unlinked."""
        directory = self._parts_of.pop(segment, None)
        if directory is not None:
            shutil.rmtree(directory)

    def retain(self, present: Iterable[SegmentId]) -> None:
        """Let go of directories whose segment was unlinked before."""
        for segment in self._parts_of.keys() - set(present):
            if not any(self._parts(segment)):
                self.forget(segment)

    def _find(self, path: Path) -> None:
        """Take note of a directory of parts; let go of one that was never complete."""
        named = _NAME.fullmatch(path.name)
        if named is None or not path.is_dir():
            limited.warning("writer: cut", "strange name among the cuts; left alone", path=str(path))
        elif named[1]:
            shutil.rmtree(path)
        else:
            self._parts_of[SegmentId(int(named[2], 16), int(named[3]))] = path

    def _synced(self) -> bool:
        """Put the decisions on the disk before anything is done about them."""
        if not self._is_synced:
            try:
                DISK.sync_directory(self._root)
            except OSError as reason:
                limited.error("writer: cut", "parts cannot be synced yet", why=reason.strerror)
                return False
            self._is_synced = True
        return True

    def _identities(self, segment: SegmentId) -> tuple[int, int]:
        """Epoch and first counter of the parts: parts of parts share the epoch, so that it names all rows."""
        if self.is_part(segment):
            return segment.epoch, segment.seq * PARTS + 1
        return self._epoch(), 1

    def _contents(self, case: SegmentState, finding: Finding, epoch: int, first_seq: int) -> Iterator[bytes]:
        content = case.file.read()
        missing: Rows = ((0, case.rows),)
        try:
            if finding.found is Found.MISSING:
                missing = tuple(runs_of(content, finding.days, self._core))
            for seq, rows in enumerate(_parts_of(missing), start=first_seq):
                yield self._core.rewrite(content, rows, case.file.codec, BLOCK_ROWS_MAX, (epoch, seq, False))
        except ValueError as reason:
            raise unreadable(case, reason) from reason

    def _parts(self, segment: SegmentId) -> Iterator[PartFile]:
        directory = self._parts_of.get(segment)
        for name in DISK.names(directory) if directory else ():
            named = parse_file_name(name)
            if directory and named and named.kind in SEALED:
                path = directory / name
                part = SegmentId(epoch_of(directory.suffix[1:]) or 0, named.seq)
                yield PartFile(part, path, path.stat().st_size, named.kind)


def _parts_of(rows: Rows) -> list[Rows]:
    parts = [rows]
    while len(parts) < PARTS and any(count_of(part) > 1 for part in parts):
        parts = [half for part in parts for half in (halves_of(part) if count_of(part) > 1 else (part,))]
    return parts
