"""Application of the API's listener: the API, the pages with their login, and the APIs of other tools."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.route import Routes
from receiver.console.api.routes import Api
from receiver.console.extension import NO_EXTENSION, Extension
from receiver.console.tools.jaeger.routes import JaegerRoutes
from receiver.console.tools.mcp.endpoint import McpRoutes
from receiver.console.tools.tempo.routes import TempoRoutes
from receiver.console.ui.dead_letter_forms import DeadLetterForms
from receiver.console.ui.error_pages import ErrorPages
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.login import Login
from receiver.console.ui.site import Site
from receiver.console.ui.views.routes import ViewRoutes


def operator_application(
    api: Api,
    dead_letters: DeadLetterRoutes,
    derived: Iterable[Routes],
    facts: ReceiverFacts,
    extension: Extension = NO_EXTENSION,
) -> web.Application:
    """Return the application with all routes. Spans are read through the queues of the API.

    `derived`: routes of what is derived from stored spans: rollups, metrics.
    """
    site = Site(api.source, facts, extension.pages, extension.templates)
    application = api.application(
        dead_letters,
        *derived,
        site,
        DeadLetterForms(dead_letters, facts.results),
        ViewRoutes(facts),
        *extension.routes(site, api.source, facts),
        Login(),
        McpRoutes(api.source),
        JaegerRoutes(api.source),
        TempoRoutes(api.source),
    )
    # The outermost middleware, so that it also handles the errors of the other middlewares.
    application.middlewares.insert(0, ErrorPages(extension.pages).middleware)
    return application
