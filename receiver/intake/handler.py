"""Reception: one request in, one reply out, and in between the order in which a delivery is taken.

Keeps: head → size → room → body → signature → commit. Nothing is told about a later step to a sender that
    fails an earlier one, and no body byte is read before there is room for it.
Never: a 500. What we did not foresee is ours to repair, so the sender is told to come again.
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
from receiver.intake.fast_path import FastPath, KnownHead, Promise, at_once_bytes_max
from receiver.intake.head import Head, HttpRefused, RequestContext
from receiver.intake.routes import Routes
from receiver.logs import limited
from receiver.metrics import Count, Metrics
from receiver.model import ContentKind, Delivery, Outcome
from receiver.settings import Drain, Limits

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HEAD = RequestKey("head", Head)
"""Where a request keeps its head once that was read."""
NOT_TAKEN = (ReceiverError, HttpRefused, body.BodyTooSlow, body.SenderGone)


class Promises(Protocol):
    """Who promises a delivery, received at this time of the event loop; the claim is shared meanwhile."""

    async def commit(self, delivery: Delivery, drain: Drain, received_at: float, claim: Claim, /) -> Outcome:
        """Promise it, or raise."""

    @property
    def promise(self) -> Promise:
        """The same, for who does not wait."""


class DeliveryHandler:
    """The stages of one request."""

    def __init__(  # noqa: PLR0913 - each is a neighbour that a test replaces
        self,
        routes: Routes,
        limits: Limits,
        admission: Admission,
        promises: Promises,
        metrics: Metrics,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._routes = routes
        self._floor = body.speed_floor(limits)
        self._admission = admission
        self._promises = promises
        self._metrics = metrics
        self._answer_seconds = metrics.durations("answer_seconds")
        self._body_bytes: dict[str, Count] = {}
        self._answered: dict[tuple[str, int], Count] = {}
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self.regulars = FastPath(
            admission, promises.promise, metrics, now_ns=now_ns, refusal=self._counted_refusal
        )

    def use(self, routes: Routes, limits: Limits) -> None:
        """Use these for requests to come."""
        self._routes = routes
        self._floor = body.speed_floor(limits)

    def is_in_force(self, known: Head) -> bool:
        """Tell whether a head would be read the same way now."""
        return known.routes is self._routes

    async def answer(self, request: BaseRequest) -> Reply:
        """Answer one request, whatever it is."""
        visit = RequestContext(media.answer_kind(request.headers.get("Content-Type")))
        try:
            reply = await self._answer(request, visit)
        except NOT_TAKEN as reason:
            reply = self._refusal(visit, reason)
            _forget_places(reason)
        return self._counted(visit, reply)

    async def answer_known(self, known: KnownHead, declared_bytes: int, payload: Payload) -> Reply:
        """Answer one more delivery with a head that was taken before."""
        visit = known.visit()
        try:
            reply = await self._take(visit, known.head, declared_bytes, payload)
        except NOT_TAKEN as reason:
            reply = self._refusal(visit, reason)
            _forget_places(reason)
        return self._counted(visit, reply)

    def _acceptance(self, known: Head, received_at: float, outcome: Outcome) -> Reply:
        self._answer_seconds.observe(self._loop.time() - received_at)
        return answers.accepted(known.kind, rejected_span_count=outcome.rejected, message=outcome.message)

    def refuse_method(self, path: str) -> Reply:
        """Answer a method nobody has heard of; what came with it is not read."""
        visit = RequestContext(ContentKind.JSON)
        try:
            visit.route = self._routes.find(path)
            raise MethodNotAllowed(head.METHODS)
        except ReceiverError as reason:
            reply = self._refusal(visit, reason)
        return self._counted(visit, replace(reply, keep_alive=False))

    async def _answer(self, request: BaseRequest, visit: RequestContext) -> Reply:
        head.require_http(request)
        if request.method == "OPTIONS" and request.raw_path == "*":
            return answers.OPTIONS
        route = head.find(request, self._routes, visit)
        if request.method == "OPTIONS":
            return answers.OPTIONS
        if request.method in head.PROBE_METHODS:
            visit.is_endpoint_test = True
            return answers.PROBE
        request[HEAD] = known = head.read(request, self._routes, route, visit)
        declared_bytes = int(request.headers.get("Content-Length", "0"))
        invitation = request.transport if known.expects_continue else None
        return await self._take(visit, known, declared_bytes, request.content, invitation)

    async def _take(
        self,
        visit: RequestContext,
        known: Head,
        declared_bytes: int,
        payload: Payload,
        invitation: asyncio.WriteTransport | None = None,
    ) -> Reply:
        """Take responsibility for one delivery, or raise and take none; `invitation`: who waits for one."""
        body.refuse_over(declared_bytes, known.route.body_bytes_max)
        claim = self._admission.admit(declared_bytes, is_known=known.shows_token)
        try:
            if invitation is not None:
                invitation.write(CONTINUE)
            raw = await self._read_body(payload, known, claim)
            received_at = self._loop.time()
            drain = await self._verify(visit, known, raw)
            claim.know()
            if known.is_endpoint_test:
                visit.is_endpoint_test = True
                return answers.ACCEPTED[known.kind]
            outcome = await self._promises.commit(
                self._delivery(drain, known, raw), drain, received_at, claim
            )
        finally:
            claim.release()
        return self._acceptance(known, received_at, outcome)

    def _counted_refusal(self, visit: RequestContext, reason: ReceiverError) -> Reply:
        return self._counted(visit, self._refusal(visit, reason))

    def _counted(self, visit: RequestContext, reply: Reply) -> Reply:
        """Count the reply, and add the header that every reply at its path carries."""
        if reply is answers.HANG_UP:
            self._metrics.add("deliveries", drain=visit.drain_name, status="closed")
            return reply
        if visit.is_endpoint_test:
            self._metrics.add("endpoint_tests", drain=visit.drain_name)
        else:
            self._count_delivery(visit.drain_name, reply.status)
        if visit.route is not None and visit.route.header_line:
            return reply.with_header(visit.route.header_line)
        return reply

    def _count_delivery(self, drain_name: str, status: int) -> None:
        count = self._answered.get((drain_name, status))
        if count is None:
            count = self._metrics.count("deliveries", drain=drain_name, status=str(status))
            self._answered[drain_name, status] = count
        count.value += 1

    def _refusal(self, visit: RequestContext, reason: Exception) -> Reply:
        """Count and log a request that is not accepted, and return the reply."""
        if isinstance(reason, HttpRefused):
            name = f"http_{reason.status}"
            reply = answers.http_refusal(reason.status, str(reason), visit.kind)
        elif isinstance(reason, ReceiverError):
            name, reply = answers.reason_of(reason), answers.verdict(reason, visit.kind)
        else:
            name, reply = answers.reason_of(reason), answers.HANG_UP
        self._metrics.add("refusals", reason=name)
        if reply is not answers.HANG_UP:
            _log_refusal(name, visit, reply.status, reason)
        return reply

    async def _read_body(self, payload: Payload, known: Head, claim: Claim) -> bytes:
        try:
            return await body.read(payload, claim, bytes_max=known.route.body_bytes_max, floor=self._floor)
        except body.BadFraming as reason:
            raise HttpRefused(
                400, "the rest of the body is not HTTP; expected the framing announced"
            ) from reason

    async def _verify(self, visit: RequestContext, known: Head, raw: bytes) -> Drain:
        """Find the drain the body is from, and hold the body against that drain's own limit."""
        admitted, headers = known.admitted, known.headers
        if len(raw) <= at_once_bytes_max(known):
            drain = credentials.verify(admitted, headers, raw)
        else:
            drain = await asyncio.to_thread(credentials.verify, admitted, headers, raw)
        self._own(visit, known, drain, raw)
        return drain

    def _own(self, visit: RequestContext, known: Head, drain: Drain, raw: bytes) -> None:
        """Hold the body against the limit of the drain it is from, and count it there."""
        visit.drain_name = drain.name
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


def _log_refusal(name: str, visit: RequestContext, status: int, reason: Exception) -> None:
    """Log why a request is refused; our own log may know more than its sender."""
    fields = {"drain": visit.drain_name} if visit.drain_name else {}
    fields["error"] = str(reason)
    if isinstance(reason, Refused):
        fields.update(reason.log_fields)
    limited.warning(f"{name}:{visit.drain_name}", "request refused", status=status, **fields)


def _forget_places(reason: BaseException) -> None:
    """Let go of what the calls held that an exception came through.

    A body keeps the exception that ended it, and that, by its traceback, the body: a circle of up to a whole
    body, which would stay until garbage is collected.
    """
    found: BaseException | None = reason
    while found is not None:
        found.__traceback__ = None
        found = found.__cause__ or found.__context__
