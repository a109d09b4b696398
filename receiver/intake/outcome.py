"""What a commit is to the intake: how it is called, and which verdict a refused delivery gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from receiver.errors import BodyTooLarge, MalformedBody, ReceiverError
from receiver.model import Commit, Delivery, Outcome, SegmentId

Transcode = Callable[[Sequence[Delivery], SegmentId], Commit]
"""The core, bound to the policy in force. Runs in a thread with the GIL released."""


def refusal(outcome: Outcome) -> ReceiverError | None:
    """Give the verdict on a refused delivery; none if it was accepted or crashed the core."""
    if outcome.verdict == "malformed":
        return MalformedBody(outcome.message, field=outcome.field or "body")
    if outcome.verdict == "too_large":
        return BodyTooLarge(outcome.message)
    return None
