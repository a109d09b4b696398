"""API routes for the projects that were removed on the platform.

    GET  /api/v1/platform/projects              an object for each removed project
    POST /api/v1/platform/projects/{id}/keep    keep its spans: revoke that they become due for deletion

Invariant: a POST requires a content type that a browser sends across sites only after a CORS preflight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
from aiohttp import web

from receiver.console.api.access import requires
from receiver.console.api.lines import end_line
from receiver.console.queries.question import reject_unknown_parameters
from receiver.errors import DiskTrouble, NoSuchProject
from receiver.http.media_types import JSON, JSON_LINES, require_json
from receiver.logs import limited
from receiver.platform.installations.projects import Projects
from receiver.platform.installations.retention import removed_projects


@dataclass(frozen=True, slots=True)
class ProjectRoutes:
    """Handlers for removed projects and their dependencies."""

    projects: Projects
    retention_days: Callable[[], int]
    """Returns `platform.webhook.project_retention_days`."""
    pool: ThreadPoolExecutor

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes to the router of the API."""
        router.add_get("/api/v1/platform/projects", self._list)
        router.add_post("/api/v1/platform/projects/{id}/keep", self._keep)

    @requires("viewer")
    async def _list(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        listed = removed_projects(self.projects.all(), self.retention_days())
        lines = b"".join(msgspec.json.encode(project) + b"\n" for project in listed) + end_line(len(listed))
        return web.Response(body=lines, headers={"Content-Type": JSON_LINES})

    @requires("operator", changes=True)
    async def _keep(self, request: web.Request) -> web.Response:
        require_json(request.content_type)
        reject_unknown_parameters(request.query)
        await self.keep(request.match_info["id"])
        return web.Response(body=b"{}\n", headers={"Content-Type": JSON})

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
