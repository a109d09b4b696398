"""Files of dead letters: rows that the store refuses or that the disk returned damaged, kept for an operator.

    DATA/dead/<segment>.<cause>.native.lz4     the bytes
    DATA/dead/<segment>.<cause>.json           the reason: cause, time, number of rows, deliveries

A segment that is damaged again after a rewrite gets another dead letter: <segment>.damaged.<checksum>.

Invariant: both files are durable before the original is deleted. A dead letter exists while both files exist:
the bytes are written first and deleted first. A reason never changes.
Never: readable by other users.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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
from receiver.errors import NoSuchDeadLetter
from receiver.model import SegmentId
from receiver.reports import DeadDelivery
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
    """A dead letter on disk."""

    id: str
    path: Path
    """Path of the bytes."""
    bytes: int
    reason: Reason


class DeadLetters:
    """The directory of dead letters."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.RLock()
        """Held only briefly, because the writer reads this directory for every segment."""

    def keep(self, content: bytes, suffix: str, reason: Reason, name: str = "") -> Path:
        """Write a dead letter. Idempotent, so it can be repeated after a crash.

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
            return kept

    def listed(self) -> list[DeadLetter]:
        """Return all dead letters, by name. A damaged reason is replaced by a substitute."""
        return self._matching("*", _reason_or_substitute)

    def find(self, name: str) -> DeadLetter:
        """Return the dead letter with this id. Raises `NoSuchDeadLetter`."""
        for dead_letter in self.listed():
            if dead_letter.id == name:
                return dead_letter
        raise NoSuchDeadLetter("no dead letter has this id; expected one that `trace-drain dead ls` prints")

    def of(self, segment: SegmentId) -> list[DeadLetter]:
        """Return the dead letters of a segment.

        Raises `DecodeError` if a reason is damaged, because the writer must not guess which rows are dead.
        """
        return self._matching(f"{segment}.*", _reason)

    def count(self) -> int:
        """Return the number of dead letters."""
        return sum(1 for path in self._root.glob("*.json") if self._bytes_of(path) is not None)

    def drop(self, dead_letter: DeadLetter) -> None:
        """Delete a dead letter."""
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
