"""Journal reader for the writer: lists sealed segments, oldest first, and adopts orphaned epochs.

An epoch whose lock is free is orphaned. Its open segments are truncated after the last complete acknowledged
record and sealed; its directory is deleted when it is empty. All of this happens under the epoch's lock.

Invariant: a listed segment is complete, synced and never written again, except by `SegmentFile.replace`.
Never: changes a file with an unknown name or written by a newer version; hides damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import structlog

from receiver import transcode
from receiver.durable.files import DISK, delete_unneeded, reported, write_new
from receiver.journal.ceiling import DiskUsage
from receiver.journal.epoch_directory import EpochDirectory, note_of
from receiver.journal.frame import bytes_of_records, damage_in
from receiver.journal.listing import is_newer
from receiver.journal.names import SEALED, START_NOTE, FileName, Kind, epoch_of, file_name, parse_file_name
from receiver.journal.segment import Place
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
    """A sealed segment."""

    id: SegmentId
    path: Path
    bytes: int
    kind: Kind
    files: Files = field(default=DISK, repr=False, compare=False)

    @property
    def codec(self) -> str:
        """Return the compression of the payloads, named as in the settings."""
        return "zstd" if self.kind is Kind.ZSTD else "lz4"

    def read(self) -> builtins.bytes:
        """Return the content of the file, the input of one INSERT."""
        return self.files.read(self.path)

    def scan(self) -> Scan:
        """Read and verify every record."""
        return transcode.scan(self.read())

    def damage(self, scan: Scan) -> list[Damage]:
        return damage_in(scan, self.id, self.bytes)

    def replace(self, content: builtins.bytes) -> SegmentFile:
        """Replace the content atomically and durably."""
        draft = self.path.parent / file_name(self.id.seq, Kind.DRAFT)
        write_new(self.files, draft, content)
        self.files.rename(draft, self.path)
        self.files.sync_directory(self.path.parent)
        return replace(self, bytes=len(content))

    def unlink(self) -> None:
        """Delete the segment durably. Call only after every row is stored or in a dead letter."""
        # A repetition after a failed sync finds no file, but must still sync the directory.
        if self.files.size_bytes(self.path) is not None:
            self.files.unlink(self.path)
        self.files.sync_directory(self.path.parent)


class JournalFile(NamedTuple):
    id: SegmentId
    path: Path
    kind: Kind


class Journal:
    """All epoch directories under one root. Only the writer uses it."""

    def __init__(self, root: Path, files: Files = DISK) -> None:
        self._root = root
        self._files = files
        self._disk_usage = DiskUsage(root, files)
        self._logged_paths: set[str] = set()
        self._known: dict[Path, bool] = {}
        self._is_newer: dict[Path, bool] = {}
        self.newer: list[SegmentId] = []
        """Segments written by a newer version, as of the last listing. May be read from any thread."""
        # A directory that cannot be listed is an error of the next listing, too, which the writer repeats.
        with reported("journal cannot be listed", root):
            for file in self._journal_files():
                # A killed writer left it. No other process writes drafts, so it is not in use.
                if file.kind is Kind.DRAFT:
                    delete_unneeded(file.path, files)

    def sealed(self) -> list[SegmentFile]:
        """Adopt orphaned epochs, then return the sealed segments, oldest first."""
        # Only files of this listing are remembered, so that deleted segments do not accumulate.
        self._known, self._is_newer = self._is_newer, {}
        for directory in self._epoch_directories():
            self._adopt(directory)
        listed = []
        for file in self._journal_files():
            size_bytes = self._size_bytes(file.path)
            if file.kind in SEALED and size_bytes is not None and not self._is_of_newer_version(file.path):
                listed.append(SegmentFile(file.id, file.path, size_bytes, file.kind, self._files))
        self.newer = [_id_of(path) for path, is_newer in self._is_newer.items() if is_newer]
        return listed

    def _size_bytes(self, path: Path) -> int | None:
        """Return the size of a segment; `None` if it was deleted, 0 if the disk cannot read it.

        An unreadable segment is listed, so that the writer keeps its state and reports the error.
        """
        try:
            return self._files.size_bytes(path)
        except OSError:
            return 0

    def _is_of_newer_version(self, path: Path) -> bool:
        """Return whether a newer version wrote this segment. Each file is checked once."""
        try:
            known = self._known.get(path)
            newer = self._is_newer[path] = is_newer(path, self._files) if known is None else known
        except OSError:
            return False
        if newer:
            self._log_once("segment was written by a newer version; it is kept for that version", path)
        return newer

    def bytes_total(self) -> int:
        """Return the bytes of all segments, including open segments."""
        return self._disk_usage.bytes_total() if self._exists() else 0

    def _exists(self) -> bool:
        return self._files.size_bytes(self._root) is not None

    def _epoch_directories(self) -> list[Path]:
        """Return the epoch directories in the order of their creation."""
        names = self._files.names(self._root) if self._exists() else []
        for name in names:
            if epoch_of(name) is None:
                self._log_once("unknown file name in the journal; file ignored", self._root / name)
        directories = [self._root / name for name in names if epoch_of(name) is not None]
        return sorted(directories, key=lambda path: (note_of(path, self._files).created_at_ns, path.name))

    def _journal_files(self) -> Iterator[JournalFile]:
        for directory in self._epoch_directories():
            epoch = epoch_of(directory.name) or 0
            for named in self._file_names(directory):
                path = directory / file_name(named.seq, named.kind)
                yield JournalFile(SegmentId(epoch, named.seq), path, named.kind)

    def _file_names(self, directory: Path) -> list[FileName]:
        """Return the segment files of an epoch directory by sequence number; none if it was deleted."""
        try:
            names = self._files.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        listed = []
        for name in names:
            parsed = parse_file_name(name)
            if parsed is not None:
                listed.append(parsed)
            elif name != START_NOTE:
                self._log_once("unknown file name in the journal; file ignored", directory / name)
        return listed

    def _adopt(self, directory: Path) -> None:
        """Seal the open segments of an orphaned epoch. After a disk error the next call tries again."""
        try:
            orphaned = EpochDirectory.adopt(directory, self._files)
        except OSError as error:
            self._log_once("orphaned epoch cannot be adopted yet", directory, error)
            return
        if orphaned is None:
            return
        try:
            for named in self._file_names(directory):
                self._finish(directory, named)
        finally:
            # Also after an error, so that the next listing can lock the epoch again.
            orphaned.leave()

    def _finish(self, directory: Path, named: FileName) -> None:
        place = Place(directory, named.seq, self._files)
        try:
            if named.kind is Kind.OPEN:
                self._seal(place)
            elif named.kind is Kind.MARK and not place.has(Kind.OPEN):
                # A crash after the rename to the sealed name left the marker behind.
                place.unmark()
        except OSError as error:
            self._log_once("segment cannot be adopted yet", place.path(named.kind), error)

    def _seal(self, place: Place) -> None:
        path = place.path(Kind.OPEN)
        if self._is_of_newer_version(path):
            return
        content = self._files.read(path)
        # Bytes after the size in the marker were never acknowledged: their sender got an error and will
        # resend them.
        scan = transcode.scan(content[: place.bytes_promised()])
        # Without the footer that an interrupted seal may have left: it is written again.
        bytes_good = bytes_of_records(scan)
        kind = Kind.ZSTD if scan.codec == "zstd" else Kind.LZ4
        place.seal(bytes_good, _footer_of(content[:bytes_good], path), kind)
        log.info("segment adopted", path=str(path), bytes=bytes_good, cut_bytes=len(content) - bytes_good)

    def _log_once(self, event: str, path: Path, reason: OSError | None = None) -> None:
        # The writer lists the journal up to ten times a second.
        if str(path) not in self._logged_paths:
            self._logged_paths.add(str(path))
            fields = {"error": reason.strerror} if reason else {}
            log.warning(event, path=str(path), **fields)


def _id_of(path: Path) -> SegmentId:
    named = parse_file_name(path.name)
    return SegmentId(epoch_of(path.parent.name) or 0, named.seq if named else 0)


def _footer_of(content: bytes, path: Path) -> bytes:
    """Return the footer for an orphaned segment; empty if damage makes the number of rows unknown."""
    try:
        return transcode.footer(content)
    except transcode.CoreError as error:
        log.error(
            "acknowledged records are damaged", path=str(path), error=str(error), action="sealed as they are"
        )
        return b""
