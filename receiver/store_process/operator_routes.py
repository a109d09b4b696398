"""Application of the API's listener: the API, the pages with their login, and the APIs of other tools."""

from __future__ import annotations

from aiohttp import web

from receiver.api.dead_letters import DeadLetterRoutes
from receiver.api.platform import PlatformRoutes
from receiver.api.platform_projects import ProjectRoutes
from receiver.api.rollup import RollupRoutes
from receiver.api.routes import Api
from receiver.api.source import ApiSource
from receiver.explain.explainer import Explainer
from receiver.explain.routes import ExplainRoutes
from receiver.jaeger.routes import JaegerRoutes
from receiver.mcp.endpoint import McpRoutes
from receiver.tempo.routes import TempoRoutes
from receiver.ui.dead_letter_forms import DeadLetterForms
from receiver.ui.error_pages import ErrorPages
from receiver.ui.explain_form import ExplainForm
from receiver.ui.facts import ReceiverFacts
from receiver.ui.install_routes import InstallRoutes
from receiver.ui.login import Login
from receiver.ui.project_forms import ProjectForms
from receiver.ui.site import Site


def operator_application(
    api: Api, dead_letters: DeadLetterRoutes, rollup: RollupRoutes, facts: ReceiverFacts
) -> web.Application:
    """Return the application with all routes. Spans are read through the queues of the API."""

    def source_for(request: web.Request) -> ApiSource:
        return ApiSource(api, request)

    project_routes = ProjectRoutes(
        facts.platform.projects, lambda: facts.settings.platform.webhook.project_retention_days, facts.pool
    )
    explainer, site = Explainer(lambda: facts.loaded.settings.platform), Site(source_for, facts)
    application = api.application(
        dead_letters,
        rollup,
        site,
        ExplainForm(site, explainer),
        ExplainRoutes(source_for, explainer),
        DeadLetterForms(dead_letters, facts.results),
        InstallRoutes(facts),
        project_routes,
        ProjectForms(project_routes, facts.results),
        PlatformRoutes(facts.platform.installations, facts.pool),
        Login(),
        McpRoutes(source_for),
        JaegerRoutes(api),
        TempoRoutes(api),
    )
    # The outermost, so that it also sees the errors of the other middlewares.
    application.middlewares.insert(0, ErrorPages().middleware)
    return application
