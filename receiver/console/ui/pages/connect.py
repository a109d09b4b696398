"""Page that connects a drain: the settings of the sender, and a check of each step of its deliveries."""

from __future__ import annotations

from typing import Final

from receiver.config.addresses import parse_address
from receiver.console.ui.page import Context
from receiver.console.ui.pages.connect_checks import (
    CONFIGURED,
    DeliveryStep,
    checks_of,
    evidence_of,
    not_configured,
    verdict,
)
from receiver.console.ui.pages.connect_new import SIGNATURES, header_of, is_configured, new_drain
from receiver.console.ui.pages.receiver import shown_refusals
from receiver.console.ui.view import View
from receiver.settings import Drain, Settings

WORDS: Final = {"done": "✓", "failed": "✕", "waiting": "…"}
"""Marks of the states; connect.js has the same."""


async def build(view: View) -> Context:
    """Return the address and headers of the chosen drain, and its check list."""
    settings, new, added = view.facts.settings, new_drain(view), _added(view)
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
        "new": new,
        "added": added if new or not is_configured(settings, added) else "",
        "new_url": endpoint_url(settings, new.drain, new.host) if new else "",
        "new_header": header_of(view),
        "signatures": SIGNATURES,
        "refusals": shown_refusals(view.facts.refusals(), drain.name),
    }


async def checks(view: View) -> list[DeliveryStep]:
    """Return the check list of the chosen drain, or of a drain that is being added."""
    settings, added = view.facts.settings, _added(view)
    if added and not is_configured(settings, added):
        return not_configured()
    drain = chosen_drain(view)
    steps = checks_of(settings, drain, await evidence_of(view, drain))
    return (
        [DeliveryStep(CONFIGURED, "done", "The receiver has loaded it."), *steps]
        if "new" in view.query
        else steps
    )


def _added(view: View) -> str:
    """Return the name of the drain that is being added; empty if none is."""
    return view.query.get("new", "") or view.query.get("wait", "")


def chosen_drain(view: View) -> Drain:
    """Return the drain that the URL names, or that was added; the first if there is none."""
    drains = {drain.name: drain for drain in view.facts.settings.drain}
    if (added := _added(view)) in drains:
        return drains[added]
    return drains[view.one_of("drain", drains, next(iter(drains)))]


def endpoint_url(settings: Settings, drain: Drain, host: str = "") -> str:
    """Return the URL for senders, with `HOST` in place of a name that only the operator knows."""
    address = parse_address(settings.listen)
    if host and (settings.behind_proxy or ":" in host):
        return f"https://{host}{drain.path}"
    if settings.behind_proxy:
        return f"https://HOST{drain.path}"
    scheme = "https" if settings.tls.cert_file else "http"
    place = f"{host or 'HOST'}:{address.port}" if host or _has_placeholder(settings) else str(address)
    return f"{scheme}://{place}{drain.path}"


def _has_placeholder(settings: Settings) -> bool:
    address = parse_address(settings.listen)
    return settings.behind_proxy or address != address.to_connect


def token_header(drain: Drain) -> tuple[str, str]:
    """Return the name of the header with the token, and the prefix of the token; empty without a token."""
    if not drain.tokens:
        return "", ""
    return drain.header, "Bearer " if drain.header.lower() == "authorization" else ""
