"""Page of the platform: its installations, their features, and the actions of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from aiohttp import web

from receiver.console.api.route import Route
from receiver.console.ui.document import go_to
from receiver.console.ui.forms import form_of
from receiver.console.ui.page import Context
from receiver.console.ui.results import Results
from receiver.console.ui.view import View
from receiver.errors import OperatorError, place_and_reason
from receiver.platform.api import InstallationEntry, PlatformRoutes, entry_of
from receiver.platform.client.connection import NEEDED, missing_scopes
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.installing import unusable_settings
from receiver.platform.installations.platform_records import PlatformRecords
from receiver.platform.installations.projects import removed_projects
from receiver.platform.installations.records import Installation

INSTALLATIONS_MAX = 100
"""Maximum number of installations that the page shows."""
FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    name.capitalize(): scopes for name, scopes in NEEDED.items()
}
"""Feature → the scopes that its calls need."""


class Feature(NamedTuple):
    """A feature of the receiver, and whether an installation allows it."""

    name: str
    needed: tuple[str, ...]
    level: str
    """CSS class of the text: `verified`, `warning` or `error`."""
    text: str
    action: str = ""
    """Action that unblocks it; empty if it is allowed."""


class Shown(NamedTuple):
    record: Installation
    entry: InstallationEntry
    days_left: float
    """Days until the platform deletes it; 0 unless it is disabled."""
    token: str
    """State of the token in words."""
    problem: str
    """Reason why the token cannot be used; empty if it can."""
    features: list[Feature]


async def build(records: PlatformRecords, view: View) -> Context:
    """Return the installations, the newest first."""
    installations, settings = records.installations, view.facts.settings.platform
    installed = installations.all()
    shown = await view.facts.in_pool(
        lambda: [_shown(installations, record, view.now_s) for record in installed[:INSTALLATIONS_MAX]]
    )
    result = view.facts.results.result_of(view.query.get("result", ""))
    return {
        "installed": [each for each in shown if not each.record.is_ended],
        "ended": [each for each in shown if each.record.is_ended],
        "hidden_count": len(installed) - len(shown),
        "unreadable": sorted(installations.unreadable),
        "missing_settings": unusable_settings(settings),
        "result": result,
        "removed_projects": removed_projects(
            records.projects.all(), view.facts.settings.platform.webhook.project_retention_days
        ),
    }


def _shown(installations: Installations, record: Installation, now_s: float) -> Shown:
    problem, deleted_at_s = token_problem(installations, record), record.deleted_at_s
    entry = entry_of(installations, record)
    return Shown(
        record,
        entry,
        0.0 if deleted_at_s is None else max(0.0, deleted_at_s - now_s) / 86_400,
        {"": "none", "plain": "stored, not encrypted"}.get(entry.token, f"stored, {entry.token}"),
        problem,
        [_feature(name, needed, record, problem) for name, needed in FEATURES.items()],
    )


def token_problem(installations: Installations, record: Installation) -> str:
    """Return the reason why the token of an installation cannot be used; empty if it can. Blocks."""
    if record.is_ended:
        return ""
    try:
        return "" if installations.token(record.id) else "the token was not stored: install again"
    except OperatorError as error:
        return str(error)
    except OSError as error:
        return f"the token cannot be read: {place_and_reason(error)}"


def _feature(name: str, needed: tuple[str, ...], record: Installation, problem: str) -> Feature:
    if record.state == "disabled":
        action = "An owner of the team transfers the integration to a member of the team."
        return Feature(name, needed, "error", "blocked: the platform has disabled the installation", action)
    if problem:
        return Feature(name, needed, "error", "blocked: there is no usable token", problem)
    if record.scopes is None:
        text = "allowed, unless the platform answers that a scope is missing: it has not listed the scopes"
        return Feature(name, needed, "warning", text)
    if missing := missing_scopes(needed, record.scopes):
        action = (
            f"Add {', '.join(missing)} to the integration on the platform; every affected user and team "
            "owner confirms it there, and the feature comes back by itself."
        )
        return Feature(name, needed, "error", f"blocked: {', '.join(missing)} is not granted", action)
    return Feature(name, needed, "verified", "allowed")


class ProjectForms:
    """Form that keeps the spans of a removed project, with the same handler as the API."""

    def __init__(self, projects: PlatformRoutes, results: Results) -> None:
        self._projects = projects
        self._results = results

    def routes(self) -> tuple[Route, ...]:
        return (Route("POST", "/platform/projects/{id}/keep", self._keep, "operator", changes=True),)

    async def _keep(self, request: web.Request) -> web.Response:
        await form_of(request)
        project_id = request.match_info["id"]
        await self._projects.keep(project_id)
        result = self._results.keep(f"The spans of {project_id} are kept.")
        return go_to(f"/platform?result={result}#projects")
