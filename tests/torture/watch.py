"""The watch: what every process takes and how much the journal holds, at its highest, against stated caps."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from receiver.supervisor.descriptors import RESERVED
from tests.e2e.running import Running
from tests.torture.site import JOURNAL_BYTES_MAX, Usage, journal_files, processes, usage

EVERY_S = 0.5
MIB = 1 << 20
CAPS = {
    "supervisor": Usage(rss_bytes=90 * MIB, descriptors=32 + RESERVED, threads=6),
    "intake": Usage(rss_bytes=75 * MIB, descriptors=45, threads=6),
    "store": Usage(rss_bytes=720 * MIB, descriptors=2_300, threads=190),
}
"""One and a half times what 30 minutes showed. The engine opens files of every part that a count reads."""
JOURNAL_BYTES_CAP = JOURNAL_BYTES_MAX + 3 * (JOURNAL_BYTES_MAX // 4)
"""Intakes look once a second; in between each may add what it alone accepts."""


@dataclass
class Highest:
    """The highest of everything."""

    usage: dict[str, Usage] = field(default_factory=lambda: defaultdict(lambda: Usage(0, 0, 0)))
    journal_bytes: int = 0
    samples: int = 0

    def take(self, role: str, now: Usage) -> None:
        old = self.usage[role]
        self.usage[role] = Usage(
            max(old.rss_bytes, now.rss_bytes),
            max(old.descriptors, now.descriptors),
            max(old.threads, now.threads),
        )

    def beyond_caps(self) -> Iterator[str]:
        """Every cap that was passed."""
        for role, highest in self.usage.items():
            for part in fields(Usage):
                found, cap = getattr(highest, part.name), getattr(CAPS[role], part.name)
                if found > cap:
                    yield f"{role}: {part.name} rose to {found}; the cap is {cap}"
        if self.journal_bytes > JOURNAL_BYTES_CAP:
            yield f"the journal rose to {self.journal_bytes} bytes; the cap is {JOURNAL_BYTES_CAP}"


class Watch(threading.Thread):
    """Samples until told to end."""

    def __init__(self, running: Running) -> None:
        super().__init__(name="watch", daemon=True)
        self.highest = Highest()
        self.ending = threading.Event()
        self._running = running

    def run(self) -> None:
        while not self.ending.wait(EVERY_S):
            for pid, role in processes(self._running).items():
                now = usage(pid)
                if now is not None:
                    self.highest.take(role, now)
            self.highest.journal_bytes = max(
                self.highest.journal_bytes, sum(journal_files(self._running.data).values())
            )
            self.highest.samples += 1
