"""Detection of segments that a newer version of this program wrote.

After a downgrade the journal may hold records in an unknown format. They look damaged, but they are
acknowledged, and the newer version can read them.

Invariant: such a segment is not truncated, sealed, stored, dead-lettered or deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver import transcode

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.durable.files import Files


def is_newer(path: Path, files: Files) -> bool:
    """Return whether a segment begins with a record of a newer version. Usually reads only the head."""
    head = files.read_head(path, transcode.HEAD_BYTES)
    # A damaged version field also looks newer in the head; only the whole file tells the two apart.
    return transcode.is_newer(head) and transcode.is_newer(files.read(path))
