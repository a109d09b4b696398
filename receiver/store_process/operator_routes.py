"""Routes of the API's listener besides the queries: pages, login, and the APIs of other tools."""

from __future__ import annotations

from aiohttp import web

from receiver.api.routes import Api, Routes
from receiver.api.source import ApiSource
from receiver.jaeger.routes import JaegerRoutes
from receiver.mcp.endpoint import McpRoutes
from receiver.tempo.routes import TempoRoutes
from receiver.ui.facts import ReceiverFacts
from receiver.ui.login import Login
from receiver.ui.site import Site


def operator_routes(api: Api, facts: ReceiverFacts) -> tuple[Routes, ...]:
    """Return all routes that read spans through the queues of the API."""

    def source_for(request: web.Request) -> ApiSource:
        return ApiSource(api, request)

    return Site(source_for, facts), Login(), McpRoutes(source_for), JaegerRoutes(api), TempoRoutes(api)
