"""Admission: limits the memory of request bodies in flight, and refuses deliveries while overloaded.

Invariant: bytes are claimed before they are read, and freed when the last holder of the body releases it,
    which may be after the delivery was answered. Incomplete bodies of unknown senders, which have shown no
    token, share a part of the budget, so that slow or oversized announcements do not keep known senders out.
    When that part is full, the oldest such body is dismissed. The largest body is exempt while it makes
    progress: otherwise many large bodies would dismiss each other for ever.
Never: waits. A body that does not fit is answered 503 at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from receiver.errors import MemoryBudgetSpent, ShuttingDown
from receiver.settings import KIB, MIB, Drain, Limits
from receiver.sizes import size_text

ANNOUNCED_BYTES_MAX = MIB
"""Limit of the claim made for an announced length; more is claimed as the body arrives."""
UNKNOWN_ANNOUNCED_BYTES_MAX = 64 * KIB
"""The same for unknown senders, so that they must send bytes to use up their share of the budget."""
PREEMPTION_GRACE_S = 1.0
"""Time that a body has before it may be dismissed for another."""
PROGRESS_BYTES_MIN = 64 * KIB
"""Bytes that the largest body must bring within `PREEMPTION_GRACE_S` to stay exempt."""
UNKNOWN_SHARE = 4
"""Unknown senders may hold one part in this many of the budget, but at least one body."""


def announced_bytes_max(*, is_known: bool) -> int:
    """Return the limit of the claim made for an announced length."""
    return ANNOUNCED_BYTES_MAX if is_known else UNKNOWN_ANNOUNCED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on the bytes in flight."""

    bytes_max: int
    unknown_bytes_max: int
    """Part of the budget for bodies whose sender is unknown."""


def budget(limits: Limits, drains: Sequence[Drain]) -> Budget:
    """Return the budget that these settings allow."""
    largest = max((drain.body_bytes_max or 0 for drain in drains), default=0)
    one_body = max(limits.body_bytes_max, largest)
    whole = limits.inflight_bytes_max
    return Budget(whole, min(whole, max(whole // UNKNOWN_SHARE, one_body)))


class Claim:
    """The part of the budget that one delivery holds until its last holder releases it."""

    __slots__ = ("_admission", "_holder_count", "_is_known", "bytes_held", "on_dismissed", "started_at_s")

    def __init__(self, admission: Admission, *, is_known: bool, started_at_s: float) -> None:
        self._admission = admission
        self._is_known = is_known
        self._holder_count = 1
        self.started_at_s = started_at_s
        self.bytes_held = 0
        self.on_dismissed: Callable[[], None] = _do_nothing
        """Called when the claim is dismissed; ends the reading of the body."""

    def grow_to(self, size_bytes: int) -> None:
        """Claim up to this size in total. Raises `MemoryBudgetSpent`."""
        if size_bytes > self.bytes_held:
            self.grow_by(size_bytes - self.bytes_held)

    def grow_by(self, more_bytes: int) -> None:
        """Claim more bytes. Raises `MemoryBudgetSpent`."""
        self._admission.take(self, more_bytes, is_known=self._is_known)
        self.bytes_held += more_bytes
        if not self._is_known:
            self._admission.note_progress(self)

    def know(self) -> None:
        """Mark the sender as known: its body is complete, and its signature valid where required."""
        if not self._is_known:
            self._admission.remove_unknown(self)
            self._is_known = True

    def dismiss(self) -> None:
        """End the reading of this body to free its memory for another."""
        self.know()
        self.on_dismissed()

    def share(self) -> None:
        """Add a holder, which must also call `release`."""
        self._holder_count += 1

    def release(self) -> None:
        """Remove a holder; the last one frees the claimed bytes."""
        self._holder_count -= 1
        if self._holder_count:
            return
        self.know()
        self._admission.bytes_in_flight -= self.bytes_held
        self.bytes_held = 0


def _do_nothing() -> None:
    """Do nothing: the body is not being read."""


class Admission:
    """The memory budget of one intake."""

    def __init__(
        self,
        budget: Budget,
        refuse_if_overloaded: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._unknown: dict[Claim, None] = {}
        self._largest: Claim | None = None
        self._largest_bytes, self._largest_progress_at_s = 0, 0.0
        """Size and time at the last progress of the largest body."""
        self.budget = budget
        self.bytes_in_flight = 0
        self.unknown_bytes = 0
        self.is_closed = False
        self._refuse_if_overloaded = refuse_if_overloaded

    def admit(self, declared_bytes: int, *, is_known: bool) -> Claim:
        """Claim memory for a body of this announced size. Raises `Unavailable` if it cannot be read now.

        A full journal does not prevent it: the committer holds deliveries until there is room (see `Hold`).
        """
        if self.is_closed:
            raise ShuttingDown("the receiver is stopping; retry in a few seconds")
        self._refuse_if_overloaded()
        claim = Claim(self, is_known=is_known, started_at_s=0.0 if is_known else self._now())
        claim.grow_to(min(declared_bytes, announced_bytes_max(is_known=is_known)))
        return claim

    def take(self, claim: Claim, more_bytes: int, *, is_known: bool) -> None:
        """Count bytes as in flight. Raises `MemoryBudgetSpent`."""
        if self.bytes_in_flight + more_bytes > self.budget.bytes_max:
            raise _no_room("bodies in flight", self.bytes_in_flight, more_bytes, self.budget.bytes_max)
        if not is_known:
            self._make_room(claim, more_bytes)
            unknown_bytes, bytes_max = self.unknown_bytes, self.budget.unknown_bytes_max
            if unknown_bytes + more_bytes > bytes_max:
                raise _no_room("bodies of unknown senders", unknown_bytes, more_bytes, bytes_max)
            self._unknown[claim] = None
            self.unknown_bytes += more_bytes
        self.bytes_in_flight += more_bytes

    def _make_room(self, claim: Claim, more_bytes: int) -> None:
        """Dismiss the oldest incomplete bodies of unknown senders until the claim fits."""
        while self.unknown_bytes + more_bytes > self.budget.unknown_bytes_max:
            oldest = next((other for other in self._unknown if self._may_be_dismissed(other)), claim)
            if oldest is claim or self._now() - oldest.started_at_s < PREEMPTION_GRACE_S:
                return
            oldest.dismiss()

    def note_progress(self, claim: Claim) -> None:
        """Track the largest body of an unknown sender and its progress."""
        largest = self._largest
        if largest is None or claim.bytes_held > largest.bytes_held:
            self._largest, self._largest_bytes = claim, 0
        if claim is self._largest and claim.bytes_held >= self._largest_bytes + PROGRESS_BYTES_MIN:
            self._largest_bytes, self._largest_progress_at_s = claim.bytes_held, self._now()

    def _may_be_dismissed(self, claim: Claim) -> bool:
        return claim is not self._largest or self._now() - self._largest_progress_at_s >= PREEMPTION_GRACE_S

    def remove_unknown(self, claim: Claim) -> None:
        """Stop counting a claim against the part of unknown senders."""
        if claim is self._largest:
            self._largest = None
        self._unknown.pop(claim, None)
        self.unknown_bytes -= claim.bytes_held


def _no_room(what: str, held_bytes: int, more_bytes: int, bytes_max: int) -> MemoryBudgetSpent:
    held, more, limit = (size_text(size_bytes) for size_bytes in (held_bytes, more_bytes, bytes_max))
    return MemoryBudgetSpent(f"{what} hold {held} and {more} more do not fit; the limit is {limit}")
