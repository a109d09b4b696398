"""Record of the digest key that the deduplication window was made with, and of the window's existence.

    DATA/redelivery.begun    id of the digest key, hexadecimal

The file is written after the window's first log, before the first decision. From this file the receiver
detects at start that the window was removed or its key replaced. With another key the window does not
recognise copies of deliveries that were accepted before.
"""

from __future__ import annotations

from pathlib import Path

from receiver.durable.files import DISK, write_durably
from receiver.journal.digest_key import DigestKey


class WindowKey:
    """Comparison of the current digest key with the key that the window was made with."""

    def __init__(self, root: Path) -> None:
        """`root`: the window's directory. The key file and the record are next to it."""
        self._key = DigestKey(root.parent)
        self._record = root.with_name(f"{root.name}.begun")

    @property
    def _id(self) -> str:
        return self._key.load().id.hex()

    def loss(self, *, has_files: bool, is_empty: bool) -> str:
        """Return why earlier deliveries are not recognised; empty if they are.

        `has_files`: the directory holds a log or a table. `is_empty`: these have no entries.
        """
        recorded_key = DISK.read(self._record).decode() if self._record.exists() else None
        if recorded_key is None:
            # Written last, so a crash during the first start leaves an empty window without it.
            return (
                "" if is_empty else f"'{self._record.name}', which names the window's digest key, is missing"
            )
        if not has_files:
            return "the window's log and tables are missing"
        return "" if recorded_key == self._id else "the digest key was replaced"

    def begin(self) -> None:
        """Record durably that the window belongs to the current key."""
        if not self._record.exists() or DISK.read(self._record).decode() != self._id:
            write_durably(self._record, self._id.encode())

    def restore(self) -> tuple[bool, bool]:
        """Rewrite the key file and the record if they were removed or changed.

        Returns whether a file was rewritten, and whether it held another key, which a process may already
        have used.
        """
        key, key_on_disk = self._key.load(), self._key.read()
        if key_on_disk != key:
            self._key.restore()
        # Checked before `begin`, which writes the record.
        is_recorded = self._record.exists()
        self.begin()
        return key_on_disk != key or not is_recorded, key_on_disk not in {key, None}
