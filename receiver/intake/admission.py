"""Whether there is room: bytes of bodies in flight, connections, the journal.

Keeps: bytes are claimed before they are read and given back when nobody holds the body any more, which may be
    after the delivery was answered.
Never: a wait. What does not fit is told to come again in two seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from receiver.errors import JournalFull, MemoryBudgetSpent, ShuttingDown


class Claim:
    """The part of the budget that one delivery holds, until everybody who shares it has let go."""

    __slots__ = ("_admission", "_holder_count", "bytes_held")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._holder_count = 1
        self.bytes_held = 0

    def grow_to(self, size_bytes: int) -> None:
        """Hold at least so much. Raises `MemoryBudgetSpent`."""
        more_bytes = size_bytes - self.bytes_held
        if more_bytes > 0:
            self._admission.take(more_bytes)
            self.bytes_held = size_bytes

    def share(self) -> None:
        """Have one more holder, who lets go of it too."""
        self._holder_count += 1

    def release(self) -> None:
        """Let go; the last holder gives everything back."""
        self._holder_count -= 1
        if self._holder_count:
            return
        self._admission.bytes_in_flight -= self.bytes_held
        self.bytes_held = 0


class Admission:
    """The budgets of one intake."""

    def __init__(self, bytes_max: int, full_reason: Callable[[], str | None]) -> None:
        self.bytes_max = bytes_max
        self.bytes_in_flight = 0
        self.is_closed = False
        self._full_reason = full_reason

    def admit(self, declared_bytes: int) -> Claim:
        """Claim room for a body of this size, if there is a place for what it carries."""
        if self.is_closed:
            raise ShuttingDown("the receiver is stopping; expected to be back in seconds")
        reason = self._full_reason()
        if reason is not None:
            raise JournalFull(reason)
        claim = Claim(self)
        claim.grow_to(declared_bytes)
        return claim

    def take(self, more_bytes: int) -> None:
        """Count bytes as in flight. Raises `MemoryBudgetSpent`."""
        if self.bytes_in_flight + more_bytes > self.bytes_max:
            raise MemoryBudgetSpent(
                f"bodies in flight hold {self.bytes_in_flight} bytes of {self.bytes_max}; "
                f"{more_bytes} more do not fit"
            )
        self.bytes_in_flight += more_bytes
