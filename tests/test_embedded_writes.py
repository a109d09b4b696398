"""What the embedded engine's event counter tells when two threads write: nothing is told to the wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.errors import StoreTrouble
from receiver.model import SegmentId
from receiver.storage.embedded import EmbeddedStore
from receiver.storage.store import TABLE, Held, Parameters

HELD = Held(SegmentId(7, 1), (0, 0))


class Swallowing(EmbeddedStore):
    """No engine: the first statement meets a disk that refuses, and another one ends before it does."""

    def __init__(self) -> None:
        self.failures = self._write_failures = 0
        self.parts: list[tuple[str, str, bool]] = []
        self.commands: list[str] = []

    def rows(self, statement: str, _parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        if "system.events" in statement:
            return [(self.failures,)]
        return list(self.parts) if "system.parts" in statement else [(0,)]

    def command(self, statement: str) -> None:
        self.commands.append(statement)

    def _insert_select(self, _statement: str, _parameters: Parameters | None) -> None:
        if not self.failures:
            self.failures = 1
            self.refill_companion(HELD)
            self.parts.append((TABLE, "20260101_1_1_0", False))


def test_a_refused_write_is_found_though_another_thread_looked_before_its_part_was_there() -> None:
    store = Swallowing()

    with pytest.raises(StoreTrouble, match="the disk refused writes of this INSERT"):
        store.refill_companion(HELD)

    assert store.commands == [f"ALTER TABLE {TABLE} DETACH PART '20260101_1_1_0'"]
