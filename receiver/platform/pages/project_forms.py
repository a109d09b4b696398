"""Form that keeps the spans of a removed project, with the same handler as the API."""

from __future__ import annotations

from aiohttp import web

from receiver.console.api.route import Route
from receiver.console.ui.document import go_to
from receiver.console.ui.forms import form_of
from receiver.console.ui.results import Results
from receiver.platform.api.records import PlatformRoutes


class ProjectForms:
    """Route of the form."""

    def __init__(self, projects: PlatformRoutes, results: Results) -> None:
        self._projects = projects
        self._results = results

    def routes(self) -> tuple[Route, ...]:
        """Return the route."""
        return (Route("POST", "/platform/projects/{id}/keep", self._keep, "operator", changes=True),)

    async def _keep(self, request: web.Request) -> web.Response:
        await form_of(request)
        project_id = request.match_info["id"]
        await self._projects.keep(project_id)
        result = self._results.keep(f"The spans of {project_id} are kept.")
        return go_to(f"/platform?result={result}#projects")
