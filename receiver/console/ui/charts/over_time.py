"""Charts of a page over its time range: rate, errors and durations of requests, and marks at deployments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from receiver.console.api.source import Row
from receiver.console.ui import numbers
from receiver.console.ui.charts.svg import Box, Marker, Series, Unit, line_chart
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.numbers import parsed
from receiver.console.ui.view import View, instant

REQUESTS: Final = "(kind=server OR kind=consumer OR root)"
"""Filter of the spans that the query `red` counts as requests."""
HUES: Final = (0, 3, 4, 5, 7, 6, 10, 8, 9, 11)
"""Colours of groups, by their number in the style sheet; green and red have a meaning and are not used."""
GROUPS_MAX: Final = 6
"""Maximum number of lines of a chart by group, those of the largest groups."""
MARKED_MAX: Final = 40
"""Maximum number of deployments that a chart marks, the newest."""
DEPLOYMENTS_MAX: Final = 1_000
THIRD: Final = Box(400, 120)
"""One of three charts side by side."""
COUNT: Final = Unit(numbers.count, 1)
PER_MINUTE: Final = Unit("{:,.4g}/min".format)
PERCENT: Final = Unit(numbers.percent)
DURATION: Final = Unit(numbers.duration)
NUMBER: Final = Unit("{:,.6g}".format)
_PERCENTILES: Final = ("p50", "p95", "p99")


class NamedChart(NamedTuple):
    """A chart with its heading and the names of its lines."""

    title: str
    chart: Markup
    legend: Sequence[tuple[str, str]] = ()
    """Name and class of each line; empty for a single line."""


async def deployment_markers(view: View, filters: str) -> list[Marker]:
    """Return marks at the first spans of the deployments that are new in the page's time range."""
    # A deployment that sent spans shortly before is not new.
    before = instant(max(0.0, view.begin_s - view.seconds))
    found = await view.ask("deployments", since=before, filter=filters, limit=str(DEPLOYMENTS_MAX))
    return markers_of(view, found.rows)


def markers_of(view: View, rows: Iterable[Row]) -> list[Marker]:
    """Return marks at the beginning of deployments, which are rows of `deployments`."""
    timeline = Timeline(view)
    first_of: dict[str, str] = {}
    for row in rows:
        first = first_of.get(row["deployment"], row["first_seen"])
        first_of[row["deployment"]] = min(first, row["first_seen"])
    new = [
        Marker(
            timeline.position(first),
            f"{deployment} since {parsed(first):%Y-%m-%d %H:%M:%S} UTC",
            deployment[: len("dpl_") + 6],
            view.deployment_link(deployment),
        )
        for deployment, first in first_of.items()
        if deployment and view.begin_s < parsed(first).timestamp() < view.end_s
    ]
    return sorted(new, key=lambda marker: -marker.position)[:MARKED_MAX]


def red_charts(
    view: View, rows: Sequence[Row], markers: Sequence[Marker], filter_text: str
) -> list[NamedChart]:
    """Return charts of rate, errors and durations of the lines of `red` over time.

    `filter_text`: of the spans behind the charts. Several groups have a line each, a single group a line for
    each percentile.
    """
    timeline = Timeline(view)
    of_group: dict[str, list[Row]] = {}
    for row in rows:
        of_group.setdefault(row["group"], []).append({**row, "rate": row["rate_per_s"] * 60})
    groups = dict(list(of_group.items())[:GROUPS_MAX])
    links = timeline.links(filter_text)
    is_single = len(groups) <= 1

    def lines(field: str, missing: float | None, kind: str = "") -> list[Series]:
        return [
            Series(
                group or "(none)" if not is_single else field.removesuffix("_ms").replace("_", " "),
                timeline.values(of_rows, field, missing),
                kind or f"hue{hue}",
                incomplete=timeline.incomplete,
                links=links,
            )
            for hue, (group, of_rows) in zip(HUES, groups.items(), strict=False)
        ]

    if is_single:
        latency = [
            line
            for kind, name in zip(("hue5", "hue0", "hue4"), _PERCENTILES, strict=True)
            for line in lines(f"{name}_ms", None, kind)
        ]
    else:
        latency = lines("p95_ms", None)
    of = "" if is_single else "95 % of the requests take up to"
    return [
        _named("Requests per minute", lines("rate", 0.0), PER_MINUTE, timeline, markers),
        _named("Failed", lines("error_rate", None, "error" if is_single else ""), PERCENT, timeline, markers),
        _named(of or "Durations", latency, DURATION, timeline, markers),
    ]


def _named(
    title: str, lines: Sequence[Series], unit: Unit, timeline: Timeline, markers: Sequence[Marker]
) -> NamedChart:
    chart = line_chart(f"{title}, over time", lines, timeline.axes(unit), markers, box=THIRD)
    return NamedChart(title, chart, [(line.name, line.kind) for line in lines] if len(lines) > 1 else ())
