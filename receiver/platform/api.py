"""API routes for the platform.

    GET  /api/v1/platform/installations         every installation of the integration, the newest first
    GET  /api/v1/platform/projects              an object for each removed project
    POST /api/v1/platform/projects/{id}/keep    keep its spans: revoke that they become due for deletion

Invariant: a POST requires a content type that a browser sends across sites only after a CORS preflight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from aiohttp import web

from receiver.console.api.access import requires
from receiver.console.api.dead_letters import require_json_content_type
from receiver.console.api.lines import JSON_LINES, end_line
from receiver.console.queries.question import reject_unknown_parameters
from receiver.errors import DiskTrouble, NoSuchProject
from receiver.logs import limited
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.projects import Projects, removed_projects
from receiver.platform.installations.records import Installation


class InstallationEntry(msgspec.Struct, frozen=True):
    """A line of the list. Times are in UTC, ISO 8601."""

    id: str
    state: str
    since: str
    team: str
    """Empty: a personal account."""
    user: str
    scopes: tuple[str, ...] | None
    """`None`: the platform has not listed them."""
    installed_at: str
    """Empty: not known."""
    deleted_at: str
    """When the platform deletes it; empty unless it is disabled."""
    token: str
    """`plain` or `encrypted`: how it is stored; `damaged`; empty: there is none."""


def entries(installations: Installations) -> list[InstallationEntry]:
    """Return all installations, the newest first. Blocks."""
    return [entry_of(installations, record) for record in installations.all()]


def entry_of(installations: Installations, record: Installation) -> InstallationEntry:
    """Return an installation as the list has it. Blocks."""
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
    return "" if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class InstallationRoutes:
    """Handlers for installations and their dependencies."""

    installations: Installations
    pool: ThreadPoolExecutor

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes to the router of the API."""
        router.add_get("/api/v1/platform/installations", self._list)

    @requires("viewer")
    async def _list(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        rows = await asyncio.get_running_loop().run_in_executor(self.pool, entries, self.installations)
        return _lines_of(rows)


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
        return _lines_of(listed)

    @requires("operator", changes=True)
    async def _keep(self, request: web.Request) -> web.Response:
        require_json_content_type(request)
        reject_unknown_parameters(request.query)
        await self.keep(request.match_info["id"])
        return web.Response(body=b"{}\n", headers={"Content-Type": "application/json"})

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


def _lines_of(rows: Sequence[msgspec.Struct]) -> web.Response:
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows) + end_line(len(rows))
    return web.Response(body=lines, headers={"Content-Type": JSON_LINES})
