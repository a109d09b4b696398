"""Control page: the state of the emulated platform, and forms that change it. No scripts."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from receiver.time_range import instant_text
from trace_drain_testing.emulator.control import state_of
from trace_drain_testing.emulator.deployments import STATES
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.webhooks import TYPES

STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; }
main { max-width: 75rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 1rem 0.25rem 0; border-top: 1px solid; }
form { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: end; margin: 0.25rem 0; }
label { display: flex; flex-direction: column; font-size: 0.875rem; max-width: 100%; }
input, select, button { font: inherit; max-width: 100%; box-sizing: border-box; }
"""
HEADERS: Final = {
    # Forms may be sent to this origin only; integrations are opened by links.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def routes(platform: Platform, prefix: str) -> list[web.RouteDef]:
    pages = Environment(
        loader=PackageLoader("trace_drain_testing.emulator"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["time"] = _time_text
    template = pages.get_template("control.html")

    async def page(_request: web.Request) -> web.StreamResponse:
        text = template.render(
            state=state_of(platform),
            prefix=prefix,
            redirects=_redirects(platform),
            states=STATES,
            webhook_types=TYPES,
            faults=platform.faults.names,
            unstated=platform.unstated.shapes,
        )
        return web.Response(text=text, content_type="text/html", headers=HEADERS)

    async def style(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=STYLE, content_type="text/css", headers=HEADERS)

    return [web.get(prefix, page), web.get(f"{prefix}/style.css", style)]


def _redirects(platform: Platform) -> dict[str, str]:
    """Return the redirect URLs with codes that are not exchanged yet."""
    return {
        each.id: platform.redirect_of(each, "", "")
        for each in platform.installations.by_id.values()
        if each.state == "active" and not each.code.is_spent
    }


def _time_text(time_s: float) -> str:
    return instant_text(time_s, sep=" ", zone=" UTC")
