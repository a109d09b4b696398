"""API routes for installations, and for the projects that were removed on the platform.

    GET  /api/v1/platform/installations         an object for each installation, the newest first
    GET  /api/v1/platform/projects              an object for each removed project
    POST /api/v1/platform/projects/{id}/keep    keep its spans: revoke that they become due for deletion

Invariant: a POST requires a content type that a browser sends across sites only after a CORS preflight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web

from receiver.console.api.dead_letters import require_json_content_type
from receiver.console.api.description.operation import BY_STORE, Operation
from receiver.console.api.lines import JSON_LINES
from receiver.console.api.responses import whole_json, whole_lines
from receiver.console.api.route import Route
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.errors import DiskTrouble, NoSuchProject
from receiver.logs import limited
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.listing import entries
from receiver.platform.installations.projects import Projects
from receiver.platform.installations.retention import removed_projects

PATH: Final = "/api/v1/platform"
_INSTALLATIONS = Operation("installations", "Installations of the platform's integration.", (), (JSON_LINES,))
_PROJECTS = Operation("removedProjects", "Projects that were removed on the platform.", (), (JSON_LINES,))
_KEEP = Operation(
    "keepProject",
    "Keep the spans of a removed project: they do not become due for deletion.",
    (Parameter("id", "the id of a project", is_required=True),),
    errors=(HTTPStatus.NOT_FOUND, *BY_STORE),
)


@dataclass(frozen=True, slots=True)
class PlatformRoutes:
    """Handlers for the records of the platform and their dependencies."""

    installations: Installations
    projects: Projects
    retention_days: Callable[[], int]
    """Returns `platform.webhook.project_retention_days`."""
    pool: ThreadPoolExecutor

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        keep = f"{PATH}/projects/{{id}}/keep"
        return (
            Route("GET", f"{PATH}/installations", self._installations, "viewer", operation=_INSTALLATIONS),
            Route("GET", f"{PATH}/projects", self._projects, "viewer", operation=_PROJECTS),
            Route("POST", keep, self._keep, "operator", changes=True, operation=_KEEP),
        )

    async def _installations(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        loop = asyncio.get_running_loop()
        return whole_lines(await loop.run_in_executor(self.pool, entries, self.installations))

    async def _projects(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        return whole_lines(removed_projects(self.projects.all(), self.retention_days()))

    async def _keep(self, request: web.Request) -> web.Response:
        require_json_content_type(request)
        reject_unknown_parameters(request.query)
        await self.keep(request.match_info["id"])
        return whole_json(HTTPStatus.OK, {})

    async def keep(self, project_id: str) -> None:
        """Keep the spans of a removed project. Raises `NoSuchProject` or `DiskTrouble`."""
        await asyncio.get_running_loop().run_in_executor(self.pool, self._revoke, project_id)

    def _revoke(self, project_id: str) -> None:
        try:
            is_changed = self.projects.revoke(project_id)
        except OSError as error:
            limited.error("project", "project cannot be written", error=str(error.strerror))
            raise DiskTrouble("the project cannot be written to disk; retry later") from error
        project = self.projects.find(project_id)
        if not is_changed and (project is None or not project.is_revoked):
            raise NoSuchProject("no removed project has this id")
