"""Control API, by which tests and the control page change the emulated platform. It has no authentication."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from trace_drain_testing.emulator import control_requests as bodies
from trace_drain_testing.emulator.control_requests import is_form, read_body
from trace_drain_testing.emulator.installations import EmulatedInstallations, Installation, parse_scopes
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.refusals import answering, bad_request, not_found

Change = Callable[[Platform, web.Request], Awaitable[Any]]
"""A handler that changes the platform. Returns the document of the response."""
Action = Callable[[Platform, web.Request, Installation], Awaitable[None]]


def routes(platform: Platform, prefix: str) -> list[web.RouteDef]:
    async def show(_request: web.Request) -> web.StreamResponse:
        return web.json_response(state_of(platform))

    return [
        web.get(f"{prefix}/state", show),
        web.get(f"{prefix}/install", _changing(platform, prefix, _install_in_browser)),
        *(
            web.route(method, prefix + path, _changing(platform, prefix, change))
            for method, path, change in _CHANGES
        ),
    ]


def state_of(platform: Platform) -> dict[str, Any]:
    """Return the state of the platform, without tokens."""
    platform.installations.delete_due()
    return {
        "now": platform.clock.now_s(),
        "clock": "manual" if platform.clock.is_manual else "real",
        "team": {"id": platform.team_id, "slug": platform.team_slug, "owner": platform.owner_id},
        "projects": [asdict(each) for each in platform.projects.values()],
        "groups": [asdict(each) for each in platform.groups.values()],
        "deployments": [each.summary() for each in platform.deployments.values()],
        "installations": [each.summary() for each in platform.installations.by_id.values()],
        "emails": [asdict(each) for each in platform.installations.emails],
        "webhook_secret": platform.webhooks.secret,
        "webhooks": [each.summary() for each in platform.webhooks.sent],
        "faults": platform.faults.due,
        "unstated": platform.unstated.chosen,
        "drains": [each.summary() for each in platform.drains.drains.values()],
        "notices": list(platform.drains.notices),
    }


def _changing(
    platform: Platform, prefix: str, change: Change
) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Return a handler that responds with JSON, or redirects a form to the control page.

    Due webhooks are sent before the response, so that a test sees their effect.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        document = await change(platform, request)
        await platform.webhooks.send_due()
        if await is_form(request):
            raise web.HTTPSeeOther(prefix)
        return web.json_response(document, dumps=_json)

    return answering(handle)


def _json(document: object) -> str:
    return json.dumps(document, default=str)


async def _advance(platform: Platform, request: web.Request) -> dict[str, Any]:
    body = await read_body(request, bodies.Advance)
    platform.clock.advance(body.advance_s)
    platform.installations.delete_due()
    return {"now": platform.clock.now_s()}


async def _add_project(platform: Platform, request: web.Request) -> dict[str, Any]:
    body = await read_body(request, bodies.NewProject)
    return asdict(platform.add_project(body.id, body.name))


async def _remove_project(platform: Platform, request: web.Request) -> dict[str, Any]:
    await read_body(request, bodies.Nothing)
    platform.remove_project(request.match_info["id"])
    return {}


async def _add_deployment(platform: Platform, request: web.Request) -> dict[str, Any]:
    body = await read_body(request, bodies.NewDeployment)
    return platform.add_deployment(body.id, body.project, body.url).summary()


async def _add_events(platform: Platform, request: web.Request) -> dict[str, Any]:
    deployment = platform.deployment(request.match_info["id"])
    if await is_form(request):
        fields = await read_body(request, dict[str, str])
        payload = {"text": fields.get("text", "")}
        events: list[dict[str, Any]] = [{"type": fields.get("type", "stdout"), "payload": payload}]
    else:
        events = await read_body(request, list[dict[str, Any]])
    return {"events": deployment.add(events, platform.clock.now_ms())}


async def _set_state(platform: Platform, request: web.Request) -> dict[str, Any]:
    deployment = platform.deployment(request.match_info["id"])
    body = await read_body(request, bodies.NewState)
    deployment.set_state(body.state, platform.clock.now_ms())
    return deployment.summary()


async def _install(platform: Platform, request: web.Request) -> dict[str, Any]:
    body = await read_body(request, bodies.NewInstallation)
    made, redirect = _installed(platform, body)
    return {"id": made.id, "code": made.code.text, "redirect": redirect}


def _installed(platform: Platform, body: bodies.NewInstallation) -> tuple[Installation, str]:
    """Install the integration. Return the installation, and the URL to which the browser is redirected."""
    made = platform.install(
        is_team=body.team, scopes=body.scopes, redirect_uri=body.redirect_uri, webhook_url=body.webhook_url
    )
    return made, platform.redirect_of(made, body.state, body.next)


async def _install_in_browser(platform: Platform, request: web.Request) -> None:
    """Install the integration at once, and send the browser to the address of the integration."""
    fields: dict[str, Any] = dict(request.query)
    if "scopes" in fields:
        fields["scopes"] = fields["scopes"].replace(",", " ").split()
    try:
        body = msgspec.convert(fields, bodies.NewInstallation, strict=False)
    except msgspec.ValidationError as problem:
        raise bad_request(f"a parameter is not valid: {problem}") from None
    _, redirect = _installed(platform, body)
    raise web.HTTPFound(redirect)


async def _act_on_installation(platform: Platform, request: web.Request) -> dict[str, Any]:
    installation = platform.installations.find(request.match_info["id"])
    action = _ACTIONS.get(request.match_info["action"])
    if action is None:
        raise not_found(f"action; expected one of {', '.join(_ACTIONS)}")
    await action(platform, request, installation)
    return installation.summary()


def _without_body(change: Callable[[EmulatedInstallations, Installation], None]) -> Action:
    async def act(platform: Platform, request: web.Request, installation: Installation) -> None:
        await read_body(request, bodies.Nothing)
        change(platform.installations, installation)

    return act


async def _request_scopes(platform: Platform, request: web.Request, installation: Installation) -> None:
    body = await read_body(request, bodies.ScopeRequest)
    platform.installations.request_scopes(installation, parse_scopes(body.scopes), body.note)


async def _confirm_scopes(platform: Platform, request: web.Request, installation: Installation) -> None:
    body = await read_body(request, bodies.Confirmation)
    platform.installations.confirm_scopes(installation, body.user)


async def _add_fault(platform: Platform, request: web.Request) -> dict[str, Any]:
    body = await read_body(request, bodies.NewFault)
    platform.faults.add(body.name, body.count)
    # This fault changes the installations at once; no request uses it up.
    if platform.faults.take("ownership-lost"):
        platform.lose_ownership()
    return {"due": platform.faults.due}


async def _switch(platform: Platform, request: web.Request) -> dict[str, str]:
    platform.unstated.switch(await read_body(request, dict[str, str]))
    return platform.unstated.chosen


async def _send_webhook(platform: Platform, request: web.Request) -> dict[str, Any]:
    body = await read_body(request, bodies.NewWebhook)
    if not body.url:
        return {"sent": platform.send(body.type, body.payload)}
    parts = urlsplit(body.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise bad_request("url is not valid; expected an http or https URL")
    platform.webhooks.add(body.type, body.payload, body.url, None)
    return {"sent": 1}


_ACTIONS = {
    "disable": _without_body(EmulatedInstallations.disable),
    "transfer": _without_body(EmulatedInstallations.transfer),
    "remove": _without_body(EmulatedInstallations.remove),
    "request-scopes": _request_scopes,
    "confirm-scopes": _confirm_scopes,
}
_CHANGES: tuple[tuple[str, str, Change], ...] = (
    ("POST", "/clock", _advance),
    ("POST", "/projects", _add_project),
    ("DELETE", "/projects/{id}", _remove_project),
    ("POST", "/projects/{id}/remove", _remove_project),
    ("POST", "/deployments", _add_deployment),
    ("POST", "/deployments/{id}/events", _add_events),
    ("POST", "/deployments/{id}/state", _set_state),
    ("POST", "/installations", _install),
    ("POST", "/installations/{id}/{action}", _act_on_installation),
    ("POST", "/faults", _add_fault),
    ("POST", "/unstated", _switch),
    ("POST", "/webhooks", _send_webhook),
)
"""Method, path and handler. A form, which cannot send DELETE, removes a project by POST."""
