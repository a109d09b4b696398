"""Form that keeps the spans of a removed project, with the same handler as the API."""

from __future__ import annotations

from aiohttp import web

from receiver.console.api.access import requires
from receiver.console.ui.document import go_to
from receiver.console.ui.forms import form_of
from receiver.console.ui.results import Results
from receiver.platform.api.projects import ProjectRoutes


class ProjectForms:
    """Route of the form."""

    def __init__(self, projects: ProjectRoutes, results: Results) -> None:
        self._projects = projects
        self._results = results

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the route."""
        router.add_post("/platform/projects/{id}/keep", self._keep)

    @requires("operator", changes=True)
    async def _keep(self, request: web.Request) -> web.Response:
        await form_of(request)
        project_id = request.match_info["id"]
        await self._projects.keep(project_id)
        result = self._results.keep(f"The spans of {project_id} are kept.")
        return go_to(f"/platform?result={result}#projects")
