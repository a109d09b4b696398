"""File names of the journal. They consist of integers only. Files with other names are never touched."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

START_NOTE = "start"
"""File in each epoch directory: process id and start time of the intake, which holds a lock on it."""


class Kind(StrEnum):
    """File kinds, by suffix."""

    OPEN = "open"
    """Being written, or orphaned by an intake that ended."""
    LZ4 = "native.lz4"
    """Sealed, compressed with LZ4."""
    ZSTD = "native.zst"
    """Sealed, compressed with zstd."""
    MARK = "cut"
    """Number of valid bytes of the open file."""
    DRAFT = "rewrite"
    """New content of a sealed file, not complete yet."""


SEALED = (Kind.LZ4, Kind.ZSTD)


class FileName(NamedTuple):
    seq: int
    kind: Kind


_START = re.compile(r"[0-9a-f]{16}")
# Fixed width, so that a segment has one possible name and names sort in the order of writing.
_FILE = re.compile(r"([0-9]{10})\.(" + "|".join(map(re.escape, Kind)) + ")")


def start_name(epoch: int) -> str:
    """Return the directory name of an epoch."""
    return f"{epoch:016x}"


def epoch_of(name: str) -> int | None:
    """Parse the name of an epoch directory. Returns `None` for any other name."""
    return int(name, 16) if _START.fullmatch(name) else None


def file_name(seq: int, kind: Kind) -> str:
    return f"{seq:010d}.{kind}"


def parse_file_name(name: str) -> FileName | None:
    """Parse the name of a segment file. Returns `None` for any other name."""
    match = _FILE.fullmatch(name)
    return FileName(int(match[1]), Kind(match[2])) if match else None
