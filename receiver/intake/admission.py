"""Admission: limits the memory of request bodies in flight, and refuses deliveries while overloaded.

Invariant: bytes are claimed before they are read, and freed when the last holder of the body releases it,
which may be after the delivery was answered. Incomplete bodies of unknown senders, which have shown no
token, share a part of the budget, so that slow bodies or large declared lengths do not keep known senders
out. When that part is full, the oldest such body is dismissed. The largest body is exempt while it makes
progress: otherwise many large bodies would dismiss each other forever.
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
"""Limit of the initial claim for a declared length; more is claimed as the body arrives."""
UNKNOWN_ANNOUNCED_BYTES_MAX = 64 * KIB
"""The same for unknown senders. They must really send bytes to use up their share of the budget."""
PREEMPTION_GRACE_S = 1.0
"""Minimum age at which a body may be dismissed in favour of another body."""
PROGRESS_BYTES_MIN = 64 * KIB
"""Bytes that must arrive of the largest body within `PREEMPTION_GRACE_S` for it to stay exempt."""
UNKNOWN_SHARE = 4
"""Divisor of the budget for the part that unknown senders may hold; always enough for one body."""


def announced_bytes_max(*, is_known: bool) -> int:
    """Return the limit of the initial claim for a declared length."""
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
        """Called when the claim is dismissed. Stops the reader of the body."""

    def grow_to(self, size_bytes: int) -> None:
        """Claim up to this size in total. Raises `MemoryBudgetSpent`."""
        if size_bytes > self.bytes_held:
            self.grow_by(size_bytes - self.bytes_held)

    def grow_by(self, more_bytes: int) -> None:
        """Claim more bytes. Raises `MemoryBudgetSpent`."""
        # Raises before the claim changes, so that `release` frees exactly the bytes that were taken.
        self._admission.take(self, more_bytes, is_known=self._is_known)
        self.bytes_held += more_bytes
        if not self._is_known:
            self._admission.note_progress(self)

    def mark_known(self) -> None:
        """Mark the sender as known: its body is complete, and its signature is valid if one is required."""
        if not self._is_known:
            self._admission.remove_unknown(self)
            self._is_known = True

    def dismiss(self) -> None:
        """Stop reading this body, to free its memory for another body."""
        # First, so that its bytes leave the part of unknown senders before its reader runs.
        self.mark_known()
        self.on_dismissed()

    def share(self) -> None:
        """Add a holder, which must also call `release`."""
        self._holder_count += 1

    def release(self) -> None:
        """Remove a holder. When the last holder is removed, the claimed bytes become free."""
        self._holder_count -= 1
        if self._holder_count:
            return
        # Before `bytes_held` is cleared, because the part of unknown senders shrinks by it.
        self.mark_known()
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
        """Claim memory for a body of this declared size. Raises `Unavailable` if the body cannot be read now.

        Also succeeds while the journal is full: the committer holds deliveries until there is space (see
        `Hold`).
        """
        if self.is_closed:
            raise ShuttingDown("the receiver is stopping; retry in a few seconds")
        self._refuse_if_overloaded()
        # Only unknown senders are dismissed by age; known senders save the call of the clock.
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
            # A claim that grows keeps its place: the order is that of the first bytes.
            self._unknown[claim] = None
            self.unknown_bytes += more_bytes
        self.bytes_in_flight += more_bytes

    def _make_room(self, claim: Claim, more_bytes: int) -> None:
        """Dismiss the oldest incomplete bodies of unknown senders until the claim fits."""
        while self.unknown_bytes + more_bytes > self.budget.unknown_bytes_max:
            oldest = next((other for other in self._unknown if self._may_be_dismissed(other)), claim)
            # Stops at the claim itself, or at a young body: a flood must not dismiss bodies just begun.
            if oldest is claim or self._now() - oldest.started_at_s < PREEMPTION_GRACE_S:
                return
            # The body is not simply refused later: only its removal frees memory for the new claim now.
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
        """Stop counting a claim towards the part of unknown senders."""
        if claim is self._largest:
            self._largest = None
        self._unknown.pop(claim, None)
        self.unknown_bytes -= claim.bytes_held


def _no_room(what: str, held_bytes: int, more_bytes: int, bytes_max: int) -> MemoryBudgetSpent:
    claimed, more, limit = (size_text(size_bytes) for size_bytes in (held_bytes, more_bytes, bytes_max))
    return MemoryBudgetSpent(f"{what} hold {claimed} and {more} more do not fit; the limit is {limit}")
