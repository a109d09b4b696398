"""The writer's end of the journal: sealed segments, oldest first, those of dead starts included.

A start whose lock is free is dead: it is adopted. Its open segments are cut after the last whole record
that was ever promised, sealed like any other, and its directory goes when it is empty. All that happens
under its lock.

Keeps: what is listed is complete, synced and never written again, except by `SegmentFile.replace`.
Never: touches a file whose name it does not understand or that a newer version wrote, or hides damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import structlog

from receiver import transcode
from receiver.durable.files import DISK, write_new
from receiver.journal.ceiling import DiskUsage
from receiver.journal.frame import bytes_of_records, damage_in, sealed_kind
from receiver.journal.names import SEALED, START_NOTE, FileName, Kind, epoch_of, file_name, parse_file_name
from receiver.journal.newer import is_newer
from receiver.journal.segment import Place
from receiver.journal.start import EpochDirectory, note_of
from receiver.model import SegmentId

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator
    from pathlib import Path

    from receiver.durable.files import Files
    from receiver.journal.frame import Damage
    from receiver.transcode import Scan

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A sealed segment, as it lies there."""

    id: SegmentId
    path: Path
    bytes: int
    kind: Kind
    files: Files = field(default=DISK, repr=False, compare=False)

    @property
    def codec(self) -> str:
        """How its payloads are compressed, in the settings' words."""
        return "zstd" if self.kind is Kind.ZSTD else "lz4"

    def read(self) -> builtins.bytes:
        """Return the whole file: what one INSERT is fed with."""
        return self.files.read(self.path)

    def scan(self) -> Scan:
        """Read and verify every record."""
        return transcode.scan(self.read())

    def damage(self, scan: Scan) -> list[Damage]:
        """List what was promised in this file and is not there as promised."""
        return damage_in(scan, self.id, self.bytes)

    def replace(self, content: builtins.bytes) -> SegmentFile:
        """Put new content in its place, in one step that outlives a power cut."""
        draft = self.path.parent / file_name(self.id.seq, Kind.DRAFT)
        write_new(self.files, draft, content)
        self.files.rename(draft, self.path)
        self.files.sync_directory(self.path.parent)
        return replace(self, bytes=len(content))

    def unlink(self) -> None:
        """Let go of it, durably. Only once every row of it is in the store, or set aside."""
        if self.files.size_bytes(self.path) is not None:
            self.files.unlink(self.path)
        self.files.sync_directory(self.path.parent)


class JournalFile(NamedTuple):
    """A file of ours in some start directory."""

    id: SegmentId
    path: Path
    kind: Kind


class Journal:
    """All start directories under one root. One per data directory: it belongs to the writer."""

    def __init__(self, root: Path, files: Files = DISK) -> None:
        self._root = root
        self._files = files
        self._disk_usage = DiskUsage(root, files)
        self._logged_paths: set[str] = set()
        self._known: dict[Path, bool] = {}
        self._is_newer: dict[Path, bool] = {}
        self.held: list[SegmentId] = []
        """Segments that wait for the newer version that wrote them, by the last look. For any thread."""
        for found in self._journal_files():
            if found.kind is Kind.DRAFT:
                self._files.unlink(found.path)

    def sealed(self) -> list[SegmentFile]:
        """Sealed segments, oldest first, after adopting what dead starts left."""
        self._known, self._is_newer = self._is_newer, {}
        for directory in self._starts():
            self._adopt(directory)
        listed = []
        for found in self._journal_files():
            size_bytes = self._files.size_bytes(found.path)
            if found.kind in SEALED and size_bytes is not None and not self._is_held(found.path):
                listed.append(SegmentFile(found.id, found.path, size_bytes, found.kind, self._files))
        self.held = [_id_of(path) for path, is_newer in self._is_newer.items() if is_newer]
        return listed

    def _is_held(self, path: Path) -> bool:
        """Look once at each."""
        try:
            known = self._known.get(path)
            found = self._is_newer[path] = is_newer(path, self._files) if known is None else known
        except OSError:
            return False
        if found:
            self._log_once("segment of a newer version; left for that version", path)
        return found

    def bytes_total(self) -> int:
        """Bytes of everything in it, open segments included."""
        return self._disk_usage.bytes_total() if self._exists() else 0

    def _exists(self) -> bool:
        return self._files.size_bytes(self._root) is not None

    def _starts(self) -> list[Path]:
        """Start directories, in the order they were made."""
        names = self._files.names(self._root) if self._exists() else []
        for name in names:
            if epoch_of(name) is None:
                self._log_once("strange name in the journal; left alone", self._root / name)
        directories = [self._root / name for name in names if epoch_of(name) is not None]
        return sorted(directories, key=lambda path: (note_of(path, self._files).created_at_ns, path.name))

    def _journal_files(self) -> Iterator[JournalFile]:
        for directory in self._starts():
            epoch = epoch_of(directory.name) or 0
            for named in self._listed(directory):
                path = directory / file_name(named.seq, named.kind)
                yield JournalFile(SegmentId(epoch, named.seq), path, named.kind)

    def _listed(self, directory: Path) -> list[FileName]:
        """Files of ours in a start directory, by counter; a directory that vanished has none."""
        try:
            names = self._files.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        listed = []
        for name in names:
            named = parse_file_name(name)
            if named is not None:
                listed.append(named)
            elif name != START_NOTE:
                self._log_once("strange name in the journal; left alone", directory / name)
        return listed

    def _adopt(self, directory: Path) -> None:
        """Finish what a dead start left. What the disk refuses now is tried again at the next call."""
        try:
            start = EpochDirectory.adopt(directory, self._files)
        except OSError as reason:
            self._log_once("start cannot be adopted yet", directory, reason)
            return
        if start is None:
            return
        try:
            for named in self._listed(directory):
                self._finish(directory, named)
        finally:
            start.leave()

    def _finish(self, directory: Path, named: FileName) -> None:
        place = Place(directory, named.seq, self._files)
        try:
            if named.kind is Kind.OPEN:
                self._seal(place)
            elif named.kind is Kind.MARK and not place.has(Kind.OPEN):
                place.unmark()
        except OSError as reason:
            self._log_once("segment cannot be adopted yet", place.path(named.kind), reason)

    def _seal(self, place: Place) -> None:
        path = place.path(Kind.OPEN)
        if self._is_held(path):
            return
        content = self._files.read(path)
        scan = transcode.scan(content[: place.bytes_promised()])
        bytes_good = bytes_of_records(scan)
        place.seal(bytes_good, _footer_of(content[:bytes_good], path), sealed_kind(content, scan))
        log.info("segment adopted", path=str(path), bytes=bytes_good, cut_bytes=len(content) - bytes_good)

    def _log_once(self, event: str, path: Path, reason: OSError | None = None) -> None:
        """Once for each path."""
        if str(path) not in self._logged_paths:
            self._logged_paths.add(str(path))
            why = {"reason": reason.strerror} if reason else {}
            log.warning(event, path=str(path), **why)


def _id_of(path: Path) -> SegmentId:
    named = parse_file_name(path.name)
    return SegmentId(epoch_of(path.parent.name) or 0, named.seq if named else 0)


def _footer_of(content: bytes, path: Path) -> bytes:
    """Close what a dead start left. Of records that rotted nobody knows the sums: no footer, so damage."""
    try:
        return transcode.footer(content)
    except transcode.CoreError as reason:
        log.error("promised records rotted; sealed as they are", path=str(path), reason=str(reason))
        return b""
