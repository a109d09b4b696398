"""Request head: the checks that are made before the body is read.

Invariant: the order is HTTP version and transfer coding → path → method → credentials → media type. A sender
    that fails a check learns nothing about later checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp.http_writer import HttpVersion10, HttpVersion11
from aiohttp.web_request import BaseRequest

from receiver.errors import MethodNotAllowed
from receiver.intake import credentials, media
from receiver.intake.credentials import Credentials
from receiver.intake.routes import Route, Routes, Sender
from receiver.model import ContentKind
from receiver.settings import KIB

METHOD_NOT_ALLOWED = "method is not allowed; expected POST"
PROBE_METHODS = frozenset({"GET", "HEAD"})
SIGNATURE_INLINE_BYTES_MAX = 256 * KIB
"""Size above which a body is verified in a thread, because its SHA-1 takes about 1 ms."""


class HttpRefused(Exception):  # noqa: N818 - not an error of a delivery
    """The request uses HTTP in a way that this receiver does not support."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class RequestContext:
    """State of a request that is being answered, with its route and drain once they are known."""

    kind: ContentKind
    """The encoding of the answer."""
    route: Route | None = None
    drain_name: str = ""
    is_endpoint_test: bool = False
    """Whether the request is an endpoint test, answered 200, and not a delivery."""
    peer: str = ""
    path: str = ""

    @property
    def is_webhook(self) -> bool:
        """Whether the request came to the path of webhooks, and is not a delivery."""
        return self.route is not None and self.route.keep_webhook is not None


@dataclass(frozen=True, slots=True)
class Head:
    """Everything that the head of a delivery determines, except the length of its body."""

    routes: Routes
    """The routes that were in force when the head was read."""
    route: Route
    admitted: Sequence[Credentials]
    """Drains that the delivery may come from. If there are several, its signature decides."""
    shows_token: bool
    """Whether a valid token identifies the sender before the body is read."""
    kind: ContentKind
    encodings: tuple[str, ...]
    expects_continue: bool
    headers: Mapping[str, str]
    inline_bytes_max: int
    """Size above which a body is verified in a thread, and not handled on the fast path."""
    is_endpoint_test: bool = False
    """Whether this is an empty POST, with which platforms test an endpoint. Exporters never send it."""
    only_sender: Sender | None = None
    """Sender, if the head alone identifies it and a delivery with this head was accepted before."""

    peer: str = ""
    path: str = ""
    senders: dict[str, Sender] = field(default_factory=dict)
    """Cache of the senders of this route and content kind, by name of the drain."""


def require_http(request: BaseRequest) -> None:
    """Refuse HTTP versions and transfer codings that are unsupported or ambiguous."""
    if request.version not in (HttpVersion11, HttpVersion10):
        raise HttpRefused(505, "HTTP version is not supported; expected HTTP/1.1")
    coding = request.headers.get("Transfer-Encoding")
    # Servers disagree on several codings, and on any coding in HTTP/1.0, which allows smuggling.
    if coding is not None and (coding.lower() != "chunked" or request.version == HttpVersion10):
        raise HttpRefused(400, "transfer encoding is not supported; expected chunked over HTTP/1.1")


def find_route(request: BaseRequest, routes: Routes, context: RequestContext) -> Route:
    """Return the route. Refuses methods other than POST, unless the request is an endpoint test."""
    # First, because the target of CONNECT is not a path.
    if request.method == "CONNECT":
        raise MethodNotAllowed("this receiver is not a proxy; expected POST")
    context.route = route = routes.find(request.raw_path)
    # For the metrics of refusals, until the credentials identify the drain.
    context.drain_name = route.drains[0].drain.name
    # An exporter with a wrong method would take a 200 as success.
    is_probe = request.method in PROBE_METHODS and not is_from_exporter(request.headers)
    if request.method not in {"POST", "OPTIONS"} and (not is_probe or context.is_webhook):
        raise MethodNotAllowed(METHOD_NOT_ALLOWED)
    return route


def is_from_exporter(headers: Mapping[str, str]) -> bool:
    """Return whether a request declares a body or an OTLP content type. An endpoint test has neither."""
    has_body = "Transfer-Encoding" in headers or int(headers.get("Content-Length", "0")) > 0
    return has_body or media.is_otlp(headers.get("Content-Type"))


def read(request: BaseRequest, routes: Routes, route: Route, context: RequestContext) -> Head:
    """Check credentials, expectation and media type of a delivery, and return its head."""
    headers = request.headers
    credentials.refuse_repeats(route.drains, headers)
    admitted = credentials.authorise(route.drains, routes.credentials, headers)
    context.drain_name = admitted[0].drain.name
    expectation = headers.get("Expect")
    if expectation is not None and expectation.lower() != "100-continue":
        raise HttpRefused(417, "expectation is not supported; expected 100-continue or none")
    if context.is_webhook:
        media.require_plain_json(headers.get("Content-Type"), headers.getall("Content-Encoding", ()))
    is_test = not (context.is_webhook or is_from_exporter(headers))
    kind = ContentKind.JSON if is_test else media.content_kind(headers.get("Content-Type"))
    encodings = () if is_test else media.codings(headers.getall("Content-Encoding", ()))
    return Head(
        routes=routes,
        route=route,
        admitted=admitted,
        # `all`: the signature may still decide for a drain that requires no token.
        shows_token=all(drain.requires_token for drain in admitted),
        kind=kind,
        encodings=encodings,
        # An HTTP/1.0 client does not understand an interim answer.
        expects_continue=expectation is not None and request.version == HttpVersion11,
        headers=headers,
        inline_bytes_max=inline_bytes_max(route, admitted),
        is_endpoint_test=is_test,
        senders=route.senders[kind],
        peer=context.peer,
        path=context.path,
    )


def inline_bytes_max(route: Route, admitted: Sequence[Credentials]) -> int:
    """Return the size up to which bodies are verified on the event loop instead of a thread."""
    is_signed = any(drain.signed for drain in admitted)
    return min(SIGNATURE_INLINE_BYTES_MAX, route.body_bytes_max) if is_signed else route.body_bytes_max
