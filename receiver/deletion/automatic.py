"""Deletions without an operator: a setting says which spans, and is checked now and then.

Never: checks whether the wall clock is right. The caller asks only while it is trusted.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Final

from receiver.deletion.deletions import Deletions
from receiver.engine.store import Store
from receiver.errors import StoreTrouble, Unavailable
from receiver.logs import limited

CHECK_S: Final = 60.0
"""Interval of the checks. Each deletes spans of one day at most."""
_DAY_S: Final = 86_400


@dataclass
class AutomaticDeletion(ABC):
    setting: ClassVar[str]

    store: Store
    deletions: Deletions
    _: KW_ONLY
    monotonic: Callable[[], float] = time.monotonic
    now_s: Callable[[], float] = time.time
    _due_s: float = field(default=0.0, init=False)

    def check(self) -> None:
        """Begin the next deletion if one is due. Most calls return at once."""
        if self.deletions.day or self.monotonic() < self._due_s:
            return
        self._due_s = self.monotonic() + CHECK_S
        try:
            self.delete_next()
        except (StoreTrouble, Unavailable) as error:
            reason = error.label if isinstance(error, StoreTrouble) else str(error)
            limited.warning(self.setting, f"no spans can be deleted for {self.setting}", error=reason)

    @abstractmethod
    def delete_next(self) -> None:
        """Begin the next deletion, if the setting says so. Raises `StoreTrouble`, `Unavailable`."""

    def day_before(self, days: int) -> str:
        """Return the day that was this many days ago, written like the table's partition."""
        return f"{datetime.fromtimestamp(self.now_s() - days * _DAY_S, UTC):%Y%m%d}"
