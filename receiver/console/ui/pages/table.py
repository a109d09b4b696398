"""The table of pages. A new page is an entry here, a module that builds it, and a template of its name.

Another area adds pages by `receiver.console.extension`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.console.ui.page import Page
from receiver.console.ui.pages import (
    compare,
    connect,
    connect_new,
    dead_letter,
    deployment,
    errors,
    overview,
    receiver,
    service_map,
    services,
    sql,
    tail,
    trace,
    trace_comparison,
    trace_views,
    views,
)
from receiver.console.ui.parameters import CHART, FILTER
from receiver.console.ui.search import search

_ALL: Final = (
    Page("overview", "/", "Overview", "What got worse?", overview.build, "o", parameters=(FILTER,)),
    Page(
        "search",
        "/search",
        "Search",
        "Which traces?",
        search.build,
        "s",
        parameters=(FILTER, "selection", "sort", "columns", "facet", "add", *CHART),
        has_filter_form=True,
        redirect=search.record_url,
    ),
    Page(
        "services",
        "/services",
        "Services",
        "Which services are slow or fail?",
        services.build,
        "v",
        parameters=(FILTER, "service", "operation", "sort"),
    ),
    Page(
        "map",
        "/map",
        "Map",
        "Which services call each other, and how well?",
        service_map.build,
        "m",
        parameters=(FILTER, "focus", "levels"),
    ),
    Page("errors", "/errors", "Errors", "What fails?", errors.build, "e", parameters=(FILTER, "sort")),
    Page(
        "compare",
        "/compare",
        "Compare",
        "Is B worse than A?",
        compare.build,
        "c",
        parameters=(FILTER, "a", "b", "first", "sort"),
    ),
    Page(
        "tail",
        "/tail",
        "Tail",
        "What arrives now?",
        tail.build,
        "t",
        is_live=True,
        parameters=(FILTER,),
        has_filter_form=True,
    ),
    Page(
        "sql",
        "/sql",
        "SQL",
        "What do the tables hold?",
        sql.build,
        "q",
        is_live=True,
        role="operator",
        parameters=("q", "show"),
    ),
    Page(
        "receiver",
        "/receiver",
        "Receiver",
        "Is anything missing?",
        receiver.build,
        "r",
        is_live=True,
        parameters=("period", "result"),
    ),
    Page(
        "connect",
        "/connect",
        "Connect",
        "Is my drain connected?",
        connect.build,
        "n",
        is_live=True,
        parameters=("drain", *connect_new.PARAMETERS),
    ),
    Page(
        "views",
        "/views",
        "Views",
        "Which views are saved?",
        views.build,
        is_live=True,
        parameters=("save", "result"),
    ),
    Page(
        "dead-letter",
        "/receiver/dead/{id}",
        "Dead letter",
        "Why is this not stored?",
        dead_letter.build,
        is_live=True,
        parameters=("confirm",),
    ),
    Page(
        "deployment",
        "/deployment/{id}",
        "Deployment",
        "How did this deployment go?",
        deployment.build,
        parameters=("kind", "event"),
    ),
    Page(
        "trace",
        "/trace/{id}",
        "Trace",
        "Why was this slow or wrong?",
        trace.build,
        is_live=True,
        parameters=("span", "row", "linking", *trace_views.PARAMETERS),
    ),
    Page(
        "trace_comparison",
        "/trace/{id}/with/{other}",
        "Two traces",
        "What differs between these traces?",
        trace_comparison.build,
        is_live=True,
        parameters=("row", "a", "b", "below_a", "below_b"),
    ),
)
_WITH_PICKERS: Final = frozenset(("overview", "search", "services", "map", "errors", "compare", "tail"))
"""Pages that a project and a deployment restrict."""
_WITHIN_PROJECTS: Final = _WITH_PICKERS | {"deployment", "trace", "trace_comparison", "views"}
"""Pages that read all spans with `View.ask` and `View.source`; `views` shows the views of the projects."""
PAGES: Final[Mapping[str, Page]] = {
    page.name: page._replace(
        within_projects=page.name in _WITHIN_PROJECTS,
        has_pickers=page.name in _WITH_PICKERS,
        is_record="{" in page.path,
    )
    for page in _ALL
}
"""Name → page, in the order of the navigation."""
