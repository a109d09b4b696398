"""Report of tables that were dropped: their rows are lost, and the schema creates them again, empty.

    DATA/store.lost    one line per loss; the operator deletes the file to acknowledge it

Invariant: a loss is reported durably before the table is created again, so that a crash cannot hide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from receiver.durable.files import DISK, make_directories
from receiver.engine import schema
from receiver.engine.store import Store
from receiver.ledger import loss_detection
from receiver.ledger.ledger import Sums
from receiver.logs import limited


class LostTables:
    """The losses of tables that no operator has acknowledged."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "store.lost"

    @property
    def trouble(self) -> str:
        try:
            return "; ".join(loss_detection.reported(self._path, DISK))
        except OSError as error:
            return f"store.lost cannot be read: {error.strerror}"

    def detect(self, store: Store, sources: Sequence[tuple[str, str]], sums: Sums, now_s: float) -> None:
        """Report the dropped tables. To be called before the schema is applied. `sums`: of the ledger."""
        has_stored = any(counts.stored for counts in sums.lines.values())
        losses = [
            f"table '{table}' is gone and is created again, empty: it was dropped, or the store is another"
            for table in schema.dropped(store, sources, has_stored=has_stored)
        ]
        if losses:
            make_directories(self._path.parent)
            loss_detection.report(self._path, losses, now_s, DISK)
            limited.error(
                "store: lost",
                "tables of the store were dropped and are created again, empty",
                path=str(self._path),
                error="; ".join(losses),
                action="find the cause, restore a backup if there is one, then delete this file",
            )
