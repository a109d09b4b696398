"""Loss detection for the ledger: files outside DATA/ledger that show whether its log is complete.

    DATA/ledger.head    position of the last log entry that was synced; appended and synced after each entry
    DATA/ledger.lost    one line per loss that was found; the operator deletes the file to acknowledge it

    log entry synced ──▶ head synced ──▶ the segment may be deleted

After a crash the log ends at the head or after it, never before: the head is written only after the sync of
the log returned. An entry after the head belongs to a segment that is still in the journal and is recorded
again. A log that ends before the head, or whose entry at the head has another digest, has therefore lost
history; a power failure alone never causes that. If the end of the head file is torn or lost, the position
before it is used, and a loss of entries after that position is not detected.

Invariant: no loss is acknowledged except by an operator. Never: stops the receiver for lost history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec

from receiver.durable.append_log import NO_EXTENT, AppendLog, Extent, Log, framed, unframed
from receiver.durable.files import Files, write_durably
from receiver.ledger.log_codec import START, Begun, Linked, Position
from receiver.time_range import instant_text

HEAD_BYTES_MAX = 64 << 10
"""Size above which the head file is replaced by a file with its last entry only."""

_MAGIC = b"TDLH"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Synced position of the ledger's log and synced extent of the deduplication window's log."""

    position: Position = START
    window: Extent = NO_EXTENT


_DECODER = msgspec.msgpack.Decoder(Head)


class HeadFile:
    """DATA/ledger.head. Only `write` changes it."""

    def __init__(self, path: Path, files: Files) -> None:
        self.last: Head | None = None
        """Last entry; `None` if the file is missing or has no readable entry."""
        self._path = path
        self._files = files
        self._log: AppendLog | None = None
        if files.size_bytes(path) is None:
            return
        log = unframed(_MAGIC, files.read(path), _DECODER.decode)
        self.last = max(log.entries, key=lambda head: head.position.number, default=None)
        # A damaged file is not appended to; the next write replaces it.
        if self.last is not None and not log.is_damaged:
            self._log = AppendLog(path, len(log.good), files)

    @property
    def is_in_place(self) -> bool:
        """Whether the open file still exists under this path."""
        return self._log is not None and self._log.is_in_place

    def write(self, head: Head) -> None:
        """Append a head, durably."""
        content = framed(_MAGIC, [msgspec.msgpack.encode(head)])
        if self._log is None:
            self._replace(content)
        else:
            self._log.append(content)
            if self._log.bytes_good > HEAD_BYTES_MAX:
                # The append above was durable, so a failed replacement loses nothing; the next write tries
                # again.
                with suppress(OSError):
                    self._replace(content)
        self.last = head

    def restore(self) -> None:
        """Write the file again after it was removed."""
        self.close()
        self._log = None
        self.write(self.last or Head())

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _replace(self, content: bytes) -> None:
        write_durably(self._path, content, files=self._files)
        self.close()
        self._log = AppendLog(self._path, len(content), self._files)


def losses_in(log: Log[Linked], head: Head | None) -> list[str]:
    """Describe each loss of history that is visible in the log, or by comparing the log with its head."""
    if not log.entries:
        return ["no entry of its log can be read: it is missing, damaged or of another version"]
    losses = [*_losses_within(log)]
    last = log.entries[-1].after.number
    if head is None:
        losses.append("ledger.head is missing or damaged, so nothing shows that the log is complete")
    elif last < head.position.number:
        missing = head.position.number - last
        losses.append(
            f"the last {missing} of {head.position.number} entries are missing: "
            "its log was cut or damaged at the end, or an older copy was restored"
        )
    elif not _holds(log, head.position):
        losses.append(f"entry {head.position.number} is not the entry that was written: its log was replaced")
    return losses


def _losses_within(log: Log[Linked]) -> Iterator[str]:
    first = log.entries[0]
    if not isinstance(first.entry, Begun):
        yield f"the beginning of its log, before entry {first.after.number}, is missing or damaged"
    is_reported = not isinstance(first.entry, Begun)
    for left, right in pairwise(log.entries):
        if right.before != left.after:
            is_reported = True
            missing = right.before.number - left.after.number
            subject = f"{missing} entries" if missing > 0 else "the right entries"
            yield f"{subject} between {left.after.number} and {right.after.number} are missing or damaged"
    # Where entries are missing, such bytes are expected and already reported.
    if log.is_damaged and not is_reported:
        yield "its log holds bytes that are not an entry"


def _holds(log: Log[Linked], position: Position) -> bool:
    """Return whether the entry at this position has the expected digest; True if the log begins later."""
    positions = [log.entries[0].before, *(linked.after for linked in log.entries)]
    return all(other == position for other in positions if other.number == position.number)


def reported(path: Path, files: Files) -> tuple[str, ...]:
    """Return the losses that no operator has acknowledged yet."""
    if files.size_bytes(path) is None:
        return ()
    # An operator may have edited the file, and invalid UTF-8 must not stop the receiver.
    return tuple(files.read(path).decode(errors="replace").splitlines())


def report(path: Path, losses: Sequence[str], now_s: float, files: Files) -> None:
    """Add losses to the report, durably. Losses that it already contains keep their time."""
    before = reported(path, files)
    found_at = instant_text(int(now_s), "minutes", zone="Z")
    known = {line.partition(" ")[2] for line in before}
    lines = [*before, *(f"{found_at} {loss}" for loss in losses if loss not in known)]
    write_durably(path, "".join(f"{line}\n" for line in lines).encode(), files=files)
