"""The platform API: access, microfrontends groups, deployment events and the token exchange."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from aiohttp import web

from trace_drain_testing.emulator.answers import guarded, send_json
from trace_drain_testing.emulator.event_query import parse_query
from trace_drain_testing.emulator.event_stream import follow, shaped_events
from trace_drain_testing.emulator.installations import (
    LEVELS,
    Installation,
    invalid_grant,
    parse_scopes,
    require_active,
)
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.refusals import Refusal, bad_request, forbidden, not_found

_MISSING_TEAM: Mapping[str, tuple[HTTPStatus, str]] = {
    "400": (HTTPStatus.BAD_REQUEST, "missing_team_param"),
    "403": (HTTPStatus.FORBIDDEN, "forbidden"),
    "422": (HTTPStatus.UNPROCESSABLE_ENTITY, "team_required"),
}
"""Status and code by shape of P2."""


def require_access(platform: Platform, request: web.Request, scope: str) -> Installation:
    """Return the installation that calls. Raises `Refusal`. A team in the path counts as `teamId`."""
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


EVENTS_SCOPE = "deployment:read"
GROUPS_SCOPE = "project:write"
FORM = "application/x-www-form-urlencoded"
EXCHANGE_FIELDS = ("client_id", "client_secret", "code", "redirect_uri")
ENVIRONMENTS = ("SAME_ENV", "PRODUCTION", "staging")
"""Valid fallback environments; the last is a custom environment of the default application."""
_GRANT_ERRORS: Mapping[str, tuple[HTTPStatus, str]] = {
    "401-invalid_code": (HTTPStatus.UNAUTHORIZED, "invalid_code"),
    "403-expired": (HTTPStatus.FORBIDDEN, "expired"),
}
"""Status and code of a refused code by shape of P32-errors."""


class GroupUpdate(msgspec.Struct, frozen=True, rename="camel"):
    """Body of an update. Other fields are ignored."""

    name: str | None = None
    fallback_environment: str | None = None


def routes(platform: Platform, prefix: str) -> list[web.RouteDef]:
    async def update_group(request: web.Request) -> web.StreamResponse:
        require_access(platform, request, GROUPS_SCOPE)
        return await _update_group(platform, request)

    async def events(request: web.Request) -> web.StreamResponse:
        installation = require_access(platform, request, EVENTS_SCOPE)
        return await _events(platform, request, installation)

    async def exchange(request: web.Request) -> web.StreamResponse:
        return await _exchange(platform, request)

    async def missing(_request: web.Request) -> web.StreamResponse:
        raise not_found("endpoint")

    return [
        web.patch(
            f"{prefix}/v1/teams/{{teamId}}/microfrontends/{{groupId}}", guarded(platform, update_group)
        ),
        web.get(f"{prefix}/v3/deployments/{{idOrUrl}}/events", guarded(platform, events)),
        web.post(f"{prefix}/v2/oauth/access_token", guarded(platform, exchange)),
        web.route("*", f"{prefix}/{{rest:.*}}", guarded(platform, missing)),
    ]


async def _update_group(platform: Platform, request: web.Request) -> web.StreamResponse:
    group = platform.groups.get(request.match_info["groupId"])
    if group is None:
        raise not_found("microfrontends group")
    body = await request.read()
    if body.strip() and request.content_type != "application/json":
        raise bad_request("the body is not JSON; expected Content-Type application/json")
    update = _parse_update(body)
    if update.name is not None and not any(map(str.isalnum, update.name)):
        raise bad_request("name is not valid; expected letters or digits")
    if update.fallback_environment not in {None, *ENVIRONMENTS}:
        raise bad_request("fallbackEnvironment is not valid; expected SAME_ENV, PRODUCTION or a custom one")
    if update.name is not None:
        group.name = update.name
        # The slug of a name without Latin letters and digits would be empty.
        group.slug = re.sub(r"[^a-z0-9]+", "-", update.name.lower()).strip("-") or group.id.lower()
    group.fallback_environment = update.fallback_environment or group.fallback_environment
    document = {"id": group.id}
    if platform.unstated.shape_of("P11") == "full":
        document |= {
            "name": group.name,
            "slug": group.slug,
            "fallbackEnvironment": group.fallback_environment,
        }
    return await send_json(platform, request, {"updatedMicrofrontendsGroup": document})


def _parse_update(body: bytes) -> GroupUpdate:
    if not body.strip():
        return GroupUpdate()
    try:
        document = msgspec.json.decode(body, type=dict[str, object])
        if None in (document.get("name", ""), document.get("fallbackEnvironment", "")):
            raise bad_request("a value is null; expected a text")
        return msgspec.convert(document, GroupUpdate)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise bad_request(f"the body is not valid: {problem}") from None


async def _events(platform: Platform, request: web.Request, installation: Installation) -> web.StreamResponse:
    try:
        deployment = platform.deployment(request.match_info["idOrUrl"])
        query = parse_query(request.query)
    except UnicodeError:
        raise bad_request("a parameter is not valid") from None
    if query.is_followed:
        return await follow(platform, request, installation, deployment, query)
    return await send_json(platform, request, shaped_events(platform, query.select(deployment.events)))


async def _exchange(platform: Platform, request: web.Request) -> web.StreamResponse:
    if request.content_type != FORM:
        raise bad_request(f"the body is not a form; expected Content-Type {FORM}")
    form = await request.post()
    fields = {name: str(form.get(name, "")) for name in EXCHANGE_FIELDS}
    missing = [name for name, value in fields.items() if not value]
    if missing:
        raise bad_request(f"missing in the form: {', '.join(missing)}")
    secrets = platform.secrets
    known = f"{secrets.client_id} {secrets.client_secret}".encode()
    try:
        if not hmac.compare_digest(f"{fields['client_id']} {fields['client_secret']}".encode(), known):
            raise invalid_grant("client_id or client_secret is wrong")
        installation = platform.installations.exchange(fields["code"], fields["redirect_uri"])
    except Refusal as refusal:
        raise _in_shape(platform, refusal) from None
    return await send_json(platform, request, _token_answer(platform, installation))


def _in_shape(platform: Platform, refusal: Refusal) -> Refusal:
    shape = _GRANT_ERRORS.get(platform.unstated.shape_of("P32-errors"))
    if refusal.code != "invalid_grant" or shape is None:
        return refusal
    return Refusal(*shape, str(refusal))


def _token_answer(platform: Platform, installation: Installation) -> dict[str, object]:
    shape = platform.unstated.shape_of("P32")
    answer: dict[str, object] = {"access_token": installation.token, "team_id": installation.team_id}
    if shape != "minimal":
        answer |= {
            "token_type": "Bearer",
            "installation_id": installation.id,
            "user_id": installation.user_id,
        }
    if shape == "extra":
        answer |= {"scope": None, "expires_in": "never", "links": [{"rel": "self"}]}
    return answer
