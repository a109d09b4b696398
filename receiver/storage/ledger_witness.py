"""The witness of the ledger: files outside DATA/ledger that show whether its log is whole.

    DATA/ledger.head    position of the last log entry that was synced; appended and synced after each entry
    DATA/ledger.lost    one line per loss that was found; the operator deletes the file to acknowledge it

    log entry synced ──▶ head synced ──▶ the segment may be deleted

A crash leaves the log at the head or ahead of it, never behind: the head is written only after the sync of
the log returned. An entry behind the head belongs to a segment that is still in the journal and is booked
again. So a log that ends before the head, or whose entry at the head has another digest, lost history, and a
power cut alone never looks like that. A torn or lost end of the head itself is an older position, which
claims less.

Invariant: no loss is acknowledged except by an operator. Never: stops the receiver for lost history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from receiver.journal.files import Files, write_durably
from receiver.storage.appended import NO_EXTENT, AppendedLog, Extent
from receiver.storage.framing import Log, framed, unframed
from receiver.storage.ledger_log import START, Begun, Linked, Position

HEAD_BYTES_MAX = 64 << 10
"""The head file is replaced by one with its last entry alone when it is longer."""

_MAGIC = b"TDLH"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """How far the ledger's log, and the redelivery window's, were on the disk."""

    position: Position = START
    window: Extent = NO_EXTENT


_DECODER = msgspec.msgpack.Decoder(Head)


class HeadFile:
    """DATA/ledger.head. Only `write` changes it."""

    def __init__(self, path: Path, files: Files) -> None:
        self.last: Head | None = None
        """`None`: the file is missing, or nothing in it can be read."""
        self._path = path
        self._files = files
        self._log: AppendedLog | None = None
        if files.size_bytes(path) is None:
            return
        found = unframed(_MAGIC, files.read(path), _DECODER.decode)
        self.last = max(found.entries, key=lambda head: head.position.number, default=None)
        if self.last is not None and not found.is_rotten:
            self._log = AppendedLog(path, len(found.good), files)

    @property
    def is_there(self) -> bool:
        """Whether the file that is written to still has its name."""
        return self._log is not None and self._log.is_there

    def write(self, head: Head) -> None:
        """Append a head, durably."""
        content = framed(_MAGIC, [msgspec.msgpack.encode(head)])
        if self._log is None:
            self._replace(content)
        else:
            self._log.append(content)
            if self._log.bytes_good > HEAD_BYTES_MAX:
                with suppress(OSError):
                    self._replace(content)
        self.last = head

    def restore(self) -> None:
        """Write the file again after it was removed."""
        self.close()
        self._log = None
        self.write(self.last or Head())

    def close(self) -> None:
        """Close the descriptor."""
        if self._log is not None:
            self._log.close()

    def _replace(self, content: bytes) -> None:
        write_durably(self._path, content, files=self._files)
        self.close()
        self._log = AppendedLog(self._path, len(content), self._files)


def losses_in(log: Log[Linked], head: Head | None) -> list[str]:
    """Describe each loss of history that a log shows by itself or against its head."""
    if not log.entries:
        return ["no entry of its log can be read: it is missing, damaged or of another version"]
    found = [*_losses_within(log)]
    last = log.entries[-1].after.number
    if head is None:
        found.append("ledger.head is missing or damaged, so nothing shows that the log is whole")
    elif last < head.position.number:
        missing = head.position.number - last
        found.append(
            f"the last {missing} of {head.position.number} entries are missing: "
            "its log was cut or damaged at the end, or an older copy was put back"
        )
    elif not _holds(log, head.position):
        found.append(f"entry {head.position.number} is another one than was written: its log was exchanged")
    return found


def _losses_within(log: Log[Linked]) -> Iterator[str]:
    first = log.entries[0]
    if not isinstance(first.entry, Begun):
        yield f"the beginning of its log, before entry {first.after.number}, is missing or damaged"
    is_told = not isinstance(first.entry, Begun)
    for one, other in pairwise(log.entries):
        if other.before != one.after:
            is_told = True
            missing = other.before.number - one.after.number
            what = f"{missing} entries" if missing > 0 else "the right entries"
            yield f"{what} between {one.after.number} and {other.after.number} are missing or damaged"
    if log.is_rotten and not is_told:
        yield "its log holds bytes that are no entry"


def _holds(log: Log[Linked], position: Position) -> bool:
    """Whether the entry at this position is the one that was written. A log begun later cannot show it."""
    places = [log.entries[0].before, *(one.after for one in log.entries)]
    return all(one == position for one in places if one.number == position.number)


def reported(path: Path, files: Files) -> tuple[str, ...]:
    """Return the losses that no operator has acknowledged yet."""
    if files.size_bytes(path) is None:
        return ()
    return tuple(files.read(path).decode(errors="replace").splitlines())


def report(path: Path, losses: Sequence[str], now_s: float, files: Files) -> None:
    """Add losses to the report, durably; those that are in it already stay as they are."""
    before = reported(path, files)
    found_at = datetime.fromtimestamp(int(now_s), UTC).strftime("%Y-%m-%dT%H:%MZ")
    known = {line.partition(" ")[2] for line in before}
    lines = [*before, *(f"{found_at} {loss}" for loss in losses if loss not in known)]
    write_durably(path, "".join(f"{line}\n" for line in lines).encode(), files=files)
