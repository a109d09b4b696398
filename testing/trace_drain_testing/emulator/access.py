"""Access to the platform API: checks token, state of the installation, team and scopes, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from aiohttp import web

from trace_drain_testing.emulator.installations import LEVELS, Installation, parse_scopes, require_active
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.refusals import Refusal, forbidden

_MISSING_TEAM: Mapping[str, tuple[HTTPStatus, str]] = {
    "400": (HTTPStatus.BAD_REQUEST, "missing_team_param"),
    "403": (HTTPStatus.FORBIDDEN, "forbidden"),
    "422": (HTTPStatus.UNPROCESSABLE_ENTITY, "team_required"),
}
"""Status and code by shape of P2."""


def require_access(platform: Platform, request: web.Request, scope: str) -> Installation:
    """Return the installation of the caller. Raises `Refusal`. A team in the path counts as `teamId`."""
    header = request.headers.get("Authorization", "")
    scheme, _, credentials = header.partition(" ")
    token = credentials.strip() if scheme.lower() == "bearer" else ""
    installation = platform.installations.with_token(token) if token else None
    if installation is None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "not_authorized", "the access token is missing or not valid")
    require_active(installation)
    _require_team(platform, installation, request)
    for name, level in parse_scopes([scope]).items():
        if installation.scopes.get(name, 0) < level:
            granted = next(text for text, number in LEVELS.items() if number == level)
            raise forbidden(f"the installation lacks the scope {name}:{granted}")
    return installation


def _require_team(platform: Platform, installation: Installation, request: web.Request) -> None:
    # All values, so that a repeated parameter cannot name a second team.
    ids = [*request.query.getall("teamId", []), *filter(None, [request.match_info.get("teamId")])]
    slugs = request.query.getall("slug", [])
    if installation.team_id is not None and not ids and not slugs:
        status, code = _MISSING_TEAM[platform.unstated.shape_of("P2")]
        raise Refusal(status, code, "the integration is installed on a team; expected teamId or slug")
    known_slug = platform.team_slug if installation.team_id else None
    if any(each != installation.team_id for each in ids) or any(each != known_slug for each in slugs):
        raise forbidden("the token gives no access to this team")
