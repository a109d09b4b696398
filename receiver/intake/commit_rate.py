"""Commit rate: estimates how long a new delivery would wait, refuses it if too long, and limits group size.

Without this estimate an overloaded receiver answers nothing in time: every delivery waits in the queue until
its deadline. So a delivery that would wait for more than half of its deadline is refused at once. A group is
limited to what is done in `GROUP_TARGET_S`, because no delivery of a group is answered before all are done.

Invariant: a delivery that finds the queue empty is accepted, whatever was measured, so that a wrong estimate
    is corrected by the next measurement.
"""

from __future__ import annotations

from receiver.errors import Overloaded
from receiver.settings import MIB

FIRST_S_PER_BYTE = 10e-9
"""Initial estimate: 100 MB/s, a quarter of what one current core does."""
FIRST_BYTES = MIB
"""Weight of the initial estimate in the average."""
FASTEST_S_PER_BYTE = 1e-12
DECAY = 0.5
"""Factor applied to the past measurements when a group is added."""
GROUP_COST_S = 0.001
"""Fixed cost of a group, whatever its weight. Without it, hours of small groups would inflate the cost per
byte: a large delivery would seem to take seconds, and those behind it would be refused needlessly."""
WAIT_SHARE_MAX = 0.5
"""Share of the deadline that a delivery may wait; the rest is for the disk and for estimation errors."""
GROUP_TARGET_S = 0.1
"""Expected duration of a group. Two deliveries of the same size may differ a hundredfold in cost: senders of
a group of many expensive ones would give up before it is done."""


class CommitRate:
    """Moving average of the seconds per byte that groups take."""

    def __init__(self) -> None:
        self.bytes_in_progress = 0
        """Weight of the groups that have left the queue and are not acknowledged yet."""
        self._bytes = float(FIRST_BYTES)
        self._seconds = FIRST_BYTES * FIRST_S_PER_BYTE

    def observe(self, weight_bytes: int, seconds: float) -> None:
        """Add a transcoded group to the average, weighted by its bytes: a slow small group counts little."""
        if weight_bytes:
            by_weight_s = weight_bytes * min(self._s_per_byte, FIRST_S_PER_BYTE)
            self._bytes = DECAY * self._bytes + weight_bytes
            self._seconds = DECAY * self._seconds + max(seconds - GROUP_COST_S, min(seconds, by_weight_s))

    @property
    def _s_per_byte(self) -> float:
        return max(self._seconds / self._bytes, FASTEST_S_PER_BYTE)

    @property
    def group_bytes_max(self) -> int:
        """Weight of a group that is expected to take `GROUP_TARGET_S`."""
        return int(GROUP_TARGET_S / self._s_per_byte)

    def refuse_if_overloaded(self, queued_bytes: int, deadline_s: float) -> None:
        """Raise `Overloaded` if a delivery that arrives now would be answered too late."""
        wait_s = (queued_bytes + self.bytes_in_progress) * self._s_per_byte
        if wait_s > deadline_s * WAIT_SHARE_MAX:
            raise Overloaded(f"overloaded: the deliveries before this one take {wait_s:.1f} s; retry later")
