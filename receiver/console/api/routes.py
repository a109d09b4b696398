"""Operators' API: queries over HTTP, answered as JSON or as lines of JSON. Each group lists its routes.

Invariant: client input reaches the store as a parameter only; an unknown parameter is rejected. The last line
    of a streamed response holds the number of lines; an incomplete response lacks it and the last chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from aiohttp import web

from receiver.console.api.access import ACCESS, Access, log_changes
from receiver.console.api.exports import ExportRoutes
from receiver.console.api.problems import map_errors
from receiver.console.api.query_queue import Queues, default_queues
from receiver.console.api.query_routes import QueryRoutes
from receiver.console.api.reader import Reader
from receiver.console.api.responses import add_security_headers, finish_whole_answers
from receiver.console.api.route import Routes, register
from receiver.console.api.sessions import new_key
from receiver.console.api.source import ApiSource
from receiver.console.api.spool import SpoolSpace
from receiver.console.api.sql import SqlRoutes
from receiver.console.api.status_routes import StatusRoutes, StoreRoutes
from receiver.console.api.traces import TraceRoutes
from receiver.engine.store import Store
from receiver.http.origin import OriginCheck
from receiver.settings import Access as AccessSettings


@dataclass(frozen=True)
class Api:
    """Parts of the API's application."""

    store: Store
    token: Callable[[], str]
    """Returns the token of the role `admin`; empty if there is none."""
    health: Callable[[], dict[str, str]]
    schema: Callable[[], object]
    ledger: Callable[[Mapping[str, str]], object]
    """Runs a ledger query with these parameters; blocks."""
    snapshot: Callable[[], object]
    """Takes a snapshot of the data directory; blocks."""
    deletion_report: Callable[[Mapping[str, str]], object]
    """Counts the stored spans of a project or a trace; blocks."""
    delete: Callable[[Mapping[str, str]], object]
    """Begins to delete the spans of a project or a trace of one day; blocks."""
    pool: ThreadPoolExecutor
    """Threads for short responses."""
    stream_pool: ThreadPoolExecutor
    space: SpoolSpace
    queues: Queues = field(default_factory=default_queues)
    hosts: Collection[str] = ()
    """DNS names that clients may use."""
    allows_sql: bool = False
    access: Callable[[], AccessSettings] = AccessSettings
    """Returns the settings of the other users."""
    session_key: bytes = field(default_factory=new_key)

    @cached_property
    def reader(self) -> Reader:
        """Return the reader of the store."""
        return Reader(self.store, self.stream_pool, self.space, self.queues, self.allows_sql)

    def source(self, request: web.Request) -> ApiSource:
        """Return the source of spans for a request."""
        return ApiSource(self.reader, request)

    def application(self, *more: Routes) -> web.Application:
        """Return the application with all routes. `more`: routes of other parts of the console."""
        origin = OriginCheck("api", self.hosts)
        access = Access(self.token, self.access, self.session_key)
        application = web.Application(
            middlewares=[origin.middleware, log_changes, map_errors, access.middleware, finish_whole_answers]
        )
        application[ACCESS] = access
        own: tuple[Routes, ...] = (
            TraceRoutes(self.source),
            QueryRoutes(self.source),
            ExportRoutes(self.source),
            SqlRoutes(self.source),
            StatusRoutes(self.source, self.health, self.schema, self.ledger, self.pool),
            StoreRoutes(self.snapshot, self.deletion_report, self.delete, self.pool),
        )
        for each in (*own, *more):
            register(application, each.routes())
        application.on_response_prepare.append(add_security_headers)
        return application
