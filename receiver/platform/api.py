"""API routes for installations, and for the projects that were removed on the platform.

    GET  /api/v1/platform/installations         an object for each installation, the newest first
    GET  /api/v1/platform/projects              an object for each removed project
    POST /api/v1/platform/projects/{id}/keep    keep its spans: they do not become due for deletion

Invariant: a POST requires a content type that a browser sends across sites only after a CORS preflight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from receiver.console.api.description.operation import BY_STORE, Operation
from receiver.console.api.responses import whole_json, whole_lines
from receiver.console.api.route import Route
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.errors import DiskTrouble, NoSuchProject
from receiver.http.media_types import JSON_LINES, require_json
from receiver.logs import limited
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.projects import Projects, removed_projects
from receiver.platform.installations.records import Installation
from receiver.time_range import instant_text

PATH: Final = "/api/v1/platform"
_INSTALLATIONS = Operation("installations", "Installations of the platform's integration.", (), (JSON_LINES,))
_PROJECTS = Operation("removedProjects", "Projects that were removed on the platform.", (), (JSON_LINES,))
_KEEP = Operation(
    "keepProject",
    "Keep the spans of a removed project: they do not become due for deletion.",
    (Parameter("id", "the id of a project", is_required=True),),
    errors=(HTTPStatus.NOT_FOUND, *BY_STORE),
)


class InstallationEntry(msgspec.Struct, frozen=True):
    """A line of the list. Times are in UTC, ISO 8601."""

    id: str
    state: str
    since: str
    team: str
    """Empty for a personal account."""
    user: str
    scopes: tuple[str, ...] | None
    """`None` if the platform has not listed them."""
    installed_at: str
    """Empty if it is not known."""
    deleted_at: str
    """Time at which the platform deletes it; empty unless it is disabled."""
    token: str
    """Form in which it is stored: `plain`, `encrypted` or `damaged`; empty if there is none."""


def entries(installations: Installations) -> list[InstallationEntry]:
    """Return all installations, the newest first. Blocks."""
    return [entry_of(installations, record) for record in installations.all()]


def entry_of(installations: Installations, record: Installation) -> InstallationEntry:
    """Return the entry of an installation. Blocks."""
    return InstallationEntry(
        record.id,
        record.state,
        instant_of(record.since_s),
        record.team_id,
        record.user_id,
        record.scopes,
        instant_of(record.installed_at_s),
        instant_of(record.deleted_at_s),
        installations.token_kind(record.id),
    )


def instant_of(at_s: float | None) -> str:
    """Return a time to the second; empty if it is not known."""
    return "" if at_s is None else instant_text(at_s)


@dataclass(frozen=True, slots=True)
class PlatformRoutes:
    installations: Installations
    projects: Projects
    retention_days: Callable[[], int]
    """Returns `platform.webhook.project_retention_days`."""
    pool: ThreadPoolExecutor

    def routes(self) -> tuple[Route, ...]:
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
        require_json(request.content_type)
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
