"""How long a delivery that comes now would wait, and whether that is in time.

Without this a receiver that is offered more than it can take answers nobody in time: everything waits in line
until its deadline. So whoever would wait for more than half of it is told at once to come again.

Keeps: a delivery that finds nothing before it is taken, whatever was measured; so the measure mends itself.
"""

from __future__ import annotations

from receiver.errors import Overloaded

FIRST_S_PER_BYTE = 50e-9
"""Until something was measured: 20 MB/s."""
NEWEST_SHARE = 0.5
WAIT_SHARE_MAX = 0.5
"""Of the time to the deadline; the rest is for the disk, and for what was misjudged."""


class Pace:
    """What waits to be promised, and how fast that goes."""

    def __init__(self) -> None:
        self.bytes_in_hand = 0
        """Weight of the groups that were taken out of the line and not promised yet."""
        self._s_per_byte = FIRST_S_PER_BYTE

    def took(self, weight_bytes: int, seconds: float) -> None:
        """Learn from a group that was transcoded."""
        if weight_bytes:
            self._s_per_byte += NEWEST_SHARE * (seconds / weight_bytes - self._s_per_byte)

    def require_time(self, bytes_in_line: int, deadline_s: float) -> None:
        """Raise `Overloaded` when a delivery that comes now would be answered too late."""
        wait_s = (bytes_in_line + self.bytes_in_hand) * self._s_per_byte
        if wait_s > deadline_s * WAIT_SHARE_MAX:
            raise Overloaded(f"deliveries before this one take {wait_s:.1f} s; expected to be faster soon")
