"""Delivery handler: one delivery, from its request head to its reply.

    parsed by aiohttp ─▶ read head ─▶ answer_arriving ─▶ admit ─▶ read body ─┐
    known head, partial body ───────▶ answer_arriving ─▶ admit ─▶ read body ─┤
    known head, complete body ──────▶ answer_complete ─▶ admit ──────────────┴─▶ take ─▶ receipt ─▶ reply

Invariant: the order is head → size → memory → body → signature → commit. A sender that fails a step learns
    nothing about later steps, and no byte of a body is read before its memory is claimed.
Never: a 500. An unexpected error is answered 503, so that the sender retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from aiohttp.helpers import RequestKey
from aiohttp.web_request import BaseRequest

from receiver.errors import MethodNotAllowed, ReceiverError, Refused
from receiver.http.peer import network_of
from receiver.intake import answers, credentials, head, media
from receiver.intake.admission import Admission, Claim
from receiver.intake.answers import Reply
from receiver.intake.connections import body
from receiver.intake.connections.body import Payload
from receiver.intake.head import Head, HttpRefused, RequestContext
from receiver.intake.pending import PendingDelivery, ReceiptCallback
from receiver.intake.routes import KeepWebhook, Routes, Sender
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery, Outcome
from receiver.refusals import refused
from receiver.settings import Drain, Limits

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HEAD = RequestKey("head", Head)
"""Key of the parsed head in a request."""
NOT_ACCEPTED = (ReceiverError, HttpRefused, body.BodyTooSlow, body.SenderGone)
ReplyCallback = Callable[[Reply], None]
"""Called once with the reply to a delivery."""
Submit = Callable[[Delivery, Drain, float, Claim, ReceiptCallback], PendingDelivery]
"""`Committer.submit`."""


class Arrival(NamedTuple):
    """Claim on a complete body, and its arrival time. Deliveries of one event loop iteration may share it."""

    claim: Claim
    received_at: float
    """Time of the event loop."""
    received_at_ns: int


class DeliveryHandler:
    """The steps of one delivery."""

    def __init__(  # noqa: PLR0913 - tests replace each collaborator
        self,
        routes: Routes,
        limits: Limits,
        admission: Admission,
        submit: Submit,
        metrics: Metrics,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.routes = routes
        """The routes in force. A head that was checked with older routes must be checked again."""
        self._floor = body.speed_floor(limits)
        self._admission = admission
        self._submit = submit
        self._metrics = metrics
        self._answer_seconds = metrics.durations("answer_seconds")
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self._arrival_of_turn: Arrival | None = None
        """Shared by all complete deliveries that arrive in one iteration of the event loop."""

    def use(self, routes: Routes, limits: Limits) -> None:
        """Apply new settings to later requests."""
        self.routes = routes
        self._floor = body.speed_floor(limits)

    def with_sender(self, request_head: Head) -> Head:
        """Return a head with its sender, or without it if only a signature identifies the sender."""
        first = request_head.admitted[0]
        return (
            request_head
            if first.signed
            else replace(request_head, only_sender=self._sender(request_head, first.drain))
        )

    async def answer(self, request: BaseRequest) -> Reply:
        """Answer one request that aiohttp has parsed."""
        # Decided first, so that every later error is encoded as the sender expects.
        context = RequestContext(
            media.answer_kind(request.headers.get("Content-Type")),
            peer=network_of(request.remote),
            path=request.raw_path,
        )
        try:
            request_head = self._read_head(request, context)
        except (ReceiverError, HttpRefused) as error:
            return self._refuse(context, error)
        if isinstance(request_head, Reply):
            return self._count_reply(context, request_head)
        # `FastPathProtocol` remembers it after the answer. It takes deliveries only.
        if not context.is_webhook:
            request[HEAD] = request_head
        # 0 for a chunked body: its memory is claimed as it arrives. The parser has checked the number.
        declared_bytes = int(request.headers.get("Content-Length", "0"))
        continue_transport = request.transport if request_head.expects_continue else None
        return await self.answer_arriving(request_head, declared_bytes, request.content, continue_transport)

    def _read_head(self, request: BaseRequest, context: RequestContext) -> Head | Reply:
        """Return the head of a delivery, or the reply to a request without a body."""
        head.require_http(request)
        if request.method == "OPTIONS" and request.raw_path == "*":
            return answers.OPTIONS
        route = head.find_route(request, self.routes, context)
        if request.method == "OPTIONS":
            return answers.OPTIONS
        if request.method in head.PROBE_METHODS:
            context.is_endpoint_test = True
            return answers.PROBE
        return head.read(request, self.routes, route, context)

    async def answer_arriving(
        self,
        request_head: Head,
        declared_bytes: int,
        payload: Payload,
        continue_transport: asyncio.WriteTransport | None = None,
    ) -> Reply:
        """Read the body of one delivery, take the delivery and wait for its reply.

        `continue_transport`: transport of a sender that waits for `100 Continue`, otherwise `None`.
        """
        try:
            # Before the claim: a body that is refused anyway must not dismiss others.
            body.refuse_over(declared_bytes, request_head.route.body_bytes_max)
            claim = self._admission.admit(declared_bytes, is_known=request_head.shows_token)
            try:
                # After the claim, so that a sender without memory for its body does not send it.
                if continue_transport is not None:
                    continue_transport.write(CONTINUE)
                bytes_max = request_head.route.body_bytes_max
                raw = await body.read(payload, claim, bytes_max=bytes_max, floor=self._floor)
                # The answer deadline starts after the last byte: a slow upload does not use it up.
                arrival = Arrival(claim, self._loop.time(), self._now_ns())
                if request_head.route.keep_webhook is not None:
                    return await self._keep_webhook(request_head, raw, request_head.route.keep_webhook)
                # The HMAC of a large body on the event loop would delay all other connections.
                is_large = len(raw) > request_head.inline_bytes_max
                sender = await self._verify_in_thread(request_head, raw) if is_large else None
                return await self._take_and_wait(request_head, raw, arrival, sender)
            finally:
                # The committer is another holder, which keeps the claim until the body is written.
                claim.release()
        except NOT_ACCEPTED as error:
            reply = self._refuse_delivery(request_head, None, error)
            _clear_tracebacks(error)
            return reply

    async def _keep_webhook(self, request_head: Head, raw: bytes, keep_webhook: KeepWebhook) -> Reply:
        """Verify a webhook, and acknowledge it after it is on disk."""
        await asyncio.to_thread(credentials.verify, request_head.admitted, request_head.headers, raw)
        await keep_webhook(raw)
        context = RequestContext(request_head.kind, request_head.route)
        return self._count_reply(context, answers.ACCEPTED[request_head.kind])

    async def _take_and_wait(
        self, request_head: Head, raw: bytes, arrival: Arrival, sender: Sender | None
    ) -> Reply:
        reply_future: asyncio.Future[Reply] = self._loop.create_future()
        taken = self.take(request_head, raw, arrival, partial(_set_reply, reply_future), sender)
        # The body is complete, so it no longer counts towards the part of unknown senders.
        arrival.claim.mark_known()
        if isinstance(taken, Reply):
            return taken
        try:
            return await reply_future
        finally:
            # If the connection was lost, the delivery is still stored, but its receipt has no recipient.
            taken.abandon()

    def answer_complete(self, request_head: Head, raw: bytes, reply: ReplyCallback) -> None:
        """Answer a delivery with a known head and a complete body, without an asyncio task."""
        try:
            arrival = self.arrival(len(raw))
        except ReceiverError as error:
            reply(self._refuse_delivery(request_head, request_head.only_sender, error))
            return
        taken = self.take(request_head, raw, arrival, reply)
        if isinstance(taken, Reply):
            reply(taken)

    def arrival(self, body_bytes: int) -> Arrival:
        """Return the arrival of complete bodies of this size. Raises `Unavailable` if it is not admitted."""
        arrival = self._arrival_of_turn or self._begin_loop_turn()
        # The iteration's claim starts at 0 bytes; each of its bodies adds its own.
        arrival.claim.grow_by(body_bytes)
        return arrival

    def _begin_loop_turn(self) -> Arrival:
        """Start an iteration. Raises `Unavailable` if no delivery can be admitted now."""
        claim = self._admission.admit(0, is_known=True)
        self._arrival_of_turn = Arrival(claim, self._loop.time(), self._now_ns())
        # Runs in the next iteration, after all complete deliveries of this one have been handled.
        self._loop.call_soon(self._end_loop_turn, claim)
        return self._arrival_of_turn

    def _end_loop_turn(self, claim: Claim) -> None:
        self._arrival_of_turn = None
        claim.release()

    def take(
        self,
        request_head: Head,
        raw: bytes,
        arrival: Arrival,
        reply: ReplyCallback,
        sender: Sender | None = None,
    ) -> PendingDelivery | Reply:
        """Take responsibility for one delivery, or return the reply that refuses it.

        `reply` is called later with the reply to an accepted delivery. `sender`: set if already verified.
        """
        sender = sender or request_head.only_sender
        try:
            if sender is None:
                sender = self._sender(
                    request_head, credentials.verify(request_head.admitted, request_head.headers, raw)
                )
            drain, body_bytes_max = sender.drain, sender.body_bytes_max
            # The limit checked before is the largest at this path; only now is the drain known.
            if len(raw) > body_bytes_max:
                return self._refuse_delivery(request_head, sender, body.too_large(body_bytes_max))
            sender.body_bytes.value += len(raw)
            # After the signature, so that a platform's signed test detects a wrong secret.
            if request_head.is_endpoint_test:
                self._metrics.add("endpoint_tests", drain=drain.name)
                return sender.accepted_reply
            delivery = Delivery(
                drain.name,
                raw,
                request_head.kind,
                request_head.encodings,
                arrival.received_at_ns,
                drain.strict,
                body_bytes_max,
            )
            on_receipt = partial(self.send_receipt, request_head, sender, arrival.received_at, reply)
            return self._submit(delivery, drain, arrival.received_at, arrival.claim, on_receipt)
        except ReceiverError as error:
            return self._refuse_delivery(request_head, sender, error)

    def send_receipt(
        self,
        request_head: Head,
        sender: Sender,
        received_at: float,
        reply: ReplyCallback,
        receipt: Outcome | ReceiverError,
    ) -> None:
        """Convert the receipt of a delivery to its reply, and send the reply."""
        if isinstance(receipt, ReceiverError):
            reply(self._refuse_delivery(request_head, sender, receipt))
            return
        self.count_accepted(sender, received_at, 1)
        reply(sender.accepted_reply if receipt.is_plain else _partly(request_head, receipt))

    def count_accepted(self, sender: Sender, received_at: float, count: int) -> None:
        """Count deliveries that are answered 200."""
        self._answer_seconds.observe(self._loop.time() - received_at, count)
        sender.accepted.value += count

    async def _verify_in_thread(self, request_head: Head, raw: bytes) -> Sender:
        """Verify a body that is too large to be verified on the event loop. Raises `NotAllowed`."""
        drain = await asyncio.to_thread(credentials.verify, request_head.admitted, request_head.headers, raw)
        return self._sender(request_head, drain)

    def _sender(self, request_head: Head, drain: Drain) -> Sender:
        """Return the sender for one of the drains of a head, from the cache of its route."""
        sender = request_head.senders.get(drain.name)
        if sender is None:
            sender = request_head.senders[drain.name] = Sender(
                drain,
                request_head.routes.body_bytes_max(drain),
                self._metrics.count("body_bytes", drain=drain.name),
                self._metrics.count("deliveries", drain=drain.name, status="200"),
                answers.ACCEPTED[request_head.kind].with_header(request_head.route.header_line),
            )
        return sender

    def refuse_method(self, path: str, peer: str) -> Reply:
        """Answer an unknown method and close the connection without reading a body."""
        context = RequestContext(ContentKind.JSON, peer=peer, path=path)
        try:
            context.route = self.routes.find(path)
            error: ReceiverError = MethodNotAllowed(head.METHOD_NOT_ALLOWED)
        except ReceiverError as no_such_path:
            error = no_such_path
        return replace(self._refuse(context, error), keep_alive=False)

    def _refuse_delivery(self, request_head: Head, sender: Sender | None, error: Exception) -> Reply:
        """Refuse a delivery. If the sender is not known yet, it is counted for the first admitted drain."""
        drain = sender.drain if sender is not None else request_head.admitted[0].drain
        where = RequestContext(
            request_head.kind, request_head.route, drain.name, peer=request_head.peer, path=request_head.path
        )
        return self._refuse(where, error)

    def _refuse(self, context: RequestContext, error: Exception) -> Reply:
        """Count and log a request that is not accepted, and return the reply."""
        if isinstance(error, HttpRefused):
            name = f"http_{error.status}"
            reply = answers.http_refusal(error.status, str(error), context.kind)
        elif isinstance(error, ReceiverError):
            name, reply = answers.reason_of(type(error).__name__), answers.verdict(error, context.kind)
        else:
            name, reply = answers.reason_of(type(error).__name__), answers.HANG_UP
        self._metrics.add("refusals", reason=name)
        _note_refusal(name, context, reply.status, error)
        if reply is not answers.HANG_UP:
            _log_refusal(name, context, reply.status, error)
        return self._count_reply(context, reply)

    def _count_reply(self, context: RequestContext, reply: Reply) -> Reply:
        """Count the reply, and add the header that is configured for its path."""
        # In `deliveries`, tests would lower the failure rate by which platforms disable a drain.
        status = "closed" if reply is answers.HANG_UP else str(reply.status)
        if context.is_endpoint_test:
            self._metrics.add("endpoint_tests", drain=context.drain_name)
        # Webhooks are not part of the failure budget of a drain.
        elif context.is_webhook:
            self._metrics.add("webhooks", status=status)
        else:
            self._metrics.add("deliveries", drain=context.drain_name, status=status)
        return reply if context.route is None else reply.with_header(context.route.header_line)


def _set_reply(reply_future: asyncio.Future[Reply], reply: Reply) -> None:
    # The future is cancelled if the connection was lost meanwhile.
    if not reply_future.done():
        reply_future.set_result(reply)


def _partly(request_head: Head, outcome: Outcome) -> Reply:
    reply = answers.accepted(request_head.kind, rejected_span_count=outcome.rejected, message=outcome.message)
    return reply.with_header(request_head.route.header_line)


def _note_refusal(name: str, context: RequestContext, status: int, error: Exception) -> None:
    """Note a refusal for the pages, with the cause that the log names."""
    detail = error.log_fields.get("error", "") if isinstance(error, Refused) else ""
    refused.note(
        name,
        status=status,
        drain=context.drain_name,
        peer=context.peer,
        path=context.path,
        error=detail or str(error),
    )


def _log_refusal(name: str, context: RequestContext, status: int, error: Exception) -> None:
    """Log why a request is refused, with details that the sender must not see."""
    fields = {"drain": context.drain_name} if context.drain_name else {}
    fields["error"] = str(error)
    if isinstance(error, Refused):
        fields.update(error.log_fields)
    event = "webhook refused" if context.is_webhook else "request refused"
    limited.warning(f"{name}:{context.drain_name}", event, status=status, **fields)


def _clear_tracebacks(error: BaseException) -> None:
    """Free the frames that an exception and its causes refer to.

    A body refers to the exception that ended it, and the exception's traceback refers to the body. This
    reference cycle would keep up to a whole body in memory until the next garbage collection.
    """
    linked: BaseException | None = error
    while linked is not None:
        linked.__traceback__ = None
        linked = linked.__cause__ or linked.__context__
