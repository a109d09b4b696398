"""Request head: the checks that are made before the body is read.

Invariant: the order is HTTP version and transfer coding → path → method → credentials → media type. A sender
    that fails a check learns nothing about later checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp.http_writer import HttpVersion10, HttpVersion11
from aiohttp.web_request import BaseRequest

from receiver.errors import MethodNotAllowed
from receiver.intake import credentials, media
from receiver.intake.credentials import Credentials
from receiver.intake.routes import Route, Routes
from receiver.model import ContentKind

METHOD_NOT_ALLOWED = "method is not allowed; expected POST"
PROBE_METHODS = frozenset({"GET", "HEAD"})


class HttpRefused(Exception):  # noqa: N818 - not an error of a delivery
    """The request is not HTTP that this receiver supports."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class RequestContext:
    """One request while it is being answered, and the route and drain that are known so far."""

    kind: ContentKind
    """The encoding of the answer."""
    route: Route | None = None
    drain_name: str = ""
    is_endpoint_test: bool = False
    """The request is an endpoint test that was answered 200, not a delivery."""


@dataclass(frozen=True, slots=True)
class Head:
    """The facts that follow from the head of a delivery, except the length of its body."""

    routes: Routes
    """The routes that were in force when the head was read."""
    route: Route
    admitted: Sequence[Credentials]
    """The drains that the delivery may be from; a signature decides between several."""
    shows_token: bool
    """A valid token identifies the sender before the body is read."""
    kind: ContentKind
    encodings: tuple[str, ...]
    expects_continue: bool
    headers: Mapping[str, str]
    is_endpoint_test: bool = False
    """An empty POST that no exporter sends: platforms test an endpoint with it."""


def require_http(request: BaseRequest) -> None:
    """Refuse HTTP versions and transfer codings that are unsupported or ambiguous."""
    if request.version not in (HttpVersion11, HttpVersion10):
        raise HttpRefused(505, "HTTP version is not supported; expected HTTP/1.1")
    coding = request.headers.get("Transfer-Encoding")
    if coding is not None and (coding.lower() != "chunked" or request.version == HttpVersion10):
        raise HttpRefused(400, "transfer encoding is not supported; expected chunked over HTTP/1.1")


def find(request: BaseRequest, routes: Routes, context: RequestContext) -> Route:
    """Return the route; refuse a method other than POST there, unless the request is a probe."""
    if request.method == "CONNECT":
        raise MethodNotAllowed("this server is not a proxy; expected POST")
    context.route = route = routes.find(request.raw_path)
    context.drain_name = route.drains[0].drain.name
    is_probe = request.method in PROBE_METHODS and not is_from_exporter(request.headers)
    if request.method not in {"POST", "OPTIONS"} and not is_probe:
        raise MethodNotAllowed(METHOD_NOT_ALLOWED)
    return route


def is_from_exporter(headers: Mapping[str, str]) -> bool:
    """Return whether a request declares a body or an OTLP content type. An endpoint test has neither."""
    has_body = "Transfer-Encoding" in headers or int(headers.get("Content-Length", "0")) > 0
    return has_body or media.is_otlp(headers.get("Content-Type"))


def read(request: BaseRequest, routes: Routes, route: Route, context: RequestContext) -> Head:
    """Check credentials, expectation and media type of a delivery, and return its head."""
    headers = request.headers
    admitted = credentials.authorise(route.drains, routes.credentials, headers)
    context.drain_name = admitted[0].drain.name
    expectation = headers.get("Expect")
    if expectation is not None and expectation.lower() != "100-continue":
        raise HttpRefused(417, "expectation is not supported; expected 100-continue or none")
    is_test = not is_from_exporter(headers)
    return Head(
        routes=routes,
        route=route,
        admitted=admitted,
        shows_token=all(drain.requires_token for drain in admitted),
        kind=ContentKind.JSON if is_test else media.content_kind(headers.get("Content-Type")),
        encodings=() if is_test else media.codings(headers.getall("Content-Encoding", ())),
        expects_continue=expectation is not None and request.version == HttpVersion11,
        headers=headers,
        is_endpoint_test=is_test,
    )
