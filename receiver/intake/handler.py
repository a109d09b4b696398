"""Delivery handler: the steps from one request to its reply.

Invariant: the order is head → size → memory → body → signature → commit. A sender that fails a step learns
    nothing about later steps, and no byte of a body is read before its memory is claimed.
Never: a 500. An unexpected error is answered 503, so that the sender retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from aiohttp.helpers import RequestKey
from aiohttp.web_request import BaseRequest

from receiver.errors import MethodNotAllowed, ReceiverError, Refused
from receiver.intake import answers, body, credentials, head, media
from receiver.intake.admission import Admission, Claim
from receiver.intake.answers import Reply
from receiver.intake.body import Payload
from receiver.intake.fast_path import FastPath, KnownHead, Submit, inline_bytes_max
from receiver.intake.head import Head, HttpRefused, RequestContext
from receiver.intake.routes import Routes
from receiver.logs import limited
from receiver.metrics import Count, Metrics
from receiver.model import ContentKind, Delivery, Outcome
from receiver.settings import Drain, Limits

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HEAD = RequestKey("head", Head)
"""Key of the parsed head in a request."""
NOT_ACCEPTED = (ReceiverError, HttpRefused, body.BodyTooSlow, body.SenderGone)


class DeliveryCommitter(Protocol):
    """The part of the committer that the handler uses. The claim is shared until the body is released."""

    async def commit(self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim, /) -> Outcome:
        """Return the outcome once the delivery is on disk, or raise."""

    @property
    def submit(self) -> Submit:
        """Commit without waiting: the outcome is passed to a callback."""


class DeliveryHandler:
    """The steps of one request."""

    def __init__(  # noqa: PLR0913 - tests replace each collaborator
        self,
        routes: Routes,
        limits: Limits,
        admission: Admission,
        committer: DeliveryCommitter,
        metrics: Metrics,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._routes = routes
        self._floor = body.speed_floor(limits)
        self._admission = admission
        self._committer = committer
        self._metrics = metrics
        self._answer_seconds = metrics.durations("answer_seconds")
        self._body_bytes: dict[str, Count] = {}
        self._answered: dict[tuple[str, int], Count] = {}
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self.fast_path = FastPath(
            admission, committer.submit, metrics, now_ns=now_ns, refusal=self._count_refusal
        )

    def use(self, routes: Routes, limits: Limits) -> None:
        """Apply new settings to later requests."""
        self._routes = routes
        self._floor = body.speed_floor(limits)

    def is_in_force(self, known: Head) -> bool:
        """Return whether a known head was read under the current settings."""
        return known.routes is self._routes

    async def answer(self, request: BaseRequest) -> Reply:
        """Answer one request that aiohttp has parsed."""
        context = RequestContext(media.answer_kind(request.headers.get("Content-Type")))
        try:
            reply = await self._answer(request, context)
        except NOT_ACCEPTED as reason:
            reply = self._refusal_reply(context, reason)
            _clear_tracebacks(reason)
        return self._count_reply(context, reply)

    async def answer_known(self, known: KnownHead, declared_bytes: int, payload: Payload) -> Reply:
        """Answer a delivery with a known head."""
        context = known.new_context()
        try:
            reply = await self._take(context, known.head, declared_bytes, payload)
        except NOT_ACCEPTED as reason:
            reply = self._refusal_reply(context, reason)
            _clear_tracebacks(reason)
        return self._count_reply(context, reply)

    def _accepted_reply(self, known: Head, received_at: float, outcome: Outcome) -> Reply:
        self._answer_seconds.observe(self._loop.time() - received_at)
        return answers.accepted(known.kind, rejected_span_count=outcome.rejected, message=outcome.message)

    def refuse_method(self, path: str) -> Reply:
        """Answer an unknown method and close the connection without reading a body."""
        context = RequestContext(ContentKind.JSON)
        try:
            context.route = self._routes.find(path)
            raise MethodNotAllowed(head.METHOD_NOT_ALLOWED)
        except ReceiverError as reason:
            reply = self._refusal_reply(context, reason)
        return self._count_reply(context, replace(reply, keep_alive=False))

    async def _answer(self, request: BaseRequest, context: RequestContext) -> Reply:
        head.require_http(request)
        if request.method == "OPTIONS" and request.raw_path == "*":
            return answers.OPTIONS
        route = head.find(request, self._routes, context)
        if request.method == "OPTIONS":
            return answers.OPTIONS
        if request.method in head.PROBE_METHODS:
            context.is_endpoint_test = True
            return answers.PROBE
        request[HEAD] = known = head.read(request, self._routes, route, context)
        declared_bytes = int(request.headers.get("Content-Length", "0"))
        continue_transport = request.transport if known.expects_continue else None
        return await self._take(context, known, declared_bytes, request.content, continue_transport)

    async def _take(
        self,
        context: RequestContext,
        known: Head,
        declared_bytes: int,
        payload: Payload,
        continue_transport: asyncio.WriteTransport | None = None,
    ) -> Reply:
        """Take responsibility for one delivery, or raise and take none.

        `continue_transport`: where the sender waits for `100 Continue`; `None` if it does not.
        """
        body.refuse_over(declared_bytes, known.route.body_bytes_max)
        claim = self._admission.admit(declared_bytes, is_known=known.shows_token)
        try:
            if continue_transport is not None:
                continue_transport.write(CONTINUE)
            raw = await self._read_body(payload, known, claim)
            received_at = self._loop.time()
            drain = await self._verify(context, known, raw)
            claim.know()
            if known.is_endpoint_test:
                context.is_endpoint_test = True
                return answers.ACCEPTED[known.kind]
            outcome = await self._committer.commit(
                self._delivery(drain, known, raw), drain, received_at, claim
            )
        finally:
            claim.release()
        return self._accepted_reply(known, received_at, outcome)

    def _count_refusal(self, context: RequestContext, reason: ReceiverError) -> Reply:
        return self._count_reply(context, self._refusal_reply(context, reason))

    def _count_reply(self, context: RequestContext, reply: Reply) -> Reply:
        """Count the reply, and add the header that is configured for its path."""
        if reply is answers.HANG_UP:
            self._metrics.add("deliveries", drain=context.drain_name, status="closed")
            return reply
        if context.is_endpoint_test:
            self._metrics.add("endpoint_tests", drain=context.drain_name)
        else:
            self._count_delivery(context.drain_name, reply.status)
        if context.route is not None and context.route.header_line:
            return reply.with_header(context.route.header_line)
        return reply

    def _count_delivery(self, drain_name: str, status: int) -> None:
        count = self._answered.get((drain_name, status))
        if count is None:
            count = self._metrics.count("deliveries", drain=drain_name, status=str(status))
            self._answered[drain_name, status] = count
        count.value += 1

    def _refusal_reply(self, context: RequestContext, reason: Exception) -> Reply:
        """Count and log a request that is not accepted, and return the reply."""
        if isinstance(reason, HttpRefused):
            name = f"http_{reason.status}"
            reply = answers.http_refusal(reason.status, str(reason), context.kind)
        elif isinstance(reason, ReceiverError):
            name, reply = answers.reason_of(reason), answers.verdict(reason, context.kind)
        else:
            name, reply = answers.reason_of(reason), answers.HANG_UP
        self._metrics.add("refusals", reason=name)
        if reply is not answers.HANG_UP:
            _log_refusal(name, context, reply.status, reason)
        return reply

    async def _read_body(self, payload: Payload, known: Head, claim: Claim) -> bytes:
        try:
            return await body.read(payload, claim, bytes_max=known.route.body_bytes_max, floor=self._floor)
        except body.BadFraming as reason:
            raise HttpRefused(
                400, "the rest of the body is not valid HTTP; expected the announced framing"
            ) from reason

    async def _verify(self, context: RequestContext, known: Head, raw: bytes) -> Drain:
        """Return the drain that the body is from, after a check of that drain's size limit."""
        admitted, headers = known.admitted, known.headers
        if len(raw) <= inline_bytes_max(known):
            drain = credentials.verify(admitted, headers, raw)
        else:
            drain = await asyncio.to_thread(credentials.verify, admitted, headers, raw)
        self._apply_drain_limit(context, known, drain, raw)
        return drain

    def _apply_drain_limit(self, context: RequestContext, known: Head, drain: Drain, raw: bytes) -> None:
        """Check the body against its drain's own limit, and count its bytes."""
        context.drain_name = drain.name
        body.refuse_over(len(raw), known.routes.body_bytes_max(drain))
        count = self._body_bytes.get(drain.name)
        if count is None:
            count = self._body_bytes[drain.name] = self._metrics.count("body_bytes", drain=drain.name)
        count.value += len(raw)

    def _delivery(self, drain: Drain, known: Head, raw: bytes) -> Delivery:
        return Delivery(
            drain=drain.name,
            body=raw,
            content_kind=known.kind,
            encodings=known.encodings,
            received_at_ns=self._now_ns(),
            strict=drain.strict,
            body_bytes_max=known.routes.body_bytes_max(drain),
        )


def _log_refusal(name: str, context: RequestContext, status: int, reason: Exception) -> None:
    """Log why a request is refused, with details that the sender must not see."""
    fields = {"drain": context.drain_name} if context.drain_name else {}
    fields["error"] = str(reason)
    if isinstance(reason, Refused):
        fields.update(reason.log_fields)
    limited.warning(f"{name}:{context.drain_name}", "request refused", status=status, **fields)


def _clear_tracebacks(reason: BaseException) -> None:
    """Free the frames that an exception and its causes refer to.

    A body refers to the exception that ended it, and the exception's traceback to the body: a reference cycle
    that would keep up to a whole body until the next garbage collection.
    """
    error: BaseException | None = reason
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
