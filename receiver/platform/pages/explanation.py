"""Page that explains a trace: it previews the request to the model and its cost."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial

from aiohttp import web

from receiver.console.api.access import CALLER
from receiver.console.api.route import Route
from receiver.console.queries.traces.traces import normalized_trace_id
from receiver.console.ui.forms import form_of
from receiver.console.ui.page import Context, Page
from receiver.console.ui.site import Site
from receiver.console.ui.view import View
from receiver.platform.explain.conversation import CALLS_MAX, ROUNDS_MAX
from receiver.platform.explain.explainer import Explainer
from receiver.platform.explain.request import missing_settings, prepare, preview_of
from receiver.platform.explain.routes import while_connected
from receiver.platform.explain.toolbox import EVENTS_BEFORE_S, MARGIN_S


async def build(view: View) -> Context:
    """Return the preview of the explanation, or the missing settings."""
    trace_id, settings = normalized_trace_id(view.parts["id"]), view.facts.loaded.settings.platform
    context: Context = {"trace_id": trace_id, "missing": missing_settings(settings), "answer": None}
    if context["missing"]:
        return context
    preview = preview_of(await prepare(view.source, settings, trace_id), settings)
    return {
        **context,
        "preview": preview,
        "rounds_max": ROUNDS_MAX,
        "calls_max": CALLS_MAX,
        "margin_ms": MARGIN_S * 1_000,
        "events_before_ms": EVENTS_BEFORE_S * 1_000,
    }


PAGE = Page(
    "explanation",
    "/trace/{id}/explain",
    "Explain",
    "What happened in this trace?",
    build,
    is_live=True,
    role="operator",
    within_projects=True,
)


class ExplainForm:
    """Form that sends a trace to the model, for browsers without the script: the answer is a whole page."""

    def __init__(self, site: Site, explainer: Explainer) -> None:
        self._site = site
        self._explainer = explainer

    def routes(self) -> tuple[Route, ...]:
        return (Route("POST", PAGE.path, self._explain, "operator", within_projects=True),)

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        await form_of(request)
        page = PAGE._replace(build=partial(self._answered, request))
        return await while_connected(request, self._site.page(request, page, request.query))

    async def _answered(self, request: web.Request, view: View) -> Context:
        """Return the page with the answer. Raises what `Explainer.explain` raises."""
        context = await build(view)
        events = self._explainer.explain(view.source, view.parts["id"], request[CALLER].name)
        async with aclosing(events) as open_events:
            answer = [event async for event in open_events]
        struck = any(event.stated and event.stated.is_refuted for event in answer)
        return {**context, "answer": answer, "struck": struck}
