"""The table of pages. A new page is an entry here, a module that builds it, and a template of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.ui import (
    compare,
    connect,
    dead_letter,
    deployment,
    errors,
    overview,
    platform,
    receiver,
    search,
    service_map,
    services,
    sql,
    tail,
    trace,
    trace_comparison,
)
from receiver.ui.page import Page
from receiver.ui.view import View

_ALL: Final = (
    Page("overview", "/", "Overview", "What got worse?", overview.build, "o"),
    Page("search", "/search", "Search", "Which traces?", search.build, "s"),
    Page("services", "/services", "Services", "Which services are slow or fail?", services.build, "v"),
    Page("map", "/map", "Map", "Which services call each other, and how well?", service_map.build, "m"),
    Page("errors", "/errors", "Errors", "What fails?", errors.build, "e"),
    Page("compare", "/compare", "Compare", "Is B worse than A?", compare.build, "c"),
    Page("tail", "/tail", "Tail", "What arrives now?", tail.build, "t", is_live=True),
    Page("sql", "/sql", "SQL", "What do the tables hold?", sql.build, "q", is_live=True, role="operator"),
    Page("receiver", "/receiver", "Receiver", "Is anything missing?", receiver.build, "r", is_live=True),
    Page("connect", "/connect", "Connect", "Is my drain connected?", connect.build, "n", is_live=True),
    Page(
        "platform",
        "/platform",
        "Platform",
        "Is the integration installed?",
        platform.build,
        "p",
        is_live=True,
    ),
    Page(
        "dead-letter",
        "/receiver/dead/{id}",
        "Dead letter",
        "Why is this not stored?",
        dead_letter.build,
        is_live=True,
    ),
    Page("deployment", "/deployment/{id}", "Deployment", "How did this deployment go?", deployment.build),
    Page("trace", "/trace/{id}", "Trace", "Why was this slow or wrong?", trace.build, is_live=True),
    Page(
        "trace_comparison",
        "/trace/{id}/with/{other}",
        "Two traces",
        "What differs between these traces?",
        trace_comparison.build,
        is_live=True,
    ),
)
_WITH_PICKERS: Final = frozenset(("overview", "search", "services", "map", "errors", "compare", "tail"))
"""Pages that a project and a deployment restrict."""
_WITHIN_PROJECTS: Final = _WITH_PICKERS | {"deployment", "trace", "trace_comparison"}
"""Pages that show only what they read with `View.ask` and `View.source`."""
PAGES: Final[Mapping[str, Page]] = {
    page.name: page._replace(
        within_projects=page.name in _WITHIN_PROJECTS, has_pickers=page.name in _WITH_PICKERS
    )
    for page in _ALL
}
"""Name → page, in the order of the navigation."""


def pages_for(view: View) -> dict[str, Page]:
    """Return the pages that the caller may open."""
    return {name: page for name, page in PAGES.items() if page.within_projects or not view.projects}
