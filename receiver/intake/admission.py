"""Whether there is room in memory for one more body, and time to answer it.

Keeps: bytes are claimed before they are read and given back when nobody holds the body any more, which may be
    after the delivery was answered. Bodies that are not whole yet, from senders that showed no token, share a
    part of the budget: what a stranger announces or dribbles cannot keep the others out. Where that part is
    full, the one that has been coming for longest gives way, but for the one that has brought the most and
    goes on: else a crowd of large bodies would drive each other out for ever.
Never: a wait. What does not fit is told to come again in two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from receiver.errors import MemoryBudgetSpent, ShuttingDown
from receiver.settings import KIB, MIB, Drain, Limits
from receiver.sizes import size_text

ANNOUNCED_BYTES_MAX = MIB
"""What is claimed on an announcement alone; the rest of a body claims as it arrives."""
UNKNOWN_ANNOUNCED_BYTES_MAX = 64 * KIB
"""The same for senders not yet known, so that holding their share takes sending as much."""
UNDISTURBED_S = 1.0
"""A body has so long to become whole before it may have to give way."""
GOES_ON_BYTES = 64 * KIB
"""The body that has brought the most goes on as long as it brings so much in that time."""
UNKNOWN_SHARE = 4
"""Senders not yet known may hold one part in so many, and room for one body in any case."""


def announced_bytes_max(*, is_known: bool) -> int:
    """Give what is claimed at most on an announcement alone."""
    return ANNOUNCED_BYTES_MAX if is_known else UNKNOWN_ANNOUNCED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Budget:
    """How many bytes may be in flight."""

    bytes_max: int
    unknown_bytes_max: int
    """Of them, in bodies whose sender is not known yet."""


def budget(limits: Limits, drains: Sequence[Drain]) -> Budget:
    """Divide the bytes that these settings allow."""
    largest = max((drain.body_bytes_max or 0 for drain in drains), default=0)
    one_body = max(limits.body_bytes_max, largest)
    whole = limits.inflight_bytes_max
    return Budget(whole, min(whole, max(whole // UNKNOWN_SHARE, one_body)))


class Claim:
    """The part of the budget that one delivery holds, until everybody who shares it has let go."""

    __slots__ = ("_admission", "_holder_count", "_is_known", "begun_at_s", "bytes_held", "when_dismissed")

    def __init__(self, admission: Admission, *, is_known: bool, begun_at_s: float) -> None:
        self._admission = admission
        self._is_known = is_known
        self._holder_count = 1
        self.begun_at_s = begun_at_s
        self.bytes_held = 0
        self.when_dismissed: Callable[[], None] = _nobody_reads
        """How to tell whoever reads the body to stop."""

    def grow_to(self, size_bytes: int) -> None:
        """Hold at least so much. Raises `MemoryBudgetSpent`."""
        if size_bytes > self.bytes_held:
            self.grow_by(size_bytes - self.bytes_held)

    def grow_by(self, more_bytes: int) -> None:
        """Hold so much more. Raises `MemoryBudgetSpent`."""
        self._admission.take(self, more_bytes, is_known=self._is_known)
        self.bytes_held += more_bytes
        if not self._is_known:
            self._admission.brought(self)

    def know(self) -> None:
        """Know the sender from now on: the body is whole, and signed where that is asked for."""
        if not self._is_known:
            self._admission.no_longer_unknown(self)
            self._is_known = True

    def dismiss(self) -> None:
        """Give way."""
        self.know()
        self.when_dismissed()

    def share(self) -> None:
        """Have one more holder, who lets go of it too."""
        self._holder_count += 1

    def release(self) -> None:
        """Let go; the last holder gives everything back."""
        self._holder_count -= 1
        if self._holder_count:
            return
        self.know()
        self._admission.bytes_in_flight -= self.bytes_held
        self.bytes_held = 0


def _nobody_reads() -> None:
    """Nothing to tell."""


class Admission:
    """The budgets of one intake."""

    def __init__(
        self,
        budget: Budget,
        require_time: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._unknown: dict[Claim, None] = {}
        self._foremost: Claim | None = None
        self._foremost_bytes, self._foremost_at_s = 0, 0.0
        """What it had brought when it was last seen to go on, and when that was."""
        self.budget = budget
        self.bytes_in_flight = 0
        self.unknown_bytes = 0
        self.is_closed = False
        self._require_time = require_time

    def admit(self, declared_bytes: int, *, is_known: bool) -> Claim:
        """Claim memory for a body that announces this size. Raises the reason why it is not read now.

        A full journal is no such reason: the committer holds deliveries until there is room (see `Hold`).
        """
        if self.is_closed:
            raise ShuttingDown("the receiver is stopping; expected to be back in seconds")
        self._require_time()
        claim = Claim(self, is_known=is_known, begun_at_s=0.0 if is_known else self._now())
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
        """Dismiss who has been sending for long and is not done, as far as needed."""
        while self.unknown_bytes + more_bytes > self.budget.unknown_bytes_max:
            oldest = next((one for one in self._unknown if self._may_give_way(one)), claim)
            if oldest is claim or self._now() - oldest.begun_at_s < UNDISTURBED_S:
                return
            oldest.dismiss()

    def brought(self, claim: Claim) -> None:
        """See who of the unknown has brought the most, and whether it goes on."""
        foremost = self._foremost
        if foremost is None or claim.bytes_held > foremost.bytes_held:
            self._foremost, self._foremost_bytes = claim, 0
        if claim is self._foremost and claim.bytes_held >= self._foremost_bytes + GOES_ON_BYTES:
            self._foremost_bytes, self._foremost_at_s = claim.bytes_held, self._now()

    def _may_give_way(self, claim: Claim) -> bool:
        return claim is not self._foremost or self._now() - self._foremost_at_s >= UNDISTURBED_S

    def no_longer_unknown(self, claim: Claim) -> None:
        """Count this one among all others."""
        if claim is self._foremost:
            self._foremost = None
        self._unknown.pop(claim, None)
        self.unknown_bytes -= claim.bytes_held


def _no_room(what: str, held_bytes: int, more_bytes: int, bytes_max: int) -> MemoryBudgetSpent:
    held, more, limit = (size_text(size_bytes) for size_bytes in (held_bytes, more_bytes, bytes_max))
    return MemoryBudgetSpent(f"{what} hold {held} and {more} more do not fit; the limit is {limit}")
