"""Page of a deployment: its build, changes of state, requests and errors on one time axis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

from receiver.console.api.source import Row
from receiver.console.queries.deployment_events import KINDS
from receiver.console.queries.filters.filter_values import attribute_text
from receiver.console.ui.charts.over_time import REQUESTS, NamedChart, red_charts
from receiver.console.ui.charts.svg import Marker
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.numbers import count, duration, parsed, percent
from receiver.console.ui.page import Context
from receiver.console.ui.pages.deployment_events import around_errors
from receiver.console.ui.view import View, term

WAIT_S: Final = 3.0
"""Time for which the page waits for a fetch."""
EVENTS_MAX: Final = 1_000
"""Maximum number of events of each kind."""
MARKERS_MAX: Final = 40
DEPLOYMENTS_MAX: Final = 100


async def build(view: View) -> Context:
    """Return the events of the time range, or only those of `kind`, and the details of the event `event`."""
    deployment, kind = view.parts["id"], view.one_of("kind", KINDS, "")
    found = await view.ask("deployments", filter=term("deployment", deployment))
    fetch = await view.facts.refresh_events(deployment, WAIT_S, view.projects)
    of_kind = {
        each: await view.ask("deployment-events", deployment=deployment, kind=each, limit=str(EVENTS_MAX))
        for each in KINDS
    }
    events = {each: answer.rows for each, answer in of_kind.items()}
    project = found.rows[0]["project"] if found.rows else ""
    is_stored = bool(found.rows) or any(events.values())
    return {
        "is_stored": is_stored,
        "status": HTTPStatus.OK if is_stored else HTTPStatus.NOT_FOUND,
        "deployment": deployment,
        "project": project,
        "fetch": fetch,
        "verdict": _verdict(events, found.rows),
        "charts": await _charts(view, deployment, events) if is_stored else (),
        "previous": await _previous(view, deployment, project) if found.rows else "",
        "kinds": {each: (len(rows), of_kind[each].is_cut) for each, rows in events.items()},
        "kind": kind,
        "rows": events[kind] if kind else _timeline(events),
        "links": {each: _link(view, kind=each) for each in ("", *KINDS)},
        "details": await _details(view, deployment),
        "traces_of": partial(_traces_of, view.facts.settings.platform.events.request_attributes),
    }


def _traces_of(keys: Sequence[str], row: Row) -> str:
    """Return a filter of the spans with an attribute that equals a request id of the event."""
    ids = [row[name] for name in ("request_id", "platform_id") if row[name]]
    return " OR ".join(term(attribute_text("span", key), each) for key in keys for each in ids)


def _link(view: View, **parameters: str) -> str:
    """Return the URL of this page with other parameters."""
    query = {**view.times, **{name: value for name, value in parameters.items() if value}}
    return f"/deployment/{quote(view.parts['id'], safe='')}?{urlencode(query, quote_via=quote)}"


def _timeline(events: dict[str, list[Row]]) -> list[Row]:
    """Return the changes of state and the failures, with the lines of the build log around its errors."""
    rows = [*events["state"], *_steps(events["build"]), *around_errors(events["build"]), *events["error"]]
    return sorted({row["id"]: row for row in rows}.values(), key=lambda row: row["time"])


def _steps(build: Sequence[Row]) -> list[Row]:
    """Return the first line of each step of a build, and its commands."""
    steps: set[tuple[str, str]] = set()
    lines = []
    for row in build:
        step = row["step_name"], row["step"]
        if step not in steps or row["type"] in {"command", "delimiter", "exit"}:
            steps.add(step)
            lines.append(row)
    return lines


def _verdict(events: dict[str, list[Row]], deployments: Sequence[Row]) -> str:
    parts = []
    if states := [row for row in events["state"] if row["ready_state"]]:
        parts.append(f"{states[-1]['ready_state']} since {parsed(states[-1]['time']):%Y-%m-%d %H:%M:%S} UTC")
    if build := events["build"]:
        length = parsed(build[-1]["time"]) - parsed(build[0]["time"])
        failed = sum(row["is_error"] for row in build)
        errors = f", {count(failed)} of them errors" if failed else ""
        lines = f"{count(len(build))} lines of its build log in {duration(length.total_seconds() * 1_000)}"
        parts.append(lines + errors)
    if spans := sum(row["spans"] for row in deployments):
        errors = percent(sum(row["errors"] for row in deployments) / spans)
        parts.append(f"{count(spans)} spans, {errors} of them failed")
    return "; ".join(parts)


async def _charts(view: View, deployment: str, events: dict[str, list[Row]]) -> list[NamedChart]:
    """Return charts of the requests, with marks at changes of state, steps of the build and its errors."""
    timeline, text = Timeline(view), term("deployment", deployment)
    red = await view.ask("red", by="deployment", filter=text, every=timeline.every, limit="1000")
    failed = [row for row in events["build"] if row["is_error"]]
    # Without failed requests, which have a chart of their own.
    marked = [*events["state"], *_steps(events["build"]), *failed][:MARKERS_MAX]
    markers = [Marker(timeline.position(row["time"]), f"{row['time']} {_label(row)}") for row in marked]
    return red_charts(view, red.rows, markers, all_of(text, REQUESTS))


def _label(row: Row) -> str:
    return str(row["ready_state"] or row["text"][:80] or row["step"] or row["type"])


async def _previous(view: View, deployment: str, project: str) -> str:
    """Return the deployment of the same project before this one; empty if there is none."""
    answer = await view.ask("deployments", filter=term("project", project), limit=str(DEPLOYMENTS_MAX))
    names = [row["deployment"] for row in answer.rows]
    before = names[names.index(deployment) + 1 :] if deployment in names else []
    return next((name for name in before if name), "")


async def _details(view: View, deployment: str) -> Context | None:
    """Return the event that the parameter `event` names, with all fields that the platform sent."""
    event = view.query.get("event", "")
    if not event:
        return None
    rows = (
        await view.source.ask("deployment-events", {**view.times, "deployment": deployment, "event": event})
    ).rows
    return (
        {**rows[0], "whole": json.dumps(json.loads(rows[0]["event"]), indent=2, ensure_ascii=False)}
        if rows
        else None
    )
