"""Reception: one request in, one reply out, and in between the order in which a delivery is taken.

Keeps: head → credentials → media → size → room → body → signature → commit. Nothing is told about a later
step to a sender that fails an earlier one, and no body byte is read before there is room for it.
Never: a 500. What we did not foresee is ours to repair, so the sender is told to come again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp.http_writer import HttpVersion10, HttpVersion11
from aiohttp.web_request import BaseRequest

from receiver.errors import MethodNotAllowed, ReceiverError
from receiver.intake import answers, body, credentials, media
from receiver.intake.admission import Admission, Claim
from receiver.intake.answers import Reply
from receiver.intake.outcome import Outcome
from receiver.intake.routes import Route, Routes
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery
from receiver.settings import Drain, Limits

Commit = Callable[[Delivery, Drain, float, Claim], Awaitable[Outcome]]
"""Promise a delivery, received at this time of the event loop, or raise; the claim is shared meanwhile."""
SIGNATURE_INLINE_BYTES_MAX = 256 * 1024
"""A larger body is verified in a thread: SHA-1 takes about 1 ms for it."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpRefused(Exception):  # noqa: N818 - a verdict about HTTP, not about a delivery
    """The request is not HTTP as it is spoken here."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Visit:
    """One request while it is being answered, and what is known of its sender so far."""

    request: BaseRequest
    kind: ContentKind
    """The encoding of the answer."""
    route: Route | None = None
    drain_name: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a delivery says of its body."""

    kind: ContentKind
    encodings: tuple[str, ...]
    declared_bytes: int
    """Content-Length; 0 when chunked."""
    expects_continue: bool


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
        self._limits = limits
        self._admission = admission
        self._commit = commit
        self._metrics = metrics
        self._now_ns = now_ns

    def use(self, routes: Routes, limits: Limits) -> None:
        """Use these for requests to come."""
        self._routes = routes
        self._limits = limits

    async def answer(self, request: BaseRequest) -> Reply:
        """Answer one request, whatever it is."""
        visit = Visit(request, media.answer_kind(request.headers.get("Content-Type")))
        try:
            reply = await self._answer(visit)
        except (ReceiverError, HttpRefused) as reason:
            reply = self._refusal(visit, reason)
        except (body.BodyTooSlow, body.SenderGone) as reason:
            self._metrics.add("refusals", reason=answers.reason_of(reason))
            return answers.HANG_UP
        self._metrics.add("deliveries", drain=visit.drain_name, status=str(reply.status))
        if visit.route is not None and visit.route.header_line:
            return reply.with_header(visit.route.header_line)
        return reply

    async def _answer(self, visit: Visit) -> Reply:
        """Take responsibility for one delivery, or raise and take none."""
        self._require_http(visit.request)
        if visit.request.method == "OPTIONS" and visit.request.raw_path == "*":
            return answers.OPTIONS
        route = self._find(visit)
        if visit.request.method == "OPTIONS":
            return answers.OPTIONS
        admitted = self._authorise(visit, route)
        head = self._read_head(visit.request, route)
        claim = self._admission.admit(head.declared_bytes, is_known=all(one.has_tokens for one in admitted))
        try:
            raw = await self._read_body(visit.request, route, head, claim)
            received_at = asyncio.get_running_loop().time()
            drain = await self._verify(visit, admitted, raw)
            claim.know()
            outcome = await self._commit(self._delivery(drain, head, raw), drain, received_at, claim)
        finally:
            claim.release()
        self._metrics.observe("answer_seconds", asyncio.get_running_loop().time() - received_at)
        return answers.accepted(head.kind, rejected_span_count=outcome.rejected, message=outcome.message)

    def _refusal(self, visit: Visit, reason: ReceiverError | HttpRefused) -> Reply:
        if isinstance(reason, HttpRefused):
            self._metrics.add("refusals", reason=f"http_{reason.status}")
            return answers.http_refusal(reason.status, str(reason), visit.kind)
        name = answers.reason_of(reason)
        self._metrics.add("refusals", reason=name)
        limited.warning(
            f"{name}:{visit.drain_name}", "delivery not taken", drain=visit.drain_name, why=str(reason)
        )
        return answers.verdict(reason, visit.kind)

    def _require_http(self, request: BaseRequest) -> None:
        """Refuse what cannot be understood, or could be understood in two ways."""
        if request.version not in (HttpVersion11, HttpVersion10):
            raise HttpRefused(505, "HTTP version is not spoken here; expected HTTP/1.1")
        coding = request.headers.get("Transfer-Encoding")
        if coding is not None and (coding.lower() != "chunked" or request.version == HttpVersion10):
            raise HttpRefused(400, "transfer encoding is not read here; expected chunked over HTTP/1.1")

    def _find(self, visit: Visit) -> Route:
        """Find the route; a method other than POST is refused where there is one."""
        if visit.request.method == "CONNECT":
            raise MethodNotAllowed("this is no proxy; expected POST")
        visit.route = route = self._routes.find(visit.request.raw_path)
        visit.drain_name = route.drains[0].drain.name
        if visit.request.method not in {"POST", "OPTIONS"}:
            raise MethodNotAllowed("method is not taken here; expected POST")
        return route

    def _authorise(self, visit: Visit, route: Route) -> list[credentials.Credentials]:
        admitted = credentials.authorise(route.drains, self._routes.credentials, visit.request.headers)
        visit.drain_name = admitted[0].drain.name
        return admitted

    def _read_head(self, request: BaseRequest, route: Route) -> Head:
        """Read what the head says of the body, and refuse by that alone what can be."""
        headers = request.headers
        expectation = headers.get("Expect")
        if expectation is not None and expectation.lower() != "100-continue":
            raise HttpRefused(417, "expectation is not met here; expected 100-continue or none")
        head = Head(
            kind=media.content_kind(headers.get("Content-Type")),
            encodings=media.codings(headers.getall("Content-Encoding", ())),
            declared_bytes=int(headers.get("Content-Length", "0")),
            expects_continue=expectation is not None,
        )
        body.refuse_over(head.declared_bytes, route.body_bytes_max)
        return head

    async def _read_body(self, request: BaseRequest, route: Route, head: Head, claim: Claim) -> bytes:
        transport = request.transport
        if head.expects_continue and transport is not None and request.version == HttpVersion11:
            transport.write(CONTINUE)
        limits = self._limits
        floor = body.SpeedFloor(limits.body_grace_s, limits.body_bytes_per_s_min, limits.body_timeout_s)
        try:
            return await body.read(request.content, claim, bytes_max=route.body_bytes_max, floor=floor)
        except body.BadFraming as reason:
            raise HttpRefused(
                400, "the rest of the body is not HTTP; expected the framing announced"
            ) from reason

    async def _verify(self, visit: Visit, admitted: list[credentials.Credentials], raw: bytes) -> Drain:
        """Find the drain the body is from, and hold the body against that drain's own limit."""
        headers = visit.request.headers
        if len(raw) <= SIGNATURE_INLINE_BYTES_MAX or not any(one.signed for one in admitted):
            drain = credentials.verify(admitted, headers, raw)
        else:
            drain = await asyncio.to_thread(credentials.verify, admitted, headers, raw)
        visit.drain_name = drain.name
        body.refuse_over(len(raw), self._routes.body_bytes_max(drain))
        self._metrics.add("body_bytes", len(raw), drain=drain.name)
        return drain

    def _delivery(self, drain: Drain, head: Head, raw: bytes) -> Delivery:
        return Delivery(
            drain=drain.name,
            body=raw,
            content_kind=head.kind,
            encodings=head.encodings,
            received_at_ns=self._now_ns(),
            strict=drain.strict,
            body_bytes_max=self._routes.body_bytes_max(drain),
        )
