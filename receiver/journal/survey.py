"""What lies in a journal, seen from outside: no lock is taken, nothing is written, files may vanish."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from receiver import transcode
from receiver.errors import CommandFailed
from receiver.journal.files import DISK
from receiver.journal.frame import FOOTER_BYTES, Claim, Damage, claim_of, damage_in
from receiver.journal.names import SEALED, START_NOTE, Kind, epoch_of, understood
from receiver.journal.newer import is_newer
from receiver.journal.start import note_of
from receiver.model import SegmentId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.transcode import Scan

LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Seen:
    """A segment file, as it was a moment ago."""

    id: SegmentId
    path: Path
    is_sealed: bool
    start_lives: bool
    bytes: int
    age_s: float
    """Since the last write."""

    @property
    def state(self) -> str:
        """In one word or two."""
        if self.is_sealed:
            return "sealed"
        return "open" if self.start_lives else "left open"

    def read(self) -> Scan:
        """Read every record. Raises `FileNotFoundError` when it went to the store meanwhile."""
        return transcode.scan(self.path.read_bytes())

    def damage(self, scan: Scan) -> list[Damage]:
        """List what was promised and is not there as promised, as far as this version can tell."""
        if is_newer(self.path, DISK):
            return [Damage(self.id, 0, self.bytes, "written by a newer version, which can read it")]
        return damage_in(scan, self.id, self.bytes if self.is_sealed else None)

    def claim(self) -> Claim:
        """Count records and rows: from the footer if there is one, else by reading."""
        claim = self._claimed() if self.is_sealed else None
        if claim is not None:
            return claim
        scan = self.read()
        return Claim(len(scan.records), sum(record.rows for record in scan.records), scan.good_bytes)

    def _claimed(self) -> Claim | None:
        with self.path.open("rb") as file:
            file.seek(max(0, self.bytes - FOOTER_BYTES))
            return claim_of(file.read())


def segments_under(root: Path) -> Iterator[Seen]:
    """Yield every segment, by start and counter."""
    found = root.iterdir() if root.is_dir() else ()
    starts = [path for path in found if epoch_of(path.name) is not None and path.is_dir()]
    for directory in sorted(starts, key=lambda path: (note_of(path, DISK).created_at_ns, path.name)):
        with suppress(FileNotFoundError):
            lives = start_lives(directory)
            for path in sorted(directory.iterdir()):
                with suppress(FileNotFoundError):
                    yield from _seen(path, lives=lives)


def _seen(path: Path, *, lives: bool) -> Iterator[Seen]:
    named = understood(path.name)
    if named is not None and named.kind in (Kind.OPEN, *SEALED):
        segment = SegmentId(epoch_of(path.parent.name) or 0, named.seq)
        yield _seen_as(segment, path, is_sealed=named.kind in SEALED, lives=lives)


def _seen_as(segment: SegmentId, path: Path, *, is_sealed: bool, lives: bool) -> Seen:
    status = path.stat()
    return Seen(segment, path, is_sealed, lives, status.st_size, max(0.0, time.time() - status.st_mtime))


def start_lives(directory: Path) -> bool:
    """Whether some process holds the lock of this start, as the kernel lists it."""
    inode = (directory / START_NOTE).stat().st_ino
    locks = [line.split() for line in LOCKS.read_text().splitlines()]
    return any("FLOCK" in fields and fields[5].endswith(f":{inode}") for fields in locks)


def segment_called(name: str, root: Callable[[], Path]) -> Seen:
    """Find a segment by its path, wherever that is, or by its name as `journal ls` prints it.

    Only what is no path is looked for, under `root`.
    """
    path = Path(name)
    if path.is_file():
        return _lying_at(path)
    for seen in () if "/" in name else segments_under(root()):
        if str(seen.id) == name:
            return seen
    raise CommandFailed(f"segment '{name}' is not there; expected a path or a name that `journal ls` prints")


def _lying_at(path: Path) -> Seen:
    """A segment anywhere: its records say which it is. What has none must at least have the name of one."""
    scan = transcode.scan(path.read_bytes())
    if not (scan.records or scan.sealed or understood(path.name)):
        raise CommandFailed(f"'{path}' holds no record of a journal; expected a segment")
    is_sealed = path.name.endswith(SEALED)
    return _seen_as(SegmentId(scan.epoch, scan.seq), path, is_sealed=is_sealed, lives=True)
