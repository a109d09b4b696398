"""Deletions of spans: each is counted by the ledger before its rows are deleted.

    count ─▶ DATA/deletion.json ─▶ ledger: stored → deleted ─▶ DELETE ─▶ no row left ─▶ DELETE in rollups
          ─▶ unlink ─▶ settle

A kill or an error at any step leaves the file, and `advance` continues from it. Until the file is gone, the
ledger counts rows as deleted that may still be in the table, so `ledger --verify` answers nothing then.

Rows of segments in the journal stay, also of recorded ones: after a kill, the writer counts them again and
inserts rows that are missing.

Invariant: a row is deleted only after the ledger has durably counted it as deleted, and is counted once.
Runs on the writer's thread between two steps. One deletion at a time; the embedded store only.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from receiver.deletion.rows import Chosen, Deletion, epochs_in
from receiver.durable.files import DISK, Files, unlink_if_exists, write_durably
from receiver.engine.retention import ROLLUP_TABLES, delete_rollup_rows
from receiver.engine.sql_text import compose
from receiver.engine.store import TABLE, Store
from receiver.errors import DiskTrouble, StoreTrouble, place_and_reason
from receiver.ledger.balance import LiveBalanceSource
from receiver.logs import limited

ADVANCE_S: Final = 1.0
"""Interval at which a deletion is continued."""
ID_BITS: Final = 63
NAMED_MAX: Final = 5
"""Maximum number of projects and drains in a line of the log."""

_MUTATIONS: Final = compose("""
SELECT latest_fail_reason FROM system.mutations
WHERE database = currentDatabase() AND table IN {tables:Array(String)} AND NOT is_done
{settings}
""")


class Deletions:
    def __init__(
        self,
        path: Path,
        store: Store,
        balances: LiveBalanceSource,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        files: Files = DISK,
    ) -> None:
        """Read the deletion that an earlier process has not finished. Raises `OSError`."""
        self._path, self._store, self._balances = path, store, balances
        self._monotonic, self._files = monotonic, files
        self._due_s = 0.0
        self.trouble = ""
        """Reason that the deletion does not go on; empty if there is none."""
        self._in_rollups = 0
        """Id of the deletion that this process has begun in the rollups."""
        self._pending: Deletion | None = None
        if files.size_bytes(path) is not None:
            self._pending = _decoded(path, files.read(path))
        balances.ledger.settle_deletions(self._pending.id if self._pending else None)

    @property
    def day(self) -> str:
        """Return the day whose rows are being deleted; empty if there is none."""
        return self._pending.day if self._pending else ""

    def begin(self, day: str, *chosen: Chosen) -> int:
        """Begin to delete the spans of a day that any of `chosen` chooses. Returns their number.

        Raises `StoreTrouble`, `DiskTrouble`.
        """
        if self._pending:
            raise DiskTrouble(
                f"spans of the day {self.day} are being deleted; expected one deletion at a time"
            )
        try:
            unfinished = sorted(self._balances.backlog.part_epochs())
            in_journal = self._balances.backlog.segments()
        except OSError as error:
            raise _nothing_deleted(error) from error
        epochs = epochs_in(self._store, day, chosen, unfinished)
        if not epochs:
            return 0
        waiting = tuple(segment for segment in in_journal if segment.seq <= epochs.get(segment.epoch, -1))
        deletion = Deletion(secrets.randbits(ID_BITS), day, chosen, epochs, waiting)
        count = deletion.count(self._store)
        if count:
            self._keep(deletion)
            event, names = (
                f"spans of the day {day} are being deleted",
                "; ".join(map(str, chosen[:NAMED_MAX])),
            )
            structlog.get_logger().info(event, spans=count, chosen=names)
            self._due_s = 0.0
            self.advance()
        return count

    def advance(self) -> None:
        """Continue the deletion, if there is one. After an error, a later call tries again."""
        if self._pending is None or self._monotonic() < self._due_s:
            return
        self._due_s = self._monotonic() + ADVANCE_S
        self.trouble = ""
        try:
            self._advance(self._pending)
        except StoreTrouble as store_trouble:
            self.trouble = store_trouble.label
        except OSError as error:
            self.trouble = place_and_reason(error)
        if self.trouble:
            limited.warning("deletion", "spans cannot be deleted yet", error=self.trouble)

    def _keep(self, deletion: Deletion) -> None:
        try:
            write_durably(self._path, msgspec.json.encode(deletion), files=self._files)
        except OSError as error:
            # The file may be in its place, and only the sync of its directory have failed.
            with suppress(OSError):
                unlink_if_exists(self._path, self._files)
            raise _nothing_deleted(error) from error
        self._pending = deletion

    def _advance(self, deletion: Deletion) -> None:
        ledger = self._balances.ledger
        if not ledger.is_deletion(deletion.id):
            known = list(self._balances.balance().sums.epochs)
            ledger.record_deletion(deletion.id, deletion.by_heading(self._store, known))
        if deletion.count(self._store):
            if not self._is_mutated(TABLE):
                deletion.delete(self._store)
            # A whole day is gone at once. Mutations are waited for by the next calls.
            if deletion.count(self._store):
                return
        if not deletion.is_all and not self._are_rollups_clean(deletion):
            return
        unlink_if_exists(self._path, self._files)
        self._pending = None
        ledger.settle_deletions(None)
        structlog.get_logger().info(f"spans of the day {deletion.day} are deleted")

    def _are_rollups_clean(self, deletion: Deletion) -> bool:
        """Delete the rows of the rollups for the day: they have names and values of its spans."""
        if self._in_rollups != deletion.id:
            delete_rollup_rows(self._store, deletion.day)
            self._in_rollups = deletion.id
        return not self._is_mutated(*ROLLUP_TABLES)

    def _is_mutated(self, *tables: str) -> bool:
        """Return whether a mutation of these tables is not done, and note why it fails."""
        mutations = self._store.rows(_MUTATIONS, {"tables": list(tables)})
        self.trouble = next((reason for (reason,) in mutations if reason), "")
        return bool(mutations)


def _nothing_deleted(error: OSError) -> DiskTrouble:
    return DiskTrouble(f"no span is deleted: {place_and_reason(error)}")


def _decoded(path: Path, content: bytes) -> Deletion:
    try:
        return msgspec.json.decode(content, type=Deletion)
    except msgspec.DecodeError as error:
        # It says which of the rows that the ledger counts as deleted may still be in the table.
        raise OSError(errno.EBADMSG, "it is damaged; restore or delete it", str(path)) from error
