"""The head of a request: all that is decided before its body, whatever that is.

Keeps: HTTP as it is spoken here → path → method → credentials → media. Nothing is told about a later step to
    a sender that fails an earlier one.
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

METHODS = "method is not allowed; expected POST"
PROBE_METHODS = frozenset({"GET", "HEAD"})


class HttpRefused(Exception):  # noqa: N818 - a verdict about HTTP, not about a delivery
    """The request is not HTTP as it is spoken here."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class RequestContext:
    """One request while it is being answered, and what is known of its sender so far."""

    kind: ContentKind
    """The encoding of the answer."""
    route: Route | None = None
    drain_name: str = ""
    is_endpoint_test: bool = False
    """The request tests the endpoint and was answered with 200. It is no delivery."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a delivery says, but for the length of the body."""

    routes: Routes
    """Those in force when it was read."""
    route: Route
    admitted: Sequence[Credentials]
    """The drains it may be from."""
    shows_token: bool
    """The sender is known before the body is read."""
    kind: ContentKind
    encodings: tuple[str, ...]
    expects_continue: bool
    headers: Mapping[str, str]
    is_endpoint_test: bool = False
    """An empty POST that no exporter sends: platforms test an endpoint so."""


def require_http(request: BaseRequest) -> None:
    """Refuse what cannot be understood, or could be understood in two ways."""
    if request.version not in (HttpVersion11, HttpVersion10):
        raise HttpRefused(505, "HTTP version is not spoken here; expected HTTP/1.1")
    coding = request.headers.get("Transfer-Encoding")
    if coding is not None and (coding.lower() != "chunked" or request.version == HttpVersion10):
        raise HttpRefused(400, "transfer encoding is not read here; expected chunked over HTTP/1.1")


def find(request: BaseRequest, routes: Routes, visit: RequestContext) -> Route:
    """Return the route; refuse a method other than POST there, unless the request is a probe."""
    if request.method == "CONNECT":
        raise MethodNotAllowed("this is no proxy; expected POST")
    visit.route = route = routes.find(request.raw_path)
    visit.drain_name = route.drains[0].drain.name
    is_probe = request.method in PROBE_METHODS and not is_from_exporter(request.headers)
    if request.method not in {"POST", "OPTIONS"} and not is_probe:
        raise MethodNotAllowed(METHODS)
    return route


def is_from_exporter(headers: Mapping[str, str]) -> bool:
    """Return whether a request declares a body or an OTLP content type. An endpoint test has neither."""
    has_body = "Transfer-Encoding" in headers or int(headers.get("Content-Length", "0")) > 0
    return has_body or media.is_otlp(headers.get("Content-Type"))


def read(request: BaseRequest, routes: Routes, route: Route, visit: RequestContext) -> Head:
    """Read who sends and what the body is, and refuse by that alone what can be."""
    headers = request.headers
    admitted = credentials.authorise(route.drains, routes.credentials, headers)
    visit.drain_name = admitted[0].drain.name
    expectation = headers.get("Expect")
    if expectation is not None and expectation.lower() != "100-continue":
        raise HttpRefused(417, "expectation is not met here; expected 100-continue or none")
    is_test = not is_from_exporter(headers)
    return Head(
        routes=routes,
        route=route,
        admitted=admitted,
        shows_token=all(one.has_tokens for one in admitted),
        kind=ContentKind.JSON if is_test else media.content_kind(headers.get("Content-Type")),
        encodings=() if is_test else media.codings(headers.getall("Content-Encoding", ())),
        expects_continue=expectation is not None and request.version == HttpVersion11,
        headers=headers,
        is_endpoint_test=is_test,
    )
