"""Page that explains a trace: first what would be sent to the model, and what that may cost."""

from __future__ import annotations

from receiver.console.queries.traces.traces import normalized_trace_id
from receiver.console.ui.page import Context, Page
from receiver.console.ui.view import View
from receiver.platform.explain.conversation import CALLS_MAX, ROUNDS_MAX
from receiver.platform.explain.prices import preview_of
from receiver.platform.explain.request import missing_settings, prepare
from receiver.platform.explain.toolbox import EVENTS_BEFORE_S, MARGIN_S


async def build(view: View) -> Context:
    """Return the first request about the trace; or which settings are missing."""
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
