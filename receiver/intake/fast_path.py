"""Fast path: a complete delivery whose head was accepted before, handled without an asyncio task.

    once per connection   everything that follows from the head: `KnownHead` and `FastPathDrain`
    once per loop turn    everything that deliveries of one turn of the event loop share: `LoopTurn`
    once per delivery     memory → signature → commit → reply

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
from receiver.intake.pending import ReceiptCallback
from receiver.metrics import Count, Metrics
from receiver.model import Delivery, Outcome
from receiver.settings import Drain

SIGNATURE_INLINE_BYTES_MAX = 256 * 1024
"""A larger body is verified in a thread: SHA-1 takes about 1 ms for it."""


class Submit(Protocol):
    """Queues a delivery: raises at once, or calls `on_receipt` once with the outcome or an error."""

    def __call__(
        self,
        delivery: Delivery,
        drain: Drain,
        received_at: float,
        claim: Claim,
        on_receipt: ReceiptCallback,
        /,
    ) -> object:
        """The claim is shared until the body is released."""


@dataclass(frozen=True, slots=True)
class FastPathDrain:
    """A drain that sends a known head, with everything that follows from both."""

    drain: Drain
    body_bytes_max: int
    body_bytes: Count
    accepted: Count
    accepted_reply: Reply
    """The reply to a delivery that was accepted completely and without a warning."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head with which a delivery was accepted before."""

    pattern: HeadBytes
    head: Head
    only_drain: FastPathDrain | None
    """The drain, if the head alone identifies it; `None` if the signature decides."""
    by_drain: dict[str, FastPathDrain]
    inline_bytes_max: int
    """Complete bodies up to this size are handled without a thread."""

    def new_context(self) -> RequestContext:
        """Return the context of another request with this head."""
        return RequestContext(self.head.kind, self.head.route, self.head.admitted[0].drain.name)

    def sender_of(self, raw: bytes) -> FastPathDrain:
        """Return the drain that signed a body. Raises `NotAllowed`."""
        return self.by_drain[credentials.verify(self.head.admitted, self.head.headers, raw).name]


class LoopTurn(NamedTuple):
    """Values shared by all deliveries that arrive in one turn of the event loop."""

    claim: Claim
    received_at: float
    received_at_ns: int


class FastPath:
    """Handler of complete deliveries with a known head."""

    def __init__(
        self,
        admission: Admission,
        submit: Submit,
        metrics: Metrics,
        *,
        now_ns: Callable[[], int],
        refusal: Callable[[RequestContext, ReceiverError], Reply],
    ) -> None:
        self._admission = admission
        self._write_group = submit
        self._metrics = metrics
        self._now_ns = now_ns
        self._refusal_reply = refusal
        self._answer_seconds = metrics.durations("answer_seconds")
        self._loop = asyncio.get_running_loop()
        self._turn: LoopTurn | None = None

    def learn(self, head: Head, pattern: HeadBytes) -> KnownHead:
        """Precompute everything that follows from a head."""
        by_drain = {known.drain.name: self._fast_path_drain(head, known.drain) for known in head.admitted}
        first = head.admitted[0]
        only_drain = None if first.signed else by_drain[first.drain.name]
        return KnownHead(pattern, head, only_drain, by_drain, inline_bytes_max(head))

    def _fast_path_drain(self, head: Head, drain: Drain) -> FastPathDrain:
        accepted_reply = answers.ACCEPTED[head.kind]
        if head.route.header_line:
            accepted_reply = accepted_reply.with_header(head.route.header_line)
        return FastPathDrain(
            drain,
            head.routes.body_bytes_max(drain),
            self._metrics.count("body_bytes", drain=drain.name),
            self._metrics.count("deliveries", drain=drain.name, status=str(accepted_reply.status)),
            accepted_reply,
        )

    def handle(self, known: KnownHead, raw: bytes, reply: Callable[[Reply], None]) -> None:
        """Accept or refuse one complete delivery, like `DeliveryHandler` but without a task."""
        sender = known.only_drain
        try:
            turn = self._turn or self._begin_turn()
            turn.claim.grow_by(len(raw))
            if sender is None:
                sender = known.sender_of(raw)
            head, drain, body_bytes_max = known.head, sender.drain, sender.body_bytes_max
            body.refuse_over(len(raw), body_bytes_max)
            sender.body_bytes.value += len(raw)
            delivery = Delivery(
                drain.name,
                raw,
                head.kind,
                head.encodings,
                turn.received_at_ns,
                drain.strict,
                body_bytes_max,
            )
            on_receipt = partial(self._send_receipt, known, sender, turn.received_at, reply)
            self._write_group(delivery, drain, turn.received_at, turn.claim, on_receipt)
        except ReceiverError as reason:
            reply(self._refused(known, sender, reason))

    def _begin_turn(self) -> LoopTurn:
        """Start a turn. Raises `Unavailable` if no delivery can be admitted now."""
        claim = self._admission.admit(0, is_known=True)
        self._turn = LoopTurn(claim, self._loop.time(), self._now_ns())
        self._loop.call_soon(self._end_turn, claim)
        return self._turn

    def _end_turn(self, claim: Claim) -> None:
        self._turn = None
        claim.release()

    def _send_receipt(
        self,
        known: KnownHead,
        sender: FastPathDrain,
        received_at: float,
        reply: Callable[[Reply], None],
        receipt: Outcome | ReceiverError,
    ) -> None:
        """Send the reply for a receipt."""
        if isinstance(receipt, ReceiverError):
            reply(self._refused(known, sender, receipt))
            return
        self._answer_seconds.observe(self._loop.time() - received_at)
        sender.accepted.value += 1
        reply(sender.accepted_reply if receipt.is_plain else _partly(known.head, receipt))

    def _refused(self, known: KnownHead, sender: FastPathDrain | None, reason: ReceiverError) -> Reply:
        context = known.new_context()
        if sender is not None:
            context.drain_name = sender.drain.name
        return self._refusal_reply(context, reason)


def inline_bytes_max(head: Head) -> int:
    """Return the size up to which bodies are verified on the event loop instead of a thread."""
    is_signed = any(drain.signed for drain in head.admitted)
    bytes_max = head.route.body_bytes_max
    return min(SIGNATURE_INLINE_BYTES_MAX, bytes_max) if is_signed else bytes_max


def _partly(head: Head, outcome: Outcome) -> Reply:
    reply = answers.accepted(head.kind, rejected_span_count=outcome.rejected, message=outcome.message)
    return reply.with_header(head.route.header_line) if head.route.header_line else reply
