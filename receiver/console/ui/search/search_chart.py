"""Chart of the search page: matching spans by status, or a measure by fields and attributes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from receiver.console.api.source import Row
from receiver.console.queries.aggregates.chart import MEASURES, TOP_DEFAULT
from receiver.console.queries.filters.filter_values import attribute_text
from receiver.console.queries.group_key import FIELDS
from receiver.console.ui.charts import over_time
from receiver.console.ui.charts.svg import LOW, Marker, Series, line_chart, stacked_bars
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.page import Context
from receiver.console.ui.search.facets import KEYS
from receiver.console.ui.templating import sentence
from receiver.console.ui.view import View, term
from receiver.errors import MalformedBody

TOPS: Final = ("3", "5", str(TOP_DEFAULT), "10")
DRAWN: Final = ("lines", "bars")
OFFERED: Final = (
    ("error_rate", "deployment", "failed by deployment"),
    ("p95", "http.route", "p95 by route"),
    ("p95", "http.route,deployment", "p95 by route and deployment"),
    ("rate", "service", "rate by service"),
)
"""Charts that a click shows: measure, keys and label."""
_UNITS: Final = {
    **dict.fromkeys(("spans", "errors"), over_time.COUNT),
    "rate": over_time.PER_MINUTE,
    "error_rate": over_time.PERCENT,
    **dict.fromkeys(("p50", "p95", "p99", "max"), over_time.DURATION),
}
LABELS: Final = {"error_rate": "failed"}
LINES_MAX: Final = 20_000
_SCOPES: Final = ("span", "resource", "scope", "instrumentation")
_ADDED_UP: Final = ("spans", "rate", "errors")
"""Measures whose values of all groups add up to the value of all spans."""


class ChartedGroup(NamedTuple):
    """A group of the chart: a row of its table."""

    name: str
    kind: str
    """Class of its line in the style sheet."""
    value: str
    spans: int
    share: float
    """Share of the measure, or of the spans if the values of a measure do not add up."""
    filter: str


async def search_chart(view: View, text: str, selection: str, latency: Sequence[Row]) -> Context:
    """Return the chart of the matching spans. `latency`: lines of the query `latency` of these spans."""
    filters = view.filter(text, selection)
    is_default = not (view.query.get("measure") or view.query.get("by"))
    form = {
        "measure": view.query.get("measure", ""),
        "by": view.query.get("by", ""),
        "top": view.one_of("top", TOPS, str(TOP_DEFAULT)),
        "draw": view.one_of("draw", DRAWN, DRAWN[0]),
        "tops": TOPS,
        "drawn": DRAWN,
        "measures": MEASURES,
        "keys": (*(key for key in FIELDS if key != "name"), *(key for key in KEYS if key not in FIELDS)),
        "offered": OFFERED,
        "error": "",
        "close_keys": (),
    }
    if is_default:
        markers = await over_time.deployment_markers(view, view.filter(text))
        return {**form, "chart": _histogram(view, text, latency, markers), "groups": ()}
    asked = {
        "measure": view.query.get("measure") or "spans",
        "by": view.query.get("by", ""),
        "top": str(form["top"]),
    }
    every = Timeline(view).every
    try:
        found, markers = await asyncio.gather(
            view.ask("chart", **asked, every=every, spans="all", filter=filters, limit=str(LINES_MAX)),
            over_time.deployment_markers(view, filters),
        )
    except MalformedBody as error:
        if error.field not in asked:
            raise
        return {**form, "error": sentence(str(error)), "chart": None, "groups": ()}
    chart = GroupChart(view, all_of(text, selection), asked["measure"], asked["by"])
    groups = chart.groups(found.rows)
    adds_up = asked["measure"] in _ADDED_UP or asked["measure"].startswith("sum:")
    is_stacked = form["draw"] == "bars" and adds_up
    return {
        **form,
        "close_keys": found.close_keys,
        "groups": groups,
        "adds_up": adds_up,
        "heads": [key for key in asked["by"].split(",") if key],
        "value_head": LABELS.get(asked["measure"], asked["measure"]),
        "share_head": "share" if asked["measure"] in _ADDED_UP else "share of spans",
        "chart": chart.drawn(found.rows, groups, markers, is_stacked=is_stacked) if groups else None,
    }


def _histogram(view: View, text: str, rows: Sequence[Row], markers: Sequence[Marker]) -> Markup:
    """Return the numbers of spans by status, from their numbers by duration."""
    timeline = Timeline(view)
    failed, others = [0.0] * timeline.count, [0.0] * timeline.count
    for row in rows:
        index = int(timeline.position(row["start"]))
        failed[index] += row["errors"]
        others[index] += row["spans"] - row["errors"]
    series = [
        Series(name, counts, kind, incomplete=timeline.incomplete, links=timeline.links(all_of(text, status)))
        for name, counts, kind, status in (
            ("failed", failed, "error", "status=error"),
            ("not failed", others, "", "-status=error"),
        )
    ]
    return stacked_bars(
        "Matching spans by status, over time", series, timeline.axes(over_time.COUNT), markers, box=LOW
    )


class GroupChart:
    """A measure of the matching spans by fields or attributes."""

    def __init__(self, view: View, text: str, measure: str, by: str) -> None:
        """`text`: filter of all spans of the chart."""
        self._view = view
        self._text = text
        self._measure = measure
        self._keys = [_filter_key(key.strip()) for key in by.split(",") if key.strip()]
        self._unit = _UNITS.get(measure, over_time.NUMBER)

    def groups(self, rows: Sequence[Row]) -> list[ChartedGroup]:
        """Return the rows of the table, from the lines of the whole range."""
        totals = [row for row in rows if row["start"] is None]
        measured = "value" if self._measure in _ADDED_UP else "spans"
        whole = sum(row[measured] or 0 for row in totals) or 1
        filters = [self._filter_of(row) for row in totals if not row["is_rest"]]
        of_rest = all_of(*(f"{key} exists" for key in self._keys if key not in FIELDS), *map(_not, filters))
        hues = iter(over_time.HUES)
        return [
            ChartedGroup(
                "all others"
                if row["is_rest"]
                else ", ".join(value or "(none)" for value in _values(row))
                if self._keys
                else "all spans",
                "rest" if row["is_rest"] else f"hue{next(hues)}",
                self._text_of(row["value"]),
                row["spans"],
                (row[measured] or 0) / whole,
                all_of(self._text, of_rest if row["is_rest"] else self._filter_of(row)),
            )
            for row in totals
        ]

    def drawn(
        self,
        rows: Sequence[Row],
        groups: Sequence[ChartedGroup],
        markers: Sequence[Marker],
        *,
        is_stacked: bool,
    ) -> Markup:
        """Return the chart of the lines of the intervals."""
        timeline = Timeline(self._view)
        of_group: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            of_intervals = of_group.setdefault((str(row["is_rest"]), *_values(row)), [])
            if row["start"] is not None:
                of_intervals.append({**row, "value": self._scaled(row["value"])})
        missing = 0.0 if self._measure in _ADDED_UP else None
        links = timeline.links(self._text)
        series = [
            Series(
                group.name,
                timeline.values(of_intervals, "value", missing),
                group.kind,
                incomplete=timeline.incomplete,
                links=(timeline.links(group.filter) if is_stacked else links) if group.filter else (),
            )
            for group, of_intervals in zip(groups, of_group.values(), strict=True)
        ]
        draw = stacked_bars if is_stacked and not _has_negative(series) else line_chart
        title = f"{self._measure} over time{' by ' if self._keys else ''}{' and '.join(self._keys)}"
        return draw(title, series, timeline.axes(self._unit), markers, box=LOW)

    def _text_of(self, value: float | None) -> str:
        scaled = self._scaled(value)
        return "–" if scaled is None else self._unit.text(scaled)

    def _scaled(self, value: float | None) -> float | None:
        return value * 60 if self._measure == "rate" and value is not None else value

    def _filter_of(self, row: Row) -> str:
        return " ".join(term(key, value) for key, value in zip(self._keys, _values(row), strict=False))


def _values(row: Row) -> tuple[str, ...]:
    return (row["group"], row["second_group"]) if "second_group" in row else (row["group"],)


def _not(text: str) -> str:
    return f"-({text})"


def _has_negative(series: Sequence[Series]) -> bool:
    return any(value is not None and value < 0 for each in series for value in each.values)


def _filter_key(key: str) -> str:
    """Return a key of a group as a filter names it."""
    scope, _, rest = key.partition(".")
    return attribute_text(scope, rest) if scope in _SCOPES else key
