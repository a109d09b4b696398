"""Files of dead letters: rows that the store refuses or that the disk returned damaged, kept for an operator.

    DATA/dead/<segment>.<cause>.native.lz4     the bytes
    DATA/dead/<segment>.<cause>.json           the reason: cause, time, number of rows, deliveries

A segment that is damaged again after a rewrite gets another dead letter: <segment>.damaged.<checksum>.

Operators see one list of these and of the bodies that the intakes quarantined.

Invariant: both files are durable before the original is deleted. A dead letter exists while both files exist:
the bytes are written first and deleted first. A reason never changes. A dead letter whose segment still
exists is listed but cannot be replayed or deleted.
Never: readable by other users.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from receiver.durable.files import (
    DIRECTORY_MODE,
    DISK,
    delete_drafts,
    make_directories,
    reported,
    unlink_if_exists,
    write_durably,
)
from receiver.errors import DeadLetterConflict, NoSuchDeadLetter
from receiver.journal.names import SEALED, file_name
from receiver.journal.quarantine import Body, QuarantineFiles
from receiver.model import SegmentId
from receiver.reports import CRASHED, DeadDelivery, DeadLetterEntry
from receiver.time_range import instant_text

SUFFIXES = (".native.lz4", ".native.zst")


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Reason that a segment, or some of its rows, became a dead letter."""

    segment: str
    cause: str
    """Metric label, never renamed: `poison`, `refused`, `short`, `odd`, `unreadable`, `damaged`."""
    text: str
    """Description for the operator."""
    rows: int | None
    """Number of rows that are not in the store because of this; `None` if unknown."""
    at: str
    """Time in UTC, ISO 8601."""
    deliveries: tuple[DeadDelivery, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Return whether the store refused these rows. Copies of their deliveries are duplicates."""
        return self.cause in {"poison", "refused"}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: str
    path: Path
    """Path of the bytes."""
    bytes: int
    reason: Reason


class DeadLetters:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.RLock()
        """Held only briefly, because the writer reads this directory for every segment."""

    def keep(self, content: bytes, suffix: str, reason: Reason, name: str = "") -> DeadLetter:
        """Write a dead letter and return it. Idempotent, so it can be repeated after a crash.

        `name`: its id; empty: segment and cause.
        """
        name = name or f"{reason.segment}.{reason.cause}"
        with self._lock:
            make_directories(self._root)
            # The directory may have been created by hand or restored with a wider mode.
            DISK.set_mode(self._root, DIRECTORY_MODE)
            DISK.sync_directory(self._root.parent)
            kept = self._root / f"{name}{suffix}"
            # The bytes first: a dead letter exists once its reason does, and then must be complete.
            write_durably(kept, content)
            write_durably(self._root / f"{name}.json", msgspec.json.format(msgspec.json.encode(reason)))
            return DeadLetter(name, kept, len(content), reason)

    def listed(self) -> list[DeadLetter]:
        """Return all dead letters, by name. A damaged reason is replaced by a substitute."""
        return self._matching("*", _reason_or_substitute)

    def of(self, segment: SegmentId) -> list[DeadLetter]:
        """Return the dead letters of a segment.

        Raises `DecodeError` if a reason is damaged, because the writer must not guess which rows are dead.
        """
        return self._matching(f"{segment}.*", _reason)

    def count(self) -> int:
        return sum(1 for path in self._root.glob("*.json") if self._bytes_of(path) is not None)

    def drop(self, dead_letter: DeadLetter) -> None:
        with self._lock:
            # The bytes first: `tidy` deletes a reason without bytes, but never bytes without a reason.
            unlink_if_exists(dead_letter.path)
            self._forget(dead_letter)

    def move(self, dead_letter: DeadLetter, target: Path) -> None:
        """Move the bytes to `target` with one rename, which ends the dead letter."""
        with self._lock:
            DISK.rename(dead_letter.path, target)
            # Before `_forget` syncs the removal: the new name must be durable before the old one is gone.
            DISK.sync_directory(target.parent)
            self._forget(dead_letter)

    def tidy(self) -> None:
        """Delete leftovers of a crash: drafts, and reasons whose bytes were moved or deleted.

        Call before any dead letter is written or replayed.
        """
        with self._lock:
            delete_drafts(self._root)
            for path in self._root.glob("*.json"):
                if self._bytes_of(path) is None and path.is_file():
                    with reported("reason of a deleted dead letter cannot be deleted", path):
                        DISK.unlink(path)

    def _forget(self, dead_letter: DeadLetter) -> None:
        """Sync the removal of the bytes, then delete the reason."""
        DISK.sync_directory(self._root)
        # After the sync: a power failure must not bring back the bytes without their reason.
        unlink_if_exists(self._root / f"{dead_letter.id}.json")
        DISK.sync_directory(self._root)

    def _matching(self, pattern: str, read: Callable[[Path], Reason]) -> list[DeadLetter]:
        with self._lock:
            dead_letters = [self._letter(path, read) for path in sorted(self._root.glob(f"{pattern}.json"))]
        return [dead_letter for dead_letter in dead_letters if dead_letter is not None]

    def _letter(self, path: Path, read: Callable[[Path], Reason]) -> DeadLetter | None:
        content = self._bytes_of(path)
        if content is None:
            return None
        return DeadLetter(path.stem, content, content.stat().st_size, read(path))

    @staticmethod
    def _bytes_of(path: Path) -> Path | None:
        names = (path.with_name(f"{path.stem}{suffix}") for suffix in SUFFIXES)
        return next((name for name in names if name.exists()), None)


def _reason(path: Path) -> Reason:
    return msgspec.json.decode(DISK.read(path), type=Reason)


def _reason_or_substitute(path: Path) -> Reason:
    """Read a reason. For a damaged file, return a reason made from its name and modification time."""
    try:
        return _reason(path)
    except (msgspec.DecodeError, OSError):
        # The operator must be able to see and drop the dead letter although its reason is damaged.
        # A file with another name must not hide the dead letters beside it.
        segment, cause, *_ = (*path.stem.split("."), "")
        at = instant_text(path.stat().st_mtime)
        text = f"its reason cannot be read; expected JSON in '{path.name}'"
        return Reason(segment=segment, cause=cause, text=text, rows=None, at=at)


class DeadLetterList:
    def __init__(self, data_dir: Path) -> None:
        self.lock = threading.Lock()
        """Held during a replay or deletion, including the trial INSERT of a replay."""
        self.dead = DeadLetters(data_dir / "dead")
        self.bodies = QuarantineFiles(data_dir / "aside")
        self._data_dir = data_dir

    def entries(self) -> list[DeadLetterEntry]:
        """Return all dead letters and quarantined bodies."""
        return [entry_of(item) for item in self._all()]

    def find(self, name: str) -> DeadLetter | Body:
        """Return the dead letter or body with this id. Raises `NoSuchDeadLetter`."""
        for item in self._all():
            if item.id == name:
                return item
        raise NoSuchDeadLetter(
            "no dead letter or quarantined body has this id; expected an id that `trace-drain dead ls` prints"
        )

    def drop(self, name: str) -> None:
        """Delete a dead letter or body. Raises `NoSuchDeadLetter`, `DeadLetterConflict`."""
        with self.lock:
            item = self.find(name)
            if isinstance(item, Body):
                self.bodies.drop(item)
            else:
                self.require_segment_deleted(item)
                self.dead.drop(item)

    def _all(self) -> list[DeadLetter | Body]:
        return [*self.dead.listed(), *self.bodies.listed()]

    def require_segment_deleted(self, dead_letter: DeadLetter) -> None:
        """Raise `DeadLetterConflict` while the segment exists: the writer still reads the dead letter.

        The directories are synced, because a deleted segment may reappear after a power failure until then.
        """
        epoch, _, seq = dead_letter.reason.segment.partition("-")
        # A quarantined body has a digest in this field, and no segment.
        names = [file_name(int(seq), kind) for kind in SEALED] if seq.isdigit() else []
        journal = self._data_dir / "journal" / epoch
        if any((journal / name).exists() for name in names):
            raise DeadLetterConflict(
                f"segment {dead_letter.reason.segment} is not finished yet; "
                "expected it to be stored or deleted"
            )
        for directory in (journal, journal.parent):
            # The epoch directory is deleted together with its last segment.
            with suppress(FileNotFoundError):
                DISK.sync_directory(directory)


def entry_of(item: DeadLetter | Body) -> DeadLetterEntry:
    if isinstance(item, DeadLetter):
        reason = item.reason
        return DeadLetterEntry(
            id=item.id,
            cause=reason.cause,
            rows=reason.rows,
            bytes=item.bytes,
            at=reason.at,
            text=reason.text,
            deliveries=reason.deliveries,
            path=str(item.path),
        )
    return DeadLetterEntry(
        id=item.id,
        cause=CRASHED,
        rows=None,
        bytes=item.bytes,
        at=instant_text(item.note.received_at_ns / 1e9),
        text=f"the decoder crashed on this body, times seen: {item.note.crashes}",
        deliveries=(DeadDelivery(item.note.drain, (), 0, item.id),),
        path=str(item.path),
    )
