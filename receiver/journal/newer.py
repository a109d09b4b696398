"""Segments that a newer version of this program wrote: recognised, and left for that version.

After a downgrade the journal may hold records in a form that is not known here yet. To us they look damaged,
but they are promised, and whoever wrote them can read them.

Keeps: what is held is neither cut, sealed, stored, set aside nor removed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from receiver import transcode

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.durable.files import Files

VERSION = 1
"""Of the records we write, and the newest that we read."""
_HEAD = struct.Struct("<II4sH")
_RECORD = (0x184D2A54, b"TDRJ")
_VERSION_AT = 12


def is_newer(path: Path, files: Files) -> bool:
    """Whether a segment begins with a record of a newer version."""
    head = files.read_head(path, _HEAD.size)
    if len(head) < _HEAD.size:
        return False
    magic, _, tag, version = _HEAD.unpack(head)
    if (magic, tag) != _RECORD or version <= VERSION:
        return False
    return not _is_rot(files.read(path))


def _is_rot(content: bytes) -> bool:
    """With our version in its place the record is whole, or others of ours follow: it is one of ours."""
    ours = VERSION.to_bytes(2, "little")
    return bool(transcode.scan(content[:_VERSION_AT] + ours + content[_VERSION_AT + len(ours) :]).records)
