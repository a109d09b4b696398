"""Dead letters: what the store will not take, or what the disk gave back damaged, kept for a human.

    DATA/dead/<segment>.<cause>.native.lz4     the bytes
    DATA/dead/<segment>.<cause>.json           why, when, how many rows

Keeps: the bytes and the reason are on the disk, under their names, before anybody lets go of the original.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from receiver.journal.files import DIRECTORY_MODE, DISK, write_new


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a segment, or a part of one, was set aside."""

    segment: str
    cause: str
    """Short and stable, a metric label: `poison`, `short`, `odd`, `unreadable`, `damaged`."""
    text: str
    """What was found; what was expected."""
    rows: int | None
    """Rows that are not in the store because of this; `None`: nobody can know."""
    at: str
    """UTC, ISO 8601."""


class DeadLetters:
    """The directory of what was set aside."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, content: bytes, suffix: str, reason: Reason) -> Path:
        """Keep these bytes with their reason. Doing it twice leaves one of each."""
        self._root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        DISK.sync_directory(self._root.parent)
        name = f"{reason.segment}.{reason.cause}"
        write_durably(self._root / f"{name}.json", msgspec.json.format(msgspec.json.encode(reason)))
        kept = self._root / f"{name}{suffix}"
        write_durably(kept, content)
        return kept

    def count(self) -> int:
        """How many letters lie there."""
        return sum(1 for _ in self._root.glob("*.json"))


def write_durably(path: Path, *parts: bytes | memoryview) -> None:
    """Put a file under its name, whole, on the disk; or leave what was there."""
    draft = path.with_name(f".{path.name}.tmp")
    write_new(DISK, draft, *parts)
    DISK.rename(draft, path)
    DISK.sync_directory(path.parent)
