"""Page that connects a drain: the settings of the sender, and a check of each step of its deliveries."""

from __future__ import annotations

from typing import Final

from receiver.config.addresses import parse_address
from receiver.console.ui.page import Context
from receiver.console.ui.pages.connect_checks import DeliveryStep, checks_of, evidence_of, verdict
from receiver.console.ui.pages.receiver import shown_refusals
from receiver.console.ui.view import View
from receiver.settings import Drain, Settings

WORDS: Final = {"done": "✓", "failed": "✕", "waiting": "…"}
"""Marks of the states; connect.js has the same."""


async def build(view: View) -> Context:
    """Return the address and headers of the chosen drain, and its check list."""
    settings = view.facts.settings
    drain = chosen_drain(view)
    steps = await checks(view)
    return {
        "drains": [each.name for each in settings.drain],
        "drain": drain,
        "url": endpoint_url(settings, drain),
        "token_header": token_header(drain),
        "is_placeholder": _has_placeholder(settings),
        "is_self_signed": settings.tls.self_signed,
        "words": WORDS,
        "checks": steps,
        "verdict": verdict(steps),
        "refusals": shown_refusals(view.facts.refusals(), drain.name),
    }


async def checks(view: View) -> list[DeliveryStep]:
    """Return the check list of the chosen drain."""
    drain = chosen_drain(view)
    return checks_of(view.facts.settings, drain, await evidence_of(view, drain))


def chosen_drain(view: View) -> Drain:
    """Return the drain that the URL names; the first if it names none."""
    drains = {drain.name: drain for drain in view.facts.settings.drain}
    return drains[view.one_of("drain", drains, next(iter(drains)))]


def endpoint_url(settings: Settings, drain: Drain) -> str:
    """Return the URL for senders, with `HOST` in place of a name that only the operator knows."""
    address = parse_address(settings.listen)
    if settings.behind_proxy:
        return f"https://HOST{drain.path}"
    scheme = "https" if settings.tls.cert_file else "http"
    place = f"HOST:{address.port}" if _has_placeholder(settings) else str(address)
    return f"{scheme}://{place}{drain.path}"


def _has_placeholder(settings: Settings) -> bool:
    address = parse_address(settings.listen)
    return settings.behind_proxy or address != address.to_connect


def token_header(drain: Drain) -> tuple[str, str]:
    """Return the name of the header with the token, and the prefix of the token; empty without a token."""
    if not drain.tokens:
        return "", ""
    return drain.header, "Bearer " if drain.header.lower() == "authorization" else ""
