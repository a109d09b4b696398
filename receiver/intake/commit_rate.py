"""How long a delivery that comes now would wait, whether that is in time, and how much is done in one go.

Without this a receiver that is offered more than it can take answers nobody in time: everything waits in line
until its deadline. So whoever would wait for more than half of it is told at once to come again; and a group
is no more than what is done in a moment, as nobody in it is answered before all of it is done.

Keeps: a delivery that finds nothing before it is taken, whatever was measured; so the measure mends itself.
"""

from __future__ import annotations

from receiver.errors import Overloaded
from receiver.settings import MIB

FIRST_S_PER_BYTE = 10e-9
"""Until something was measured: 100 MB/s, a quarter of what a core of today does."""
FIRST_BYTES = MIB
"""What that counts, beside what is measured."""
FASTEST_S_PER_BYTE = 1e-12
KEPT_SHARE = 0.5
"""Of what was measured, when the next group is done."""
GROUP_COST_S = 0.001
"""What a group may cost whatever it weighs. Hours of small groups would else say of a large delivery that it
keeps all others for seconds, and they would be refused while it is done in a moment."""
WAIT_SHARE_MAX = 0.5
"""Of the time to the deadline; the rest is for the disk, and for what was misjudged."""
GROUP_S = 0.1
"""What a group is expected to take. Of two deliveries of one size one may take a hundred times as long as the
other: a group of many such would keep its senders until nobody waits for the answer any more."""


class CommitRate:
    """What waits to be promised, and how fast that goes."""

    def __init__(self) -> None:
        self.bytes_in_hand = 0
        """Weight of the groups that were taken out of the line and not promised yet."""
        self._bytes = float(FIRST_BYTES)
        self._seconds = FIRST_BYTES * FIRST_S_PER_BYTE

    def took(self, weight_bytes: int, seconds: float) -> None:
        """Learn from a group that was transcoded, by its weight: a few bytes that had to wait say little."""
        if weight_bytes:
            by_weight_s = weight_bytes * min(self._s_per_byte, FIRST_S_PER_BYTE)
            self._bytes = KEPT_SHARE * self._bytes + weight_bytes
            self._seconds = KEPT_SHARE * self._seconds + max(
                seconds - GROUP_COST_S, min(seconds, by_weight_s)
            )

    @property
    def _s_per_byte(self) -> float:
        return max(self._seconds / self._bytes, FASTEST_S_PER_BYTE)

    @property
    def bytes_in_a_moment(self) -> int:
        """Weight of a group that is done in `GROUP_S`."""
        return int(GROUP_S / self._s_per_byte)

    def require_time(self, bytes_in_line: int, deadline_s: float) -> None:
        """Raise `Overloaded` when a delivery that comes now would be answered too late."""
        wait_s = (bytes_in_line + self.bytes_in_hand) * self._s_per_byte
        if wait_s > deadline_s * WAIT_SHARE_MAX:
            raise Overloaded(f"deliveries before this one take {wait_s:.1f} s; expected to be faster soon")
