"""Inbox: the files of webhooks between their receipt and the day on which they are forgotten.

    DATA/webhooks/<key>.json            a webhook that is acknowledged and not yet applied
    DATA/webhooks/applied/<key>.json    a note about an applied webhook, by which a retry is recognised

Invariant: when `keep` returns, the webhook or the note about it survives a power failure. A webhook's file is
    deleted only after its note is durable, so that at every moment one of both exists until it is forgotten.
Several intakes may keep the same webhook at once; only the store process notes and forgets.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from receiver.durable.files import (
    DISK,
    Files,
    delete_drafts,
    make_directories,
    reported,
    unlink_if_exists,
    write_durably,
    write_new,
)
from receiver.errors import InboxFull
from receiver.logs import limited
from receiver.platform.webhooks.webhook import Webhook
from receiver.settings import MIB
from receiver.settings import Webhook as Limits
from receiver.sizes import size_text

SUFFIX = ".json"
DAMAGED_SUFFIX = ".damaged"
NOTES_MAX = 20_000
NOTES_BYTES_MAX = 64 * MIB
"""Limits on the notes together. Above them the oldest are forgotten early, and a retry is applied again."""


NO_BODY = msgspec.Raw(b"null")


class Note(msgspec.Struct, frozen=True):
    """A note about an applied webhook."""

    id: str
    type: str
    created_at_ms: int
    received_at_ms: int
    applied_at_ms: int
    outcome: str
    """What it changed, or why it changed nothing."""
    body: msgspec.Raw = NO_BODY
    """The document of a webhook that was not understood; nothing else has its content."""


class Inbox:
    """The directory of webhooks. Blocking."""

    def __init__(self, data_dir: Path, files: Files = DISK) -> None:
        self._directory = data_dir / "webhooks"
        self._applied = self._directory / "applied"
        self._files = files
        self.unreadable_count = 0
        """Files of waiting webhooks that the disk could not read at the last listing."""

    # Called by intakes.

    def keep(self, webhook: Webhook, limits: Limits) -> bool:
        """Store a webhook durably. Returns False if one with its id is stored already.

        Raises `InboxFull` or `OSError`; then it must not be acknowledged.
        """
        # Each by itself, so that both are private.
        for directory in (self._directory, self._applied):
            make_directories(directory, self._files)
        path, note_path = self._path_of(webhook), self._note_path_of(webhook)
        is_waiting = self._is_readable(path)
        if is_waiting or self._files.size_bytes(note_path) is not None:
            # The process that wrote it may not have synced its name yet.
            self._files.sync_directory((path if is_waiting else note_path).parent)
            return False
        content = msgspec.json.encode(webhook)
        self._require_room(len(content), limits)
        self._write(path, content)
        return True

    def _is_readable(self, path: Path) -> bool:
        """Return whether a webhook can be read back. One that cannot is stored again."""
        with suppress(OSError):
            return bool(self._files.read_head(path, 1))
        return False

    def _require_room(self, more_bytes: int, limits: Limits) -> None:
        sizes = [size for path in self._paths() if (size := self._files.size_bytes(path)) is not None]
        if len(sizes) >= limits.waiting_max:
            raise InboxFull(f"{len(sizes)} webhooks wait to be applied; the limit is {limits.waiting_max}")
        if sum(sizes) + more_bytes > limits.waiting_bytes_max:
            waiting, limit = size_text(sum(sizes)), size_text(limits.waiting_bytes_max)
            raise InboxFull(f"{waiting} of webhooks wait to be applied; the limit is {limit}")

    def _write(self, path: Path, content: bytes) -> None:
        # A name of its own: with a shared one, two intakes that write the same webhook would rename each
        # other's incomplete drafts.
        draft = path.with_name(f".{path.stem}.{secrets.token_hex(8)}.tmp")
        write_new(self._files, draft, content)
        try:
            self._files.rename(draft, path)
        except OSError:
            with suppress(OSError):
                self._files.unlink(draft)
            raise
        # The name survives a power failure only after this sync.
        self._files.sync_directory(self._directory)

    # Called by the store process.

    def tidy(self) -> None:
        """Delete the drafts of killed processes. An intake that is writing one now answers 503."""
        for directory in (self._directory, self._applied):
            delete_drafts(directory, self._files)

    def waiting(self) -> list[Webhook]:
        """Return the webhooks to apply, in the order of their creation. Damaged files are renamed.

        A file that the disk cannot read is reported, counted, and read again the next time.
        """
        webhooks, self.unreadable_count = list[Webhook](), 0
        for path in self._paths():
            try:
                webhooks += self._read(path)
            except OSError as error:
                self.unreadable_count += 1
                limited.error(
                    f"file: {path}",
                    "webhook cannot be read; it is tried again",
                    path=str(path),
                    error=error.strerror or type(error).__name__,
                )
        return sorted(webhooks, key=lambda webhook: (webhook.at_s, webhook.id))

    def is_applied(self, webhook: Webhook) -> bool:
        """Return whether a durable note says that the webhook was applied before."""
        if self._files.size_bytes(self._note_path_of(webhook)) is None:
            return False
        # A note whose directory was not synced must not replace the webhook's file.
        self._files.sync_directory(self._applied)
        return True

    def note(self, note: Note, webhook: Webhook) -> None:
        """Record durably that a webhook was applied."""
        write_durably(self._note_path_of(webhook), msgspec.json.encode(note), files=self._files)

    def discard(self, webhook: Webhook) -> None:
        """Delete the file of an applied webhook."""
        # Not synced: a file that comes back after a power failure has a note.
        unlink_if_exists(self._path_of(webhook), self._files)

    def notes(self) -> list[Note]:
        """Return all notes, newest receipt first. Unreadable ones are left out."""
        notes = [note for _, note, _ in self._read_notes() if note is not None]
        return sorted(notes, key=lambda note: note.received_at_ms, reverse=True)

    def forget(self, before_ms: int) -> int:
        """Delete notes about webhooks received before this time, and the oldest above the limits.

        Returns their number.
        """
        # A note that cannot be read recognises its webhook only by its name; it is the first to be deleted.
        oldest_first = sorted(
            self._read_notes(), key=lambda found: found[1].received_at_ms if found[1] else 0
        )
        left, left_bytes = len(oldest_first), sum(size_bytes for _, _, size_bytes in oldest_first)
        forgotten = 0
        for path, note, size_bytes in oldest_first:
            is_old = note is None or note.received_at_ms < before_ms
            if not is_old and left <= NOTES_MAX and left_bytes <= NOTES_BYTES_MAX:
                break
            with reported("note about a webhook cannot be deleted", path):
                unlink_if_exists(path, self._files)
                left, left_bytes, forgotten = left - 1, left_bytes - size_bytes, forgotten + 1
        return forgotten

    def _read(self, path: Path) -> Sequence[Webhook]:
        """Read a waiting webhook. Returns none if its file is damaged, which a crash cannot cause."""
        try:
            return [msgspec.json.decode(self._files.read(path), type=Webhook)]
        except (ValueError, RecursionError):
            limited.error("webhook_damaged", "webhook is damaged and cannot be applied", path=str(path))
            self._files.rename(path, path.with_suffix(DAMAGED_SUFFIX))
            return []

    def _read_notes(self) -> Iterator[tuple[Path, Note | None, int]]:
        for path in _json_files(self._applied, self._files):
            # Without its content, the file still recognises its webhook by its name.
            with reported("note about a webhook cannot be read", path):
                yield self._read_note(path)

    def _read_note(self, path: Path) -> tuple[Path, Note | None, int]:
        content = self._files.read(path)
        try:
            return path, msgspec.json.decode(content, type=Note), len(content)
        except ValueError:
            return path, None, len(content)

    def _paths(self) -> list[Path]:
        return _json_files(self._directory, self._files)

    def _path_of(self, webhook: Webhook) -> Path:
        return self._directory / f"{webhook.key}{SUFFIX}"

    def _note_path_of(self, webhook: Webhook) -> Path:
        return self._applied / f"{webhook.key}{SUFFIX}"


def _json_files(directory: Path, files: Files) -> list[Path]:
    """Return the files of a directory; none if it does not exist."""
    if files.size_bytes(directory) is None:
        return []
    names = files.names(directory)
    return [directory / name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
