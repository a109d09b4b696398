"""Route of the API, the pages or a tool: an entry with its handler, its access and its description.

Invariant: registration, access checks and OpenAPI read the same entry, so none of them can miss a route.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, Protocol

from aiohttp import hdrs, web

from receiver.console.api.description.operation import Operation
from receiver.console.api.responses import Handler
from receiver.settings import Role

Requirement = Role | Literal["public"]


class Route(NamedTuple):
    """A method of a path."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    role: Requirement
    """Role that the route requires; `public`: no credentials."""
    within_projects: bool = False
    """Whether it reads spans only through `ApiSource`, which limits them to the projects of the caller. Other
    routes refuse callers with limited projects."""
    changes: bool = False
    """Whether it changes the state of the receiver. Each request to it is logged."""
    has_head: bool = True
    """Whether a route for GET also serves HEAD."""
    operation: Operation | None = None
    """Its description in OpenAPI; `None` for pages and routes of tools."""


def query_route(path: str, handler: Handler, operation: Operation) -> Route:
    """Return a route for GET whose handler reads spans through `ApiSource` only."""
    return Route("GET", path, handler, "viewer", within_projects=True, operation=operation)


class Routes(Protocol):
    """Group of routes that share the API's listener, token and limits."""

    def routes(self) -> Iterable[Route]:
        """Return the routes of the group."""


ROUTES: Final[web.AppKey[dict[web.AbstractRoute, Route]]] = web.AppKey("routes")
"""The entry of each route of an application."""


def register(application: web.Application, routes: Iterable[Route]) -> None:
    """Add routes to an application."""
    table = application.setdefault(ROUTES, {})
    for route in routes:
        has_head = route.method == hdrs.METH_GET and route.has_head
        for method in (hdrs.METH_HEAD, route.method) if has_head else (route.method,):
            table[application.router.add_route(method, route.path, route.handler)] = route


def route_of(request: web.Request) -> Route | None:
    """Return the entry of the requested route; `None` if the request has no route."""
    return request.app[ROUTES].get(request.match_info.route)


def routes_of(application: web.Application) -> list[Route]:
    """Return the routes of an application."""
    return list({(route.method, route.path): route for route in application[ROUTES].values()}.values())
