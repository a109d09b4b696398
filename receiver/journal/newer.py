"""Detection of segments that a newer version of this program wrote.

After a downgrade the journal may hold records in an unknown format. They look damaged, but they are
acknowledged, and the newer version can read them.

Invariant: such a segment is not truncated, sealed, stored, dead-lettered or deleted.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from receiver import transcode

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.durable.files import Files

VERSION = 1
"""Version of the records that this program writes, and the newest that it reads."""
_HEAD = struct.Struct("<II4sH")
_RECORD = (0x184D2A54, b"TDRJ")
_VERSION_AT = 12


def is_newer(path: Path, files: Files) -> bool:
    """Return whether a segment begins with a record of a newer version."""
    head = files.read_head(path, _HEAD.size)
    if len(head) < _HEAD.size:
        return False
    magic, _, tag, version = _HEAD.unpack(head)
    if (magic, tag) != _RECORD or version <= VERSION:
        return False
    return not _is_damaged_version(files.read(path))


def _is_damaged_version(content: bytes) -> bool:
    """Return whether only the version field is damaged: with our version there, valid records are found."""
    ours = VERSION.to_bytes(2, "little")
    return bool(transcode.scan(content[:_VERSION_AT] + ours + content[_VERSION_AT + len(ours) :]).records)
