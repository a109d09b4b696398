"""Inbox: files of webhooks, from their receipt until they expire.

    DATA/webhooks/<key>.json            a webhook that is acknowledged and not yet applied
    DATA/webhooks/applied/<key>.json    a note about an applied webhook, by which a retry is recognized

Invariant: when `keep` returns, the webhook or the note about it survives a power failure. A webhook's file is
    deleted only after its note is durable, so that one of both exists until the note expires.
Several intakes may keep the same webhook at once; only the store process notes and forgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from receiver.durable.files import DISK, Files, reported
from receiver.errors import InboxFull
from receiver.logs import limited
from receiver.platform.installations.record_files import RecordDirectory
from receiver.platform.webhooks.webhook import Webhook
from receiver.settings import MIB
from receiver.settings import Webhook as Limits
from receiver.sizes import size_text

DAMAGED_SUFFIX = ".damaged"
NOTES_MAX = 20_000
NOTES_BYTES_MAX = 64 * MIB
"""Limits of all notes. Above them the oldest are deleted early, and a retry is applied again."""
FREE_PART = 16
"""Fraction (1/16) of the free space that an intake uses before it counts the waiting webhooks again.

Each further intake may therefore exceed a limit by this fraction.
"""
NO_BODY = msgspec.Raw(b"null")


class Note(msgspec.Struct, frozen=True):
    id: str
    type: str
    created_at_ms: int
    received_at_ms: int
    applied_at_ms: int
    outcome: str
    """Effect of the webhook, or the reason why it had none."""
    body: msgspec.Raw = NO_BODY
    """The document of an unknown webhook, which has no other copy."""


class Inbox:
    """The directory of webhooks. Blocking."""

    def __init__(self, data_dir: Path, files: Files = DISK) -> None:
        self._waiting = RecordDirectory(data_dir / "webhooks", files)
        self._applied = RecordDirectory(self._waiting.path / "applied", files)
        self._files = files
        self._free_count = self._free_bytes = 0
        """Webhooks and bytes that `keep` may store before it counts the waiting webhooks again."""
        self._counted_limits: Limits | None = None
        self.unreadable_count = 0
        """Files of waiting webhooks that the disk could not read at the last listing."""

    # Called by intakes.

    def keep(self, webhook: Webhook, limits: Limits) -> bool:
        """Store a webhook durably. Returns False if one with its id is stored already.

        Raises `InboxFull` or `OSError`; then it must not be acknowledged.
        """
        # Each directory is created, so that both are private.
        for directory in (self._waiting, self._applied):
            directory.make()
        key = webhook.key
        is_waiting = self._is_readable(key)
        if is_waiting or self._applied.size_bytes(key) is not None:
            # The process that wrote it may not have synced its name yet.
            (self._waiting if is_waiting else self._applied).sync()
            return False
        content = msgspec.json.encode(webhook)
        self._use_space(len(content), limits)
        self._waiting.write(key, content)
        return True

    def _is_readable(self, key: str) -> bool:
        """Return whether a webhook can be read back. One that cannot is stored again."""
        with suppress(OSError):
            return bool(self._files.read_head(self._waiting.path_of(key), 1))
        return False

    def _use_space(self, more_bytes: int, limits: Limits) -> None:
        """Reserve space for a webhook. Raises `InboxFull`."""
        self._free_count -= 1
        self._free_bytes -= more_bytes
        if self._free_count < 0 or self._free_bytes < 0 or limits != self._counted_limits:
            self._free_count = self._free_bytes = 0
            count, size_bytes = self._counted(more_bytes, limits)
            self._free_count = (limits.waiting_max - count - 1) // FREE_PART
            self._free_bytes = (limits.waiting_bytes_max - size_bytes - more_bytes) // FREE_PART
            self._counted_limits = limits

    def _counted(self, more_bytes: int, limits: Limits) -> tuple[int, int]:
        """Return number and size of the waiting webhooks. Raises `InboxFull` if there is no space."""
        keys = self._waiting.all_keys()
        if len(keys) >= limits.waiting_max:
            raise InboxFull(f"{len(keys)} webhooks wait to be applied; the limit is {limits.waiting_max}")
        # The store process may have deleted some of them.
        size_bytes = sum(self._waiting.size_bytes(key) or 0 for key in keys)
        if size_bytes + more_bytes > limits.waiting_bytes_max:
            waiting, limit = size_text(size_bytes), size_text(limits.waiting_bytes_max)
            raise InboxFull(f"{waiting} of webhooks wait to be applied; the limit is {limit}")
        return len(keys), size_bytes

    # Called by the store process.

    def tidy(self) -> None:
        """Delete the drafts of killed processes. An intake that is writing one now answers 503."""
        for directory in (self._waiting, self._applied):
            directory.delete_drafts()

    def waiting(self) -> list[Webhook]:
        """Return the webhooks to apply, in the order of their creation. Damaged files are renamed.

        A file that the disk cannot read is reported, counted, and read again the next time.
        """
        webhooks, self.unreadable_count = list[Webhook](), 0
        for key in self._waiting.all_keys():
            try:
                webhooks += self._read(key)
            except OSError as error:
                self.unreadable_count += 1
                path = self._waiting.path_of(key)
                limited.error(
                    f"file: {path}",
                    "webhook cannot be read; it is tried again",
                    path=str(path),
                    error=error.strerror or type(error).__name__,
                )
        return sorted(webhooks, key=lambda webhook: (webhook.at_s, webhook.id))

    def is_applied(self, webhook: Webhook) -> bool:
        """Return whether a durable note says that the webhook was applied before."""
        if self._applied.size_bytes(webhook.key) is None:
            return False
        # A note whose directory was not synced must not replace the webhook's file.
        self._applied.sync()
        return True

    def note(self, note: Note, webhook: Webhook) -> None:
        """Record durably that a webhook was applied."""
        self._applied.write(webhook.key, msgspec.json.encode(note))

    def discard(self, webhook: Webhook) -> None:
        """Delete the file of an applied webhook."""
        # Not synced: a file that a power failure restores has a note.
        self._waiting.delete(webhook.key)

    def notes(self) -> list[Note]:
        """Return all readable notes, newest receipt first."""
        notes = [note for _, note, _ in self._read_notes() if note is not None]
        return sorted(notes, key=lambda note: note.received_at_ms, reverse=True)

    def forget(self, before_ms: int) -> int:
        """Delete notes about webhooks received before this time, and the oldest above the limits.

        Returns their number.
        """
        # A damaged note identifies its webhook by its name only; it is the first to be deleted.
        oldest_first = sorted(
            self._read_notes(), key=lambda entry: entry[1].received_at_ms if entry[1] else 0
        )
        left, left_bytes = len(oldest_first), sum(size_bytes for _, _, size_bytes in oldest_first)
        forgotten = 0
        for key, note, size_bytes in oldest_first:
            is_old = note is None or note.received_at_ms < before_ms
            if not is_old and left <= NOTES_MAX and left_bytes <= NOTES_BYTES_MAX:
                break
            with reported("note about a webhook cannot be deleted", self._applied.path_of(key)):
                self._applied.delete(key)
                left, left_bytes, forgotten = left - 1, left_bytes - size_bytes, forgotten + 1
        return forgotten

    def _read(self, key: str) -> Sequence[Webhook]:
        """Read a waiting webhook. Returns none if its file is damaged, which a crash cannot cause."""
        try:
            return [msgspec.json.decode(self._waiting.read(key), type=Webhook)]
        except (ValueError, RecursionError):
            path = self._waiting.path_of(key)
            limited.error("webhook_damaged", "webhook is damaged and cannot be applied", path=str(path))
            self._files.rename(path, path.with_suffix(DAMAGED_SUFFIX))
            return []

    def _read_notes(self) -> Iterator[tuple[str, Note | None, int]]:
        for key in self._applied.all_keys():
            # The name of a damaged file still identifies its webhook.
            with reported("note about a webhook cannot be read", self._applied.path_of(key)):
                content = self._applied.read(key)
                note = None
                with suppress(ValueError):
                    note = msgspec.json.decode(content, type=Note)
                yield key, note, len(content)
