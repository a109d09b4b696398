"""Which digest key the redelivery window belongs to, and that there is a window at all.

    DATA/redelivery.begun    id of the digest key, hexadecimal

Written once the window's first log is on the disk, before anything is noted in it. So a window that is
removed while nothing runs is missed, and one whose key was replaced is reported: it recognises no copies of
what was accepted before.
"""

from __future__ import annotations

from pathlib import Path

from receiver.journal.digest_key import DigestKey
from receiver.journal.files import write_durably


class WindowKey:
    """The digest key as the window sees it."""

    def __init__(self, root: Path) -> None:
        """`root`: the window's directory; the key and the note lie beside it."""
        self._key = DigestKey(root.parent)
        self._note = root.with_name(f"{root.name}.begun")

    @property
    def _id(self) -> str:
        return self._key.load().id.hex()

    def loss(self, *, has_files: bool, is_empty: bool) -> str:
        """Return why earlier deliveries are not recognised. Empty: nothing was found wrong.

        `has_files`: the directory holds a log or a table. `is_empty`: nothing is noted in them.
        """
        begun_with = self._note.read_text() if self._note.exists() else None
        if begun_with is None:
            return "" if is_empty else f"'{self._note.name}', which names the window's digest key, is missing"
        if not has_files:
            return "the window's log and tables are missing"
        return "" if begun_with == self._id else "the digest key was replaced"

    def begin(self) -> None:
        """Note, durably, which key the window belongs to from now on."""
        if not self._note.exists() or self._note.read_text() != self._id:
            write_durably(self._note, self._id.encode())

    def restore(self) -> tuple[bool, bool]:
        """Write the key and the note again if they were removed or changed.

        Returns whether they had been, and whether the file held another key, which a process may have used.
        """
        key, found = self._key.load(), self._key.read()
        if found != key:
            self._key.restore()
        is_noted = self._note.exists()
        self.begin()
        return found != key or not is_noted, found not in {key, None}
