"""Bodies of the control API. The forms of the control page send the same fields."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web

from trace_drain_testing.emulator.installations import SCOPES
from trace_drain_testing.emulator.refusals import bad_request
from trace_drain_testing.emulator.switches import FAULT_COUNT_MAX

FORM = "application/x-www-form-urlencoded"
ADVANCE_S_MAX = 10 * 365 * 86_400
Kind = TypeVar("Kind")


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body in which an unknown field is an error."""


class Advance(_Body, frozen=True):
    """Time by which the clock advances."""

    advance_s: Annotated[float, msgspec.Meta(ge=0, le=ADVANCE_S_MAX)]


class NewProject(_Body, frozen=True):
    """A project. Without an id the platform chooses it."""

    name: str
    id: str = ""


class NewDeployment(_Body, frozen=True):
    """A deployment. Without an id or host name the platform chooses it."""

    project: str
    id: str = ""
    url: str = ""


class NewState(_Body, frozen=True):
    state: str


class NewInstallation(_Body, frozen=True):
    redirect_uri: str
    webhook_url: str = ""
    scopes: tuple[str, ...] = SCOPES
    team: bool = True
    state: str = ""
    next: str = ""


class ScopeRequest(_Body, frozen=True):
    """All scopes that an installation should have, and a note to its users."""

    scopes: tuple[str, ...]
    note: str = ""


class Confirmation(_Body, frozen=True):
    """The user that confirms; empty means every user that must confirm."""

    user: str = ""


class Nothing(_Body, frozen=True):
    """A body without fields."""


class NewFault(_Body, frozen=True):
    """A fault, and how many times to inject it. 0 ends it."""

    name: str
    count: Annotated[int, msgspec.Meta(ge=0, le=FAULT_COUNT_MAX)] = 1


class NewWebhook(_Body, frozen=True):
    """A webhook to send now. Without a URL it is sent to each installation with a webhook URL."""

    type: str
    payload: dict[str, Any] = {}
    url: str = ""


async def read_body(request: web.Request, kind: type[Kind]) -> Kind:
    """Parse the body, which is JSON or a form. Raises `Refusal`."""
    try:
        if await is_form(request):
            return msgspec.convert(await _form(request), kind, strict=False)
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise bad_request(f"the body is not valid: {problem}") from None


async def is_form(request: web.Request) -> bool:
    """Return whether the body is a form. By default, curl labels JSON as a form, too."""
    return request.content_type == FORM and not (await request.read()).lstrip().startswith((b"{", b"["))


async def _form(request: web.Request) -> dict[str, Any]:
    """Return the fields of a form that are not empty; scopes are separated by spaces or commas."""
    values = {name: str(value).strip() for name, value in (await request.post()).items()}
    fields: dict[str, Any] = {name: value for name, value in values.items() if value}
    if "scopes" in fields:
        fields["scopes"] = fields["scopes"].replace(",", " ").split()
    return fields
