"""Dead letters: what the store will not take, or what the disk gave back damaged, kept for a human.

    DATA/dead/<segment>.<cause>.native.lz4     the bytes
    DATA/dead/<segment>.<cause>.json           why, when, how many rows, whose

Keeps: the bytes and the reason are on the disk, under their names, before anybody lets go of the original. A
letter is there when both files are: the bytes come first and go first. What it says is decided for good.
Never: readable by others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from receiver.errors import ReceiverError
from receiver.journal.files import DIRECTORY_MODE, DISK, drafts_in, write_durably
from receiver.model import SegmentId

SUFFIXES = (".native.lz4", ".native.zst")


class NoSuchLetter(ReceiverError):  # noqa: N818 - a verdict
    """No dead letter of this name."""


class Dead(msgspec.Struct, frozen=True):
    """Rows of one delivery that lie in a letter."""

    drain: str
    projects: tuple[str, ...]
    """Of all its spans; with more than one, nobody can tell which of them these rows have."""
    rows: int
    digest: str


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a segment, or a part of one, was set aside."""

    segment: str
    cause: str
    """Short and stable, a metric label: `poison`, `refused`, `short`, `odd`, `unreadable`, `damaged`."""
    text: str
    """What was found; what was expected."""
    rows: int | None
    """Rows that are not in the store because of this; `None`: nobody can know."""
    at: str
    """UTC, ISO 8601."""
    deliveries: tuple[Dead, ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()
    """Which rows of the segment these are, when all others of it go into the store."""
    of_rows: int = 0
    """How many the segment had before these were left out."""

    @property
    def is_final(self) -> bool:
        """The segment was done with when this was written: whatever of it was not stored is here."""
        return self.cause != "damaged" and not self.left_out

    @property
    def is_refused(self) -> bool:
        """The store refused these rows. Their deliveries are known: copies of them are duplicates."""
        return self.cause in {"poison", "refused"}


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter, as it lies there."""

    id: str
    path: Path
    """Of the bytes."""
    bytes: int
    reason: Reason


class DeadLetters:
    """The directory of what was set aside."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.RLock()
        """For moments only: the writer looks in here at every segment."""

    def keep(self, content: bytes, suffix: str, reason: Reason) -> Path:
        """Keep these bytes with their reason. Doing it twice leaves one of each."""
        with self._lock:
            self._root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._root.chmod(DIRECTORY_MODE)
            DISK.sync_directory(self._root.parent)
            name = f"{reason.segment}.{reason.cause}"
            kept = self._root / f"{name}{suffix}"
            write_durably(kept, content)
            write_durably(self._root / f"{name}.json", msgspec.json.format(msgspec.json.encode(reason)))
            return kept

    def letters(self) -> list[Letter]:
        """Every letter, by name. One whose bytes are gone is none; one whose reason rotted says so."""
        return self._called("*", _reason_or_excuse)

    def letter(self, name: str) -> Letter:
        """The letter of this name. Raises `NoSuchLetter`."""
        for letter in self.letters():
            if letter.id == name:
                return letter
        raise NoSuchLetter("no dead letter has this id; expected one that `trace-drain dead ls` prints")

    def of(self, segment: SegmentId) -> list[Letter]:
        """What was set aside of a segment. Raises `DecodeError`: what was decided is not guessed."""
        return self._called(f"{segment}.*", _reason)

    def has_any_of(self, epoch: int) -> bool:
        """Return whether there is a dead letter of a segment of this epoch."""
        return any(self._bytes_of(path) is not None for path in self._root.glob(f"{epoch:016x}-*.json"))

    def count(self) -> int:
        """How many letters lie there."""
        return sum(1 for path in self._root.glob("*.json") if self._bytes_of(path) is not None)

    def drop(self, letter: Letter) -> None:
        """Let go of it for good."""
        with self._lock:
            letter.path.unlink(missing_ok=True)
            self._forget(letter)

    def move(self, letter: Letter, target: Path) -> None:
        """Hand its bytes over, in one step: they are here or there, and from then on no letter."""
        with self._lock:
            letter.path.rename(target)
            DISK.sync_directory(target.parent)
            self._forget(letter)

    def tidy(self) -> None:
        """Remove what a crash left: drafts, and reasons whose bytes were handed over or dropped just before.

        To be called before anybody keeps or replays anything.
        """
        with self._lock:
            for draft in drafts_in(self._root):
                draft.unlink()
            for path in self._root.glob("*.json"):
                if self._bytes_of(path) is None and path.is_file():
                    path.unlink()

    def _forget(self, letter: Letter) -> None:
        """Remove what is left of a letter whose bytes are gone, and are gone for good."""
        DISK.sync_directory(self._root)
        (self._root / f"{letter.id}.json").unlink(missing_ok=True)
        DISK.sync_directory(self._root)

    def _called(self, pattern: str, read: Callable[[Path], Reason]) -> list[Letter]:
        with self._lock:
            found = [self._letter(path, read) for path in sorted(self._root.glob(f"{pattern}.json"))]
        return [letter for letter in found if letter is not None]

    def _letter(self, path: Path, read: Callable[[Path], Reason]) -> Letter | None:
        content = self._bytes_of(path)
        if content is None:
            return None
        return Letter(path.stem, content, content.stat().st_size, read(path))

    @staticmethod
    def _bytes_of(path: Path) -> Path | None:
        names = (path.with_name(f"{path.stem}{suffix}") for suffix in SUFFIXES)
        return next((name for name in names if name.exists()), None)


def _reason(path: Path) -> Reason:
    return msgspec.json.decode(path.read_bytes(), type=Reason)


def _reason_or_excuse(path: Path) -> Reason:
    """Read a reason; of one that the disk gave back damaged, tell what its name and its age tell."""
    try:
        return _reason(path)
    except msgspec.DecodeError:
        segment, _, cause = path.stem.partition(".")
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        text = f"its reason cannot be read; expected JSON in '{path.name}'"
        return Reason(segment=segment, cause=cause, text=text, rows=None, at=at)
