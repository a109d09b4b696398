"""What a commit gives back, as the intake sees it.

The compiled core's own types fit, and so do hand-written doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from receiver.errors import BodyTooLarge, MalformedBody, ReceiverError
from receiver.model import Delivery, SegmentId


class Outcome(Protocol):
    """What became of one delivery. See `receiver/_transcode.pyi`."""

    @property
    def verdict(self) -> str: ...
    @property
    def received(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def sampled_out(self) -> int: ...
    @property
    def rejected(self) -> int: ...
    @property
    def unresolved(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def field(self) -> str: ...
    @property
    def reasons(self) -> Sequence[tuple[str, int]]: ...


class Commit(Protocol):
    """One record, ready to append, and what became of each delivery."""

    @property
    def record(self) -> bytes: ...
    @property
    def rows(self) -> int: ...
    @property
    def outcomes(self) -> Sequence[Outcome]: ...


Transcode = Callable[[Sequence[Delivery], SegmentId], Commit]
"""The core, bound to the policy in force. Runs in a thread with the GIL released."""


def refusal(outcome: Outcome) -> ReceiverError | None:
    """Give the verdict on a refused delivery; none if it was accepted or crashed the core."""
    if outcome.verdict == "malformed":
        return MalformedBody(outcome.message, field=outcome.field or "body")
    if outcome.verdict == "too_large":
        return BodyTooLarge(outcome.message)
    return None
