"""Tokens and costs of an explanation, before it begins and after it has ended."""

from __future__ import annotations

from typing import Final

import msgspec

from receiver.console.tools.mcp.result import CHARACTERS_PER_TOKEN
from receiver.platform.explain.redaction import counted_marks
from receiver.platform.explain.request import Prepared, body_of, tokens_of
from receiver.settings import Explain, Platform

ANSWER_CHARACTERS_MAX: Final = 24_000
"""Maximum length of the answer in all rounds together; a longer answer is cut."""
_MILLION: Final = 1e6


class Preview(msgspec.Struct, frozen=True):
    """What would be sent, and what that may cost."""

    gateway: str
    model: str
    bytes: int
    """Size of the first request."""
    tokens: int
    """Tokens of the first request without its image, by a cautious estimate."""
    image_bytes: int
    redacted: int
    """Number of texts that are replaced because they look like secrets."""
    redacted_by: dict[str, int]
    """Number of these texts for each rule, the most frequent rule first."""
    tokens_max: int
    """Tokens of all requests together."""
    cost: float | None
    """Cost of the first request; `None` without prices."""
    cost_max: float | None
    """Cost of all requests and of the longest answer."""
    body: str
    """The first request, as it is sent."""


class Usage(msgspec.Struct, frozen=True):
    """What an explanation has used."""

    input_tokens: int
    output_tokens: int
    is_estimated: bool
    """Whether the gateway did not count the tokens."""
    cost: float | None


def preview_of(prepared: Prepared, settings: Platform) -> Preview:
    """Return what would be sent, and what that may cost."""
    explain, body, tokens = settings.explain, body_of(prepared.request), tokens_of(prepared.request)
    # Those of the user's message only: the instructions explain the mark.
    redacted_by = counted_marks(msgspec.json.encode(prepared.request.messages[1]).decode())
    return Preview(
        settings.gateway_url,
        explain.model,
        len(body),
        tokens,
        prepared.image_bytes,
        sum(redacted_by.values()),
        redacted_by,
        explain.tokens_max,
        cost_of(explain, tokens, 0),
        cost_of(explain, explain.tokens_max, ANSWER_CHARACTERS_MAX // CHARACTERS_PER_TOKEN),
        body.decode(),
    )


def cost_of(settings: Explain, input_tokens: int, output_tokens: int) -> float | None:
    """Return the cost of tokens; `None` unless both prices are set."""
    if settings.input_price is None or settings.output_price is None:
        return None
    return (input_tokens * settings.input_price + output_tokens * settings.output_price) / _MILLION
