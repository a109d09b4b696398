"""Commit rate: estimates the wait of a new delivery, refuses it if that is too long, and limits group size.

Without this estimate an overloaded receiver would answer no delivery in time, because each would wait in the
queue until its deadline. Therefore a delivery that would wait for more than half of its deadline is refused
at once. A group is limited to the work of `GROUP_TARGET_S`, because none of its deliveries is answered before
all are done.

Invariant: while the queue is empty, a delivery is accepted whatever the estimate is, so that the next
measurement corrects a wrong estimate.
"""

from __future__ import annotations

from receiver.errors import Overloaded
from receiver.settings import MIB

FIRST_S_PER_BYTE = 10e-9
"""Initial estimate: 100 MB/s, a quarter of the speed of a current core."""
FIRST_BYTES = MIB
"""Weight of the initial estimate in the average."""
FASTEST_S_PER_BYTE = 1e-12
"""Lower limit of the estimate, so that dividing by it stays finite."""
DECAY = 0.5
"""Factor applied to the past measurements when a group is added."""
GROUP_COST_S = 0.001
"""Fixed cost of a group, whatever its weight. Without it, hours of small groups would inflate the cost per
byte: a large delivery would seem to take seconds, and those behind it would be refused needlessly."""
WAIT_SHARE_MAX = 0.5
"""Share of the deadline that a delivery may wait; the rest is for the disk and for estimation errors."""
GROUP_TARGET_S = 0.1
"""Expected duration of a group. Deliveries of the same size may differ a hundredfold in cost, so a larger
group of expensive deliveries could take longer than its senders wait."""


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
            # Subtracting the fixed cost must not make a fast small group look free.
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
        # 0 if nothing waits, whatever the estimate is.
        wait_s = (queued_bytes + self.bytes_in_progress) * self._s_per_byte
        if wait_s > deadline_s * WAIT_SHARE_MAX:
            raise Overloaded(f"overloaded: waiting deliveries need {wait_s:.1f} s to be written; retry later")
