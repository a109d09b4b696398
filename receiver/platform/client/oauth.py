"""Exchange of the code of an installation for an access token.

A code is valid for 30 minutes and for one exchange. The exchange is never repeated, because the code may be
used up even if no response arrived.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec

from receiver.http.media_types import FORM
from receiver.platform.client.answers import PLATFORM
from receiver.platform.client.errors import (
    AnswerCut,
    CodeRejected,
    ConfigurationDisabled,
    Rejected,
    TryLater,
    WrongShape,
)
from receiver.platform.client.http_calls import HttpCaller, Request
from receiver.platform.client.json_text import converted, parse_object


class Token(msgspec.Struct, frozen=True, kw_only=True):
    access_token: str
    team_id: str | None = None
    """Team on which the integration is installed; `None` for an account."""
    fields: dict[str, Any] = {}
    """Further fields of the response."""

    def __repr__(self) -> str:
        # Without the token: representations reach logs and test reports.
        return f"Token(team_id={self.team_id!r})"


async def exchange(  # noqa: PLR0913 - the parameters of the specification
    base_url: str,
    client_id: str,
    client_secret: str,
    code: str,
    redirect_uri: str,
    *,
    timeout_s: float = 30.0,
) -> Token:
    """Exchange a code for a token. Raises `CodeRejected` if the platform refuses the code."""
    form = {
        "client_id": client_id,
        "client_secret": client_secret,
        "code": code,
        "redirect_uri": redirect_uri,
    }
    request = Request(
        "POST", ("v2", "oauth", "access_token"), body=urlencode(form).encode(), content_type=FORM
    )
    try:
        async with HttpCaller(PLATFORM, base_url, timeout_s=timeout_s) as caller:
            body = await caller.call(request, (client_secret, code))
    except ConfigurationDisabled:
        raise
    except Rejected as refusal:
        outcome = f"HTTP {refusal.status} {refusal.code}".rstrip()
        # Whatever the status, because errors of the exchange are not specified.
        raise CodeRejected(
            f"{PLATFORM.name} refused the exchange of the code ({outcome}): a code "
            "is valid for 30 minutes and for one exchange, with the client id, the client secret and the "
            "redirect address of the integration; check them, and start the installation again",
            status=refusal.status,
            code=refusal.code,
        ) from None
    except (TryLater, AnswerCut) as failure:
        # The class is unchanged; the text says not to send the same code again.
        failure.args = (f"{failure.reason}; the code may be used up: start the installation again",)
        raise
    return _token(body)


def _token(body: bytes) -> Token:
    what = "the answer to the exchange"
    answer = parse_object(body, what)
    token = converted({**answer, "fields": {}}, Token, what)
    if not token.access_token:
        raise WrongShape(f"{what} has an empty access_token")
    kept = {name: value for name, value in answer.items() if name not in {"access_token", "team_id"}}
    return msgspec.structs.replace(token, fields=kept)
