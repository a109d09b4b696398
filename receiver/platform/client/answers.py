"""Errors of unsuccessful responses: the class and the advice for each status, with the name of the server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from receiver.platform.client.errors import (
    ConfigurationDisabled,
    Forbidden,
    InvalidRequest,
    NotAuthorized,
    NotFound,
    PlatformError,
    RateLimited,
    Redirected,
    Rejected,
    ServerFailed,
    TryLater,
    WrongAnswer,
)
from receiver.platform.client.json_text import parse
from receiver.platform.client.retries import parse_retry_after
from receiver.printable import HIDDEN
from receiver.settings import KIB

ERROR_BYTES_MAX = 64 * KIB
"""Size up to which the body of an error is read."""
QUOTED_CHARS_MAX = 200
"""Length up to which an error quotes the message of the server."""
DISABLED_CODE = "integration_configuration_disabled"
TEAM_CODE = "missing_team_param"
_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ERROR_OF: Final[dict[int, tuple[type[PlatformError], str]]] = {
    400: (InvalidRequest, "a value of the request is not valid: correct it"),
    401: (NotAuthorized, "the token or key is not accepted: expected a valid one from {secret_from}"),
    403: (Forbidden, "the token may not access this: check its team, its scopes and the plan of the team"),
    402: (Rejected, "the plan or the payments of the team do not cover this: check them on the platform"),
    404: (NotFound, "{not_found}"),
    410: (Rejected, "it does not exist any more: check the id"),
    429: (RateLimited, "too many calls: try again {later}"),
}

_DISABLED: Final = (
    ConfigurationDisabled,
    (
        "the configuration of the integration is disabled, and every call fails: an owner of the "
        "integration must transfer it to a member of the team within 30 days"
    ),
)
_ERROR_OF_CODE: Final[dict[tuple[int, str], tuple[type[PlatformError], str]]] = {
    # The specified status, and those that may replace it.
    **{(status, DISABLED_CODE): _DISABLED for status in (403, 402, 410)},
    (400, TEAM_CODE): (
        InvalidRequest,
        "the call needs the team: set platform.team (--team) or platform.slug (--slug)",
    ),
}


@dataclass(frozen=True, slots=True)
class Remote:
    """A server, as messages name it."""

    name: str
    address_from: str
    secret_from: str
    not_found: str
    """Meaning of a 404, and the action."""


PLATFORM: Final = Remote(
    "the platform",
    "platform.base_url or --base-url",
    "platform.token_file or --token-file",
    "there is no such resource, or it belongs to another team: check the id and the team",
)
GATEWAY: Final = Remote(
    "the gateway",
    "platform.gateway_url or --gateway-url",
    "platform.api_key_file or --api-key-file",
    "there is no such model, or the address is wrong: `trace-drain platform models` lists the models",
)


async def error_of(
    answer: aiohttp.ClientResponse, remote: Remote, secrets: Sequence[str], now_s: float
) -> PlatformError:
    """Return the error of an answer whose status is not 200. `secrets`: texts that the error hides."""
    body = await _beginning(answer)
    code, message = _code_and_message(_parsed(body), secrets)
    kind, advice = _kind_and_advice(answer.status, body)
    retry_after_s = parse_retry_after(answer.headers.get("Retry-After"), now_s)
    outcome = f"{remote.name} answered {answer.status}{f' {code}' if code else ''}"
    later = "later" if retry_after_s is None else f"in {retry_after_s:.0f} s"
    help_text = advice.format(
        secret_from=remote.secret_from,
        address_from=remote.address_from,
        later=later,
        not_found=remote.not_found,
        why=": the message of the server has the reason" if message else ", and the server gave no reason",
    )
    error = kind(f"{outcome}{_quoted(message)}", status=answer.status, code=code, advice=help_text)
    if isinstance(error, TryLater):
        error.retry_after_s = retry_after_s
    return error


async def _beginning(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_chunked(ERROR_BYTES_MAX):
        body += piece
        if len(body) >= ERROR_BYTES_MAX:
            # The rest is not read, so the connection cannot be reused.
            answer.close()
            break
    return bytes(body[:ERROR_BYTES_MAX])


def _kind_and_advice(status: int, body: bytes) -> tuple[type[PlatformError], str]:
    for (with_status, code), known in _ERROR_OF_CODE.items():
        # The form of error bodies is not specified, only the code.
        if status == with_status and code.encode() in body:
            return known
    if status in _ERROR_OF:
        return _ERROR_OF[status]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerFailed, "the server failed: try again {later}"
    if status >= HTTPStatus.BAD_REQUEST:
        return Rejected, "the request is refused{why}"
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        return Redirected, "redirects are not followed, to keep the token: correct {address_from}"
    return WrongAnswer, "expected 200: check {address_from}"


def error_in(content: dict[str, Any], remote: Remote, secrets: Sequence[str]) -> PlatformError | None:
    """Return the error in a response with status 200; `None` if it has none."""
    if not content.get("error"):
        return None
    code, message = _code_and_message(content, secrets)
    outcome = f"{remote.name} ended the answer with an error{f' {code}' if code else ''}{_quoted(message)}"
    return ServerFailed(outcome, code=code, advice="try again, or use another model")


def _quoted(message: str) -> str:
    cut = f"{message[:QUOTED_CHARS_MAX]}…" if len(message) > QUOTED_CHARS_MAX else message
    return f" ({cut})" if cut else ""


def _parsed(body: bytes) -> dict[str, Any]:
    """Return the object of an error's body; an empty one if it has none."""
    try:
        content = parse(body, "the error")
    except WrongAnswer:
        return {}
    return content if isinstance(content, dict) else {}


def _code_and_message(content: dict[str, Any], secrets: Sequence[str]) -> tuple[str, str]:
    """Return the code and the message of an error without secrets, each empty if there is none."""
    inner = content.get("error")
    # A text counts as a code, or as a message if it has characters that no code has.
    code, message = _texts(inner if isinstance(inner, dict) else {"code": inner, "message": inner})
    outer_code, outer_message = _texts(content)
    code = code or outer_code
    message = "" if message == code and _CODE.fullmatch(code) else message
    code = code if _CODE.fullmatch(code) else ""
    # Before the texts are cut, because a part of a secret would not match.
    return _hidden(code, secrets), _hidden(" ".join((message or outer_message).split()), secrets)


def _texts(content: dict[str, Any]) -> tuple[str, str]:
    code, message = (
        next((content[key] for key in keys if isinstance(content.get(key), str)), "")
        for keys in (("code",), ("message", "error_description"))
    )
    return code, message


def _hidden(text: str, secrets: Sequence[str]) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, HIDDEN)
    return text
