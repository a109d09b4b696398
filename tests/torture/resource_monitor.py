"""Resource monitor: peak memory, descriptors, threads and journal size, compared with limits."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from receiver.supervisor.sockets import RESERVED
from tests.e2e.receiver_process import ReceiverProcess
from tests.torture.receiver_state import JOURNAL_BYTES_MAX, Usage, journal_files, processes, usage

INTERVAL_S = 0.5
MIB = 1 << 20
CAPS = {
    "supervisor": Usage(rss_bytes=90 * MIB, descriptors=32 + RESERVED, threads=6),
    "intake": Usage(rss_bytes=75 * MIB, descriptors=45, threads=6),
    "store": Usage(rss_bytes=720 * MIB, descriptors=2_300, threads=190),
}
"""1.5 times the peaks of a run of 30 minutes. The engine opens files of every part that a count reads."""
JOURNAL_BYTES_CAP = JOURNAL_BYTES_MAX + 3 * (JOURNAL_BYTES_MAX // 4)
"""Intakes measure the journal once a second; between measurements each may add its share."""


@dataclass
class Peaks:
    """The highest value of every measure."""

    usage: dict[str, Usage] = field(default_factory=lambda: defaultdict(lambda: Usage(0, 0, 0)))
    journal_bytes: int = 0
    samples: int = 0

    def update(self, role: str, now: Usage) -> None:
        old = self.usage[role]
        self.usage[role] = Usage(
            max(old.rss_bytes, now.rss_bytes),
            max(old.descriptors, now.descriptors),
            max(old.threads, now.threads),
        )

    def exceeded_caps(self) -> Iterator[str]:
        """Yield every exceeded limit."""
        for role, highest in self.usage.items():
            for part in fields(Usage):
                peak, cap = getattr(highest, part.name), getattr(CAPS[role], part.name)
                if peak > cap:
                    yield f"{role}: {part.name} rose to {peak}; the limit is {cap}"
        if self.journal_bytes > JOURNAL_BYTES_CAP:
            yield f"the journal rose to {self.journal_bytes} bytes; the limit is {JOURNAL_BYTES_CAP}"


class ResourceMonitor(threading.Thread):
    """Sampling thread; ends when `ending` is set."""

    def __init__(self, running: ReceiverProcess) -> None:
        super().__init__(name="resource-monitor", daemon=True)
        self.highest = Peaks()
        self.ending = threading.Event()
        self._running = running

    def run(self) -> None:
        while not self.ending.wait(INTERVAL_S):
            for pid, role in processes(self._running).items():
                now = usage(pid)
                if now is not None:
                    self.highest.update(role, now)
            self.highest.journal_bytes = max(
                self.highest.journal_bytes, sum(journal_files(self._running.data).values())
            )
            self.highest.samples += 1
