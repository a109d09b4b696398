"""What the files of the journal are called. Names are made of integers only, and only such names are ours."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

START_NOTE = "start"
"""In each start directory: who writes there, and since when. Its lock is held by that intake."""


class Kind(StrEnum):
    """What a file is, by its suffix."""

    OPEN = "open"
    """Being written, or left by a start that ended."""
    LZ4 = "native.lz4"
    """Sealed."""
    ZSTD = "native.zst"
    """Sealed."""
    MARK = "cut"
    """How many bytes of the open file were ever promised."""
    DRAFT = "rewrite"
    """New content of a sealed file, until it is complete."""


SEALED = (Kind.LZ4, Kind.ZSTD)


class FileName(NamedTuple):
    """A file name, understood."""

    seq: int
    kind: Kind


_START = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(r"([0-9]{10})\.(" + "|".join(map(re.escape, Kind)) + ")")


def start_name(epoch: int) -> str:
    """Name of the directory of one intake start."""
    return f"{epoch:016x}"


def epoch_of(name: str) -> int | None:
    """Whose directory this is; none: not ours."""
    return int(name, 16) if _START.fullmatch(name) else None


def file_name(seq: int, kind: Kind) -> str:
    """Name of one file of a start."""
    return f"{seq:010d}.{kind}"


def parse_file_name(name: str) -> FileName | None:
    """Tell what a file is; none: not ours."""
    found = _FILE.fullmatch(name)
    return FileName(int(found[1]), Kind(found[2])) if found else None
