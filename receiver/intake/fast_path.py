"""Whole deliveries with a head that was taken before: answered by calls alone, no task waits for them.

    once a connection   what follows from the head: `KnownHead`, and from head and drain: `FastPathDrain`
    once a turn         what is the same for all that come in one turn of the event loop: `LoopTurn`
    once a delivery     room → signature → commit, and the reply

Invariant: the same steps, counts and answers, in the same order, as `DeliveryHandler.answer_known`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from receiver.errors import ReceiverError
from receiver.intake import answers, body, credentials
from receiver.intake.admission import Admission, Claim
from receiver.intake.answers import Reply
from receiver.intake.head import Head, RequestContext
from receiver.intake.known_heads import HeadBytes
from receiver.intake.waiting import Give
from receiver.metrics import Count, Metrics
from receiver.model import Delivery, Outcome
from receiver.settings import Drain

SIGNATURE_INLINE_BYTES_MAX = 256 * 1024
"""A larger body is verified in a thread: SHA-1 takes about 1 ms for it."""


class Promise(Protocol):
    """Have a delivery promised: the outcome or the verdict is given once, later. Or raise now."""

    def __call__(
        self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim, give: Give, /
    ) -> object:
        """The claim is shared meanwhile."""


@dataclass(frozen=True, slots=True)
class FastPathDrain:
    """A drain that sends with a known head, and all that follows from both."""

    drain: Drain
    body_bytes_max: int
    body_bytes: Count
    accepted: Count
    acceptance: Reply
    """When all of a delivery was taken, and there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head that was taken before."""

    pattern: HeadBytes
    head: Head
    sole: FastPathDrain | None
    """Whom it is from, if the head alone tells."""
    by_drain: dict[str, FastPathDrain]
    at_once_bytes_max: int
    """A whole body of up to so many bytes needs no thread before it is promised."""

    def visit(self) -> RequestContext:
        """Begin one more request with this head."""
        return RequestContext(self.head.kind, self.head.route, self.head.admitted[0].drain.name)

    def sender_of(self, raw: bytes) -> FastPathDrain:
        """Find the drain that a body is from. Raises `NotAllowed`."""
        return self.by_drain[credentials.verify(self.head.admitted, self.head.headers, raw).name]


class LoopTurn(NamedTuple):
    """What is the same for all deliveries that come in one turn of the event loop."""

    claim: Claim
    received_at: float
    received_at_ns: int


class FastPath:
    """Takes whole deliveries."""

    def __init__(
        self,
        admission: Admission,
        promise: Promise,
        metrics: Metrics,
        *,
        now_ns: Callable[[], int],
        refusal: Callable[[RequestContext, ReceiverError], Reply],
    ) -> None:
        self._admission = admission
        self._promise = promise
        self._metrics = metrics
        self._now_ns = now_ns
        self._refusal = refusal
        self._answer_seconds = metrics.durations("answer_seconds")
        self._loop = asyncio.get_running_loop()
        self._turn: LoopTurn | None = None

    def know(self, head: Head, pattern: HeadBytes) -> KnownHead:
        """Work out what follows from a head."""
        by_drain = {one.drain.name: self._regular(head, one.drain) for one in head.admitted}
        first = head.admitted[0]
        sole = None if first.signed else by_drain[first.drain.name]
        return KnownHead(pattern, head, sole, by_drain, at_once_bytes_max(head))

    def _regular(self, head: Head, drain: Drain) -> FastPathDrain:
        acceptance = answers.ACCEPTED[head.kind]
        if head.route.header_line:
            acceptance = acceptance.with_header(head.route.header_line)
        return FastPathDrain(
            drain,
            head.routes.body_bytes_max(drain),
            self._metrics.count("body_bytes", drain=drain.name),
            self._metrics.count("deliveries", drain=drain.name, status=str(acceptance.status)),
            acceptance,
        )

    def take(self, known: KnownHead, raw: bytes, reply: Callable[[Reply], None]) -> None:
        """Accept or refuse one complete delivery, like `DeliveryHandler` but without a task."""
        regular = known.sole
        try:
            turn = self._turn or self._begin_turn()
            turn.claim.grow_by(len(raw))
            if regular is None:
                regular = known.sender_of(raw)
            head, drain, body_bytes_max = known.head, regular.drain, regular.body_bytes_max
            body.refuse_over(len(raw), body_bytes_max)
            regular.body_bytes.value += len(raw)
            delivery = Delivery(
                drain.name,
                raw,
                head.kind,
                head.encodings,
                turn.received_at_ns,
                drain.strict,
                body_bytes_max,
            )
            give = partial(self._give, known, regular, turn.received_at, reply)
            self._promise(delivery, drain, turn.received_at, turn.claim, give)
        except ReceiverError as reason:
            reply(self._refused(known, regular, reason))

    def _begin_turn(self) -> LoopTurn:
        """Raise, if nothing is taken now."""
        claim = self._admission.admit(0, is_known=True)
        self._turn = LoopTurn(claim, self._loop.time(), self._now_ns())
        self._loop.call_soon(self._end_turn, claim)
        return self._turn

    def _end_turn(self, claim: Claim) -> None:
        self._turn = None
        claim.release()

    def _give(
        self,
        known: KnownHead,
        regular: FastPathDrain,
        received_at: float,
        reply: Callable[[Reply], None],
        receipt: Outcome | ReceiverError,
    ) -> None:
        """Reply to what was promised, or could not be."""
        if isinstance(receipt, ReceiverError):
            reply(self._refused(known, regular, receipt))
            return
        self._answer_seconds.observe(self._loop.time() - received_at)
        regular.accepted.value += 1
        reply(regular.acceptance if receipt.is_plain else _partly(known.head, receipt))

    def _refused(self, known: KnownHead, regular: FastPathDrain | None, reason: ReceiverError) -> Reply:
        visit = known.visit()
        if regular is not None:
            visit.drain_name = regular.drain.name
        return self._refusal(visit, reason)


def at_once_bytes_max(head: Head) -> int:
    """Give the size up to which a body with this head is verified at once; a larger one is in a thread."""
    is_signed = any(one.signed for one in head.admitted)
    bytes_max = head.route.body_bytes_max
    return min(SIGNATURE_INLINE_BYTES_MAX, bytes_max) if is_signed else bytes_max


def _partly(head: Head, outcome: Outcome) -> Reply:
    reply = answers.accepted(head.kind, rejected_span_count=outcome.rejected, message=outcome.message)
    return reply.with_header(head.route.header_line) if head.route.header_line else reply
