"""Start page: traffic, errors and durations by project, and regressions since the last deployment."""

from __future__ import annotations

from collections import defaultdict

from receiver.console.api.source import Row
from receiver.console.ui.charts.over_time import REQUESTS, markers_of, red_charts
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.page import Context
from receiver.console.ui.pages import connect
from receiver.console.ui.view import View, term
from receiver.errors import MalformedBody, NoSuchDeployment

PROJECTS_MAX = 50
COMPARED_MAX = 5
"""Maximum number of projects, those with the most traffic, whose last two deployments are compared."""
DEPLOYMENTS_MAX = 1_000
ROWS_MAX = 20_000


async def build(view: View) -> Context:
    """Return the projects, their deployments, and the verdicts about the newest deployment of each."""
    timeline = Timeline(view)
    red = {"by": "project", "filter": view.filter(view.filter_text)}
    projects = await view.ask("red", **red, limit=str(PROJECTS_MAX))
    over_time = await view.ask("red", **red, every=timeline.every, limit=str(ROWS_MAX))
    # The page of drains shows all projects.
    if not projects.rows and not view.projects and not await _has_spans(view):
        return {"is_new": True, **await connect.build(view)}
    deployments = await view.ask(
        "deployments", filter=view.filter(view.filter_text), limit=str(DEPLOYMENTS_MAX)
    )
    of_project: dict[str, list[Row]] = defaultdict(list)
    for row in deployments.rows:
        # Spans without a deployment have a row, which is no deployment to compare.
        if row["deployment"]:
            of_project[row["project"]].append(row)
    verdicts: dict[str, Row] = {}
    for row in projects.rows[:COMPARED_MAX]:
        newest = of_project[row["group"]][:2]
        # A deployment and its predecessor.
        if len(newest) == 2 and (comparison := await _compared(view, row["group"], *newest)):  # noqa: PLR2004
            verdicts[row["group"]] = comparison
    return {
        "is_new": False,
        "projects": projects.rows,
        "deployments": of_project,
        "verdicts": verdicts,
        "worse": {name: comparison for name, comparison in verdicts.items() if _is_worse(comparison)},
        "charts": red_charts(
            view, over_time.rows, markers_of(view, deployments.rows), all_of(view.filter_text, REQUESTS)
        ),
        "traffic": timeline.values_by_group(over_time.rows, "spans"),
        "incomplete": timeline.incomplete,
        "is_cut": projects.is_cut or over_time.is_cut,
    }


async def _has_spans(view: View) -> bool:
    """Return whether a span of the last 30 days is stored."""
    return bool((await view.source.ask("services", {"since": "30d", "limit": "1"})).rows)


async def _compared(view: View, project: str, newest: Row, before: Row) -> Row | None:
    """Compare the newest deployment with the previous one; `None` if it has too few spans."""
    try:
        filters = all_of(term("project", project), view.filter_text)
        answer = await view.ask("compare", a=before["deployment"], b=newest["deployment"], filter=filters)
    except (MalformedBody, NoSuchDeployment):
        # The deployment has no span in this range any more, or its windows are empty.
        return None
    return answer.rows[0]


def _is_worse(comparison: Row) -> bool:
    """Return whether an operation is worse or an error is new, even if other operations are better."""
    is_worse: bool = comparison["verdict"].startswith(f"{comparison['b']} is worse")
    return is_worse or comparison["totals"]["new_errors"] > 0
