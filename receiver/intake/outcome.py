"""Interface of the transcoder: the signature of its call, and the error for a refused delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from receiver.errors import BodyTooLarge, MalformedBody, ReceiverError
from receiver.model import Commit, Delivery, Outcome, SegmentId

Transcode = Callable[[Sequence[Delivery], SegmentId], Commit]
"""The Rust core, bound to the current policy. Runs on a thread with the GIL released."""


def refusal(outcome: Outcome) -> ReceiverError | None:
    """Return the error for a refused delivery; `None` if it was accepted or crashed the decoder."""
    if outcome.verdict == "malformed":
        return MalformedBody(outcome.message, field=outcome.field or "body")
    if outcome.verdict == "too_large":
        return BodyTooLarge(outcome.message)
    return None
