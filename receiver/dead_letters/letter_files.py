"""Files of dead letters: rows that the store refuses or that the disk returned damaged, kept for an operator.

    DATA/dead/<segment>.<cause>.native.lz4     the bytes
    DATA/dead/<segment>.<cause>.json           the reason: cause, time, number of rows, deliveries

Invariant: both files are durable before the original is deleted. A dead letter exists while both files exist:
the bytes are written first and deleted first. A reason never changes.
Never: readable by other users.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from receiver.durable.files import DIRECTORY_MODE, DISK, drafts_in, write_durably
from receiver.errors import ReceiverError
from receiver.model import SegmentId

SUFFIXES = (".native.lz4", ".native.zst")


class NoSuchDeadLetter(ReceiverError):  # noqa: N818 - a verdict
    """No dead letter has this id."""


class DeadDelivery(msgspec.Struct, frozen=True):
    """Rows of one delivery in a dead letter."""

    drain: str
    projects: tuple[str, ...]
    """Projects of all spans of the delivery. With several, the project of these rows is unknown."""
    rows: int
    digest: str


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a segment, or some of its rows, became a dead letter."""

    segment: str
    cause: str
    """Metric label, never renamed: `poison`, `refused`, `short`, `odd`, `unreadable`, `damaged`."""
    text: str
    """Description for the operator."""
    rows: int | None
    """Rows that are not in the store because of this; `None`: unknown."""
    at: str
    """Time in UTC, ISO 8601."""
    deliveries: tuple[DeadDelivery, ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()
    """Positions of the rows in the segment, if its other rows are inserted."""
    of_rows: int = 0
    """Rows of the segment before these were removed."""

    @property
    def is_final(self) -> bool:
        """Return whether the segment is finished: the dead letter holds all rows that are not stored."""
        return self.cause != "damaged" and not self.left_out

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

    def keep(self, content: bytes, suffix: str, reason: Reason) -> Path:
        """Write a dead letter. Writing it twice leaves one, so a crash can be repeated."""
        with self._lock:
            self._root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._root.chmod(DIRECTORY_MODE)
            DISK.sync_directory(self._root.parent)
            name = f"{reason.segment}.{reason.cause}"
            kept = self._root / f"{name}{suffix}"
            write_durably(kept, content)
            write_durably(self._root / f"{name}.json", msgspec.json.format(msgspec.json.encode(reason)))
            return kept

    def letters(self) -> list[DeadLetter]:
        """Return all dead letters, by name. A damaged reason is replaced by one that says so."""
        return self._matching("*", _reason_or_substitute)

    def letter(self, name: str) -> DeadLetter:
        """Return the dead letter with this id. Raises `NoSuchDeadLetter`."""
        for letter in self.letters():
            if letter.id == name:
                return letter
        raise NoSuchDeadLetter("no dead letter has this id; expected one that `trace-drain dead ls` prints")

    def of(self, segment: SegmentId) -> list[DeadLetter]:
        """Return the dead letters of a segment.

        Raises `DecodeError` if a reason is damaged, because the writer must not guess what it decided.
        """
        return self._matching(f"{segment}.*", _reason)

    def has_any_of(self, epoch: int) -> bool:
        """Return whether there is a dead letter of a segment of this epoch."""
        return any(self._bytes_of(path) is not None for path in self._root.glob(f"{epoch:016x}-*.json"))

    def count(self) -> int:
        """Return the number of dead letters."""
        return sum(1 for path in self._root.glob("*.json") if self._bytes_of(path) is not None)

    def drop(self, letter: DeadLetter) -> None:
        """Delete a dead letter."""
        with self._lock:
            letter.path.unlink(missing_ok=True)
            self._forget(letter)

    def move(self, letter: DeadLetter, target: Path) -> None:
        """Move the bytes to `target` with one rename, which ends the dead letter."""
        with self._lock:
            letter.path.rename(target)
            DISK.sync_directory(target.parent)
            self._forget(letter)

    def tidy(self) -> None:
        """Delete what a crash left behind: drafts, and reasons whose bytes were moved or deleted.

        Call before any dead letter is written or replayed.
        """
        with self._lock:
            for draft in drafts_in(self._root):
                draft.unlink()
            for path in self._root.glob("*.json"):
                if self._bytes_of(path) is None and path.is_file():
                    path.unlink()

    def _forget(self, letter: DeadLetter) -> None:
        """Sync the removal of the bytes, then delete the reason."""
        DISK.sync_directory(self._root)
        (self._root / f"{letter.id}.json").unlink(missing_ok=True)
        DISK.sync_directory(self._root)

    def _matching(self, pattern: str, read: Callable[[Path], Reason]) -> list[DeadLetter]:
        with self._lock:
            letters = [self._letter(path, read) for path in sorted(self._root.glob(f"{pattern}.json"))]
        return [letter for letter in letters if letter is not None]

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
    return msgspec.json.decode(path.read_bytes(), type=Reason)


def _reason_or_substitute(path: Path) -> Reason:
    """Read a reason. For a damaged file, return a reason made from its name and modification time."""
    try:
        return _reason(path)
    except msgspec.DecodeError:
        segment, _, cause = path.stem.partition(".")
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        text = f"its reason cannot be read; expected JSON in '{path.name}'"
        return Reason(segment=segment, cause=cause, text=text, rows=None, at=at)
