"""Splitting of segments that are too large for the store into smaller segments.

    DATA/cuts/<segment>.<epoch>/0000000001.native.lz4 …     the parts, which are segments

Each part has its own id in its name and rows, so it is inserted, counted and deleted like any segment; a part
that is still too large is split again. All parts of a segment share an epoch. The segment itself stays in the
journal, and its deliveries stay pending in the deduplication window, until the last part is deleted.

Invariant: one rename makes all parts visible after they are on disk. It is the decision: from then on no row
is inserted from the segment itself.
Never: touches files with unknown names; it logs them.
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
from receiver.writer.dead_lettering import unreadable_segment
from receiver.writer.outcome import Comparison, Completeness
from receiver.writer.row_search import Rows, row_count, split_in_half
from receiver.writer.segment_state import SegmentFile, SegmentState, ranges_of_days

PARTS = 4
"""Parts per segment."""

_NAME = re.compile(r"(\.?)([0-9a-f]{16})-([0-9]{10,20})\.[0-9a-f]{16}")
"""Name of a directory of parts; a leading dot marks an incomplete one."""


class SegmentSplitter:
    """Splits segments and lists their parts."""

    def __init__(self, root: Path, core: Core, epoch: Callable[[], int] = draw_epoch) -> None:
        self._root = root
        self._core = core
        self._epoch = epoch
        self._parts_of: dict[SegmentId, Path] = {}
        self._is_synced = not root.exists()
        for path in root.glob("*"):
            self._register(path)

    def is_split(self, segment: SegmentId) -> bool:
        """Return whether the segment was split, so that its parts hold its rows."""
        return segment in self._parts_of

    def is_part(self, segment: SegmentId) -> bool:
        """Return whether the segment is a part of another segment."""
        return segment.epoch in {self.epoch_of(split) for split in self._parts_of}

    def epoch_of(self, segment: SegmentId) -> int | None:
        """Return the epoch that all parts of a segment share, and parts of parts."""
        directory = self._parts_of.get(segment)
        return None if directory is None else epoch_of(directory.suffix[1:])

    def replace_with_parts(self, sealed: Iterable[SegmentFile]) -> Iterator[SegmentFile]:
        """Yield the segments with each split segment replaced by its remaining parts."""
        is_synced = self._sync_parts()
        for segment in sealed:
            parts = list(self._parts(segment.id))
            if not parts:
                yield segment
            elif is_synced:
                yield from self.replace_with_parts(parts)

    def split(self, state: SegmentState, comparison: Comparison) -> None:
        """Split the rows that are not stored. The segment itself has no rows to insert afterwards."""
        epoch, first_seq = self._identities(state.file.id)
        target = self._root / f"{state.file.id}.{start_name(epoch)}"
        draft = self._root / f".{target.name}"
        draft.mkdir(mode=0o700, parents=True)
        kind = Kind.ZSTD if state.file.codec == "zstd" else Kind.LZ4
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, draft, ignore_errors=True)
            for seq, content in enumerate(
                self._contents(state, comparison, epoch, first_seq), start=first_seq
            ):
                write_durably(draft / file_name(seq, kind), content)
            DISK.sync_directory(self._root.parent)
            draft.rename(target)
            undo.pop_all()
        self._parts_of[state.file.id] = target
        self._is_synced = False
        state.rows, state.rest, state.is_too_large = 0, "dead", False
        limited.warning("writer: cut", f"segment {state.file.id} was split: it is too large for one INSERT")

    def delete_parts(self, segment: SegmentId) -> None:
        """Delete the directory of parts of a segment that was deleted."""
        directory = self._parts_of.pop(segment, None)
        if directory is not None:
            shutil.rmtree(directory)

    def delete_orphaned_parts(self, present: Iterable[SegmentId]) -> None:
        """Delete empty directories of parts whose segment is not in `present`."""
        for segment in self._parts_of.keys() - set(present):
            if not any(self._parts(segment)):
                self.delete_parts(segment)

    def _register(self, path: Path) -> None:
        """Register a directory of parts at start; delete an incomplete one."""
        named = _NAME.fullmatch(path.name)
        if named is None or not path.is_dir():
            limited.warning(
                "writer: cut",
                "unknown name in the directory of split segments",
                action="left untouched",
                path=str(path),
            )
        elif named[1]:
            shutil.rmtree(path)
        else:
            self._parts_of[SegmentId(int(named[2], 16), int(named[3]))] = path

    def _sync_parts(self) -> bool:
        """Sync the renames to disk before any part is inserted. Return whether that succeeded."""
        if not self._is_synced:
            try:
                DISK.sync_directory(self._root)
            except OSError as reason:
                limited.error(
                    "writer: cut", "parts of a split segment cannot be synced yet", error=reason.strerror
                )
                return False
            self._is_synced = True
        return True

    def _identities(self, segment: SegmentId) -> tuple[int, int]:
        """Return the parts' epoch and first sequence number. Parts of parts share the epoch."""
        if self.is_part(segment):
            return segment.epoch, segment.seq * PARTS + 1
        return self._epoch(), 1

    def _contents(
        self, state: SegmentState, comparison: Comparison, epoch: int, first_seq: int
    ) -> Iterator[bytes]:
        content = state.file.read()
        missing: Rows = ((0, state.rows),)
        try:
            if comparison.completeness is Completeness.MISSING:
                missing = tuple(ranges_of_days(content, comparison.days, self._core))
            for seq, rows in enumerate(_parts_of(missing), start=first_seq):
                yield self._core.rewrite(content, rows, state.file.codec, BLOCK_ROWS_MAX, (epoch, seq, False))
        except ValueError as reason:
            raise unreadable_segment(state, reason) from reason

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
    while len(parts) < PARTS and any(row_count(part) > 1 for part in parts):
        parts = [half for part in parts for half in (split_in_half(part) if row_count(part) > 1 else (part,))]
    return parts
