"""Reception: one request in, one reply out, and in between the order in which a delivery is taken.

Keeps: head → size → room → body → signature → commit. Nothing is told about a later step to a sender that
    fails an earlier one, and no body byte is read before there is room for it.
Never: a 500. What we did not foresee is ours to repair, so the sender is told to come again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aiohttp.web import RequestKey
from aiohttp.web_request import BaseRequest

from receiver.errors import MethodNotAllowed, ReceiverError
from receiver.intake import answers, body, credentials, head, media
from receiver.intake.admission import Admission, Claim
from receiver.intake.answers import Reply
from receiver.intake.body import Payload
from receiver.intake.head import Head, HttpRefused, Visit
from receiver.intake.outcome import Outcome
from receiver.intake.routes import Routes
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery
from receiver.settings import Drain, Limits

Commit = Callable[[Delivery, Drain, float, Claim], Awaitable[Outcome]]
"""Promise a delivery, received at this time of the event loop, or raise; the claim is shared meanwhile."""
SIGNATURE_INLINE_BYTES_MAX = 256 * 1024
"""A larger body is verified in a thread: SHA-1 takes about 1 ms for it."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HEAD = RequestKey("head", Head)
"""Where a request keeps its head once that was read."""
NOT_TAKEN = (ReceiverError, HttpRefused, body.BodyTooSlow, body.SenderGone)


class Reception:
    """The stages of one request."""

    def __init__(  # noqa: PLR0913 - each is a neighbour that a test replaces
        self,
        routes: Routes,
        limits: Limits,
        admission: Admission,
        commit: Commit,
        metrics: Metrics,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._routes = routes
        self._floor = body.speed_floor(limits)
        self._admission = admission
        self._commit = commit
        self._metrics = metrics
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()

    def use(self, routes: Routes, limits: Limits) -> None:
        """Use these for requests to come."""
        self._routes = routes
        self._floor = body.speed_floor(limits)

    def is_in_force(self, known: Head) -> bool:
        """Tell whether a head would be read the same way now."""
        return known.routes is self._routes

    async def answer(self, request: BaseRequest) -> Reply:
        """Answer one request, whatever it is."""
        visit = Visit(media.answer_kind(request.headers.get("Content-Type")))
        try:
            reply = await self._answer(request, visit)
        except NOT_TAKEN as reason:
            reply = self._refusal(visit, reason)
        return self._counted(visit, reply)

    async def answer_known(self, known: Head, declared_bytes: int, payload: Payload) -> Reply:
        """Answer one more delivery with a head that was taken before."""
        visit = Visit(known.kind, known.route, known.admitted[0].drain.name)
        try:
            reply = await self._take(visit, known, declared_bytes, payload)
        except NOT_TAKEN as reason:
            reply = self._refusal(visit, reason)
        return self._counted(visit, reply)

    def refuse_method(self, path: str) -> Reply:
        """Answer a method nobody has heard of; what came with it is not read."""
        visit = Visit(ContentKind.JSON)
        try:
            visit.route = self._routes.find(path)
            raise MethodNotAllowed(head.METHODS)
        except ReceiverError as reason:
            reply = self._refusal(visit, reason)
        return self._counted(visit, replace(reply, keep_alive=False))

    async def _answer(self, request: BaseRequest, visit: Visit) -> Reply:
        head.require_http(request)
        if request.method == "OPTIONS" and request.raw_path == "*":
            return answers.OPTIONS
        route = head.find(request, self._routes, visit)
        if request.method == "OPTIONS":
            return answers.OPTIONS
        request[HEAD] = known = head.read(request, self._routes, route, visit)
        declared_bytes = int(request.headers.get("Content-Length", "0"))
        invitation = request.transport if known.expects_continue else None
        return await self._take(visit, known, declared_bytes, request.content, invitation)

    async def _take(
        self,
        visit: Visit,
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
            outcome = await self._commit(self._delivery(drain, known, raw), drain, received_at, claim)
        finally:
            claim.release()
        self._metrics.observe("answer_seconds", self._loop.time() - received_at)
        return answers.accepted(known.kind, rejected_span_count=outcome.rejected, message=outcome.message)

    def _counted(self, visit: Visit, reply: Reply) -> Reply:
        """Count the reply, and add what every reply at its path carries."""
        if reply is answers.HANG_UP:
            self._metrics.add("deliveries", drain=visit.drain_name, status="closed")
            return reply
        self._metrics.add("deliveries", drain=visit.drain_name, status=str(reply.status))
        if visit.route is not None and visit.route.header_line:
            return reply.with_header(visit.route.header_line)
        return reply

    def _refusal(self, visit: Visit, reason: Exception) -> Reply:
        """Give the reply to what is not taken."""
        if isinstance(reason, HttpRefused):
            self._metrics.add("refusals", reason=f"http_{reason.status}")
            return answers.http_refusal(reason.status, str(reason), visit.kind)
        name = answers.reason_of(reason)
        self._metrics.add("refusals", reason=name)
        if not isinstance(reason, ReceiverError):
            return answers.HANG_UP
        limited.warning(
            f"{name}:{visit.drain_name}", "delivery not taken", drain=visit.drain_name, why=str(reason)
        )
        return answers.verdict(reason, visit.kind)

    async def _read_body(self, payload: Payload, known: Head, claim: Claim) -> bytes:
        try:
            return await body.read(payload, claim, bytes_max=known.route.body_bytes_max, floor=self._floor)
        except body.BadFraming as reason:
            raise HttpRefused(
                400, "the rest of the body is not HTTP; expected the framing announced"
            ) from reason

    async def _verify(self, visit: Visit, known: Head, raw: bytes) -> Drain:
        """Find the drain the body is from, and hold the body against that drain's own limit."""
        admitted, headers = known.admitted, known.headers
        if len(raw) <= SIGNATURE_INLINE_BYTES_MAX or not any(one.signed for one in admitted):
            drain = credentials.verify(admitted, headers, raw)
        else:
            drain = await asyncio.to_thread(credentials.verify, admitted, headers, raw)
        visit.drain_name = drain.name
        body.refuse_over(len(raw), known.routes.body_bytes_max(drain))
        self._metrics.add("body_bytes", len(raw), drain=drain.name)
        return drain

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
