"""Number of shards over which the rows of this journal are divided, in DATA/shards; without a file it is 0.

A `Distributed` table sends a row to a shard by its trace and by the present number of shards. Rows that were
sent are counted by the number that they were sent with, so the number changes only while no segment of the
journal has a row in the store.

Invariant: while the cluster has another number of shards than DATA/shards says, no INSERT is sent. While it
has fewer, no row counts as missing: it may be on a shard that is not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from receiver.durable.files import DISK, write_durably
from receiver.engine.store import RowLocation, Store
from receiver.errors import OperatorError, StoreTrouble
from receiver.logs import limited
from receiver.writer.units import ANY_TIME_MS, Unit, query_id_of

ANY_STATEMENT = query_id_of("")


class Shards:
    def __init__(self, store: Store, path: Path) -> None:
        """Raises `OSError`, and `OperatorError` if the file is damaged."""
        self._store = store
        self._path = path
        self.count = 0
        """Number of shards that rows are counted by; 0 without a cluster."""
        self._is_changed = True
        try:
            self.count = int(DISK.read(path))
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise OperatorError(f"'{path}' is damaged; expected the number of shards") from error

    def check(self) -> None:
        """Raise `StoreTrouble` if an INSERT would divide the rows otherwise than they are counted."""
        present = self._store.shards()
        if present == self.count:
            return
        self._is_changed = True
        cause = (
            f"the store has {present} shards and the segments of the journal were sent to {self.count}; "
            "INSERTs go on when no segment of the journal has a row in the store"
        )
        raise StoreTrouble(cause, name="SHARDS_CHANGED", advice=cause)

    def require_all(self) -> None:
        """Raise `StoreTrouble` if shards that rows may be on are not among those of the cluster."""
        if self.count and self._store.shards() < self.count:
            self.check()

    def adopt_if_changed(self, units: Sequence[Unit]) -> None:
        """Adopt the present number of shards if no row of the journal's units is or will be stored."""
        if not self._is_changed:
            return
        try:
            present = self._store.shards()
            is_lacking = present < self.count and any(units)
            if present != self.count and not is_lacking and not self._may_have_rows(units):
                write_durably(self._path, f"{present}\n".encode())
                self.count = present
            self._is_changed = present != self.count
        # Later: until then, `check` refuses every INSERT.
        except (StoreTrouble, OSError) as error:
            limited.warning("writer: shards", "number of shards cannot be read or recorded", error=str(error))

    def _may_have_rows(self, units: Sequence[Unit]) -> bool:
        ids = [unit.id for unit in units]
        # Before the count, which a running INSERT could make wrong.
        own = tuple(f"{query_id_of(str(unit))}#" for unit in ids)
        if any(statement.startswith(own) for statement in self._store.running(ANY_STATEMENT)):
            return True
        return bool(self._store.counts([RowLocation(unit, ANY_TIME_MS) for unit in ids]))
