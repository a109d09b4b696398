"""Charts as SVG. Colours come from the style sheet, by class; every chart has a text alternative.

Never: a `style` attribute, which the Content-Security-Policy of the pages forbids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from markupsafe import Markup, escape

Number = float | None
"""A value of a chart; `None` is a gap."""

SPARKLINE_WIDTH = 120
SPARKLINE_HEIGHT = 20
_PADDING: Final = 2


def tag(name: str, *children: str | Markup, **attributes: str | float) -> Markup:
    """Return an element. Attributes and children that are not markup are escaped; `_` becomes `-`."""
    # `class` and `for` are keywords of Python, so callers write `class_`.
    pairs = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), text_of(value))
        for key, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(
        name, pairs, Markup("").join(escape(child) for child in children), name
    )


def sparkline(values: Sequence[Number], label: str, incomplete: Sequence[int] = ()) -> Markup:
    """Return a line without axes, at most as wide as a table's cell; zero is the bottom.

    `incomplete`: indices of the values of incomplete intervals, which are dots beside the line.
    """
    largest = max((value for value in values if value is not None), default=0) or 1
    scale = Scale(len(values), largest, Box(SPARKLINE_WIDTH, SPARKLINE_HEIGHT))
    return tag(
        "svg",
        tag("title", f"{label}; dots: incomplete intervals" if incomplete else label),
        *_line(Series("", values, incomplete=incomplete), scale),
        class_="sparkline",
        width=SPARKLINE_WIDTH,
        height=SPARKLINE_HEIGHT,
        role="img",
        viewBox=f"0 0 {SPARKLINE_WIDTH} {SPARKLINE_HEIGHT}",
    )


def share_bar(share: float, label: str, kind: str = "") -> Markup:
    """Return a bar whose length is a fraction from 0 to 1."""
    width = max(0.0, min(1.0, share)) * 100
    return tag(
        "svg",
        tag("title", label),
        tag("rect", width=width, height=8, class_=f"bar {kind}".strip()),
        class_="share",
        width=100,
        height=8,
        role="img",
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
    )


class Box(NamedTuple):
    """The plot area of a chart in pixels."""

    width: float
    height: float


class Scale(NamedTuple):
    """Converts positions and values of a series to pixels."""

    points: int
    largest: float
    box: Box
    smallest: float = 0.0
    left: float = 0.0
    """Width of the labels at the left of the plot area."""
    has_columns: bool = False
    """Whether a point is in the middle of a column as wide as an interval; otherwise the ends have points."""

    @property
    def column_width(self) -> float:
        """Return the width of an interval."""
        return (self.box.width - self.left) / max(1, self.points)

    def x(self, position: float) -> float:
        """Return the distance of a point from the left."""
        if self.has_columns:
            return self.left + self.column_width * (position + 0.5)
        return _PADDING + (self.box.width - 2 * _PADDING) * position / max(1, self.points - 1)

    def y(self, value: float) -> float:
        """Return the distance of a value from the top."""
        share = (value - self.smallest) / (self.largest - self.smallest)
        return self.box.height - _PADDING - (self.box.height - 2 * _PADDING) * share

    def paths(self, values: Sequence[Number], positions: Sequence[float] = ()) -> Iterable[str]:
        """Return a path for each run of values without a gap. The positions are 1 apart by default."""
        points = zip(positions or range(len(values)), values, strict=True)
        for is_gap, run in groupby(points, key=lambda point: point[1] is None):
            if is_gap:
                continue
            drawn = [(self.x(position), self.y(value)) for position, value in run if value is not None]
            if len(drawn) == 1:
                # Its round ends draw a line of length zero as a dot.
                drawn *= 2
            yield "M" + "L".join(f"{text_of(x)} {text_of(y)}" for x, y in drawn)


class Marker(NamedTuple):
    """A vertical line in a chart over time, such as the beginning of a deployment."""

    position: float
    """Position along the axis: 0 is the begin of the first interval, 1 that of the second."""
    label: str
    name: str = ""
    """Text beside the line."""
    link: str = ""


CHART: Final = Box(720, 160)
"""A chart as wide as a page, without the labels below it."""
LOW: Final = Box(560, 120)
"""A chart beside another."""
_LABELS_WIDTH: Final = 56
_LABELS_HEIGHT: Final = 20
_TICKS_MAX: Final = 4
_NAMES_HEIGHT: Final = 14
_CHARACTER_WIDTH: Final = 7


class Series(NamedTuple):
    """A line or the parts of bars in a chart."""

    name: str
    values: Sequence[Number]
    kind: str = ""
    """Class of the line in the style sheet."""
    positions: Sequence[float] = ()
    """Positions of the values, from 0 to their number minus one; 1 apart by default."""
    incomplete: Container[int] = ()
    """Indices of the values of incomplete intervals."""
    links: Sequence[str] = ()
    """URL of the spans of each value."""

    @property
    def whole(self) -> list[Number]:
        """Return the values, with gaps in place of those of incomplete intervals."""
        return [None if index in self.incomplete else value for index, value in enumerate(self.values)]


class Unit(NamedTuple):
    """Texts of the values of an axis."""

    text: Callable[[float], str]
    step_min: float = 0.0
    """Smallest distance of labels: 1 for counts."""


class Tick(NamedTuple):
    """A label of the horizontal axis."""

    position: float
    """Position of the left end of its interval, as of a marker."""
    label: str
    time: str = ""
    """The time, for the script that shows local times."""


class Axes(NamedTuple):
    """Labels of both axes."""

    ticks: Sequence[Tick]
    unit: Unit
    data: Mapping[str, str | float] = {}
    """Attributes of the chart for the script that selects a time range."""


def line_chart(
    title: str, series: Sequence[Series], axes: Axes, markers: Sequence[Marker] = (), *, box: Box = CHART
) -> Markup:
    """Return a chart of lines over time. Zero is in the chart; incomplete intervals are dashed."""
    values = [value for line in series for value in line.values if value is not None]
    plot = _Plot(values, max((len(line.values) for line in series), default=0), axes, box)
    drawn = [path for line in series for path in _whole_line(line, plot.scale)]
    return plot.drawn(title, [*drawn, *_columns(series, plot.scale, axes.unit)], markers)


def stacked_bars(
    title: str, series: Sequence[Series], axes: Axes, markers: Sequence[Marker] = (), *, box: Box = CHART
) -> Markup:
    """Return a chart of a bar for each interval, made of the values of all series from the bottom up."""
    count = max((len(part.values) for part in series), default=0)
    heights = [0.0] * count
    bars = []
    sums = [sum(part.values[index] or 0 for part in series) for index in range(count)]
    plot = _Plot(sums, count, axes, box)
    for part in series:
        for index, value in enumerate(part.values):
            if value:
                bars.append(_bar(part, index, heights[index], plot.scale, axes.unit))
                heights[index] += value
    return plot.drawn(title, bars, markers)


def _bar(part: Series, index: int, below: float, scale: Scale, unit: Unit) -> Markup:
    value = part.values[index] or 0.0
    is_incomplete = index in part.incomplete
    top, bottom = scale.y(below + value), scale.y(below)
    bar = tag(
        "rect",
        tag("title", f"{part.name}: {unit.text(value)}" + (", incomplete interval" if is_incomplete else "")),
        x=scale.x(index - 0.5) + 0.5,
        y=top,
        width=max(0.5, scale.column_width - 1),
        height=max(0.5, bottom - top),
        class_=f"bar {part.kind}{' partial' if is_incomplete else ''}",
    )
    # The table of the numbers has links that a keyboard can follow.
    return tag("a", bar, href=part.links[index], tabindex=-1) if part.links else bar


def _columns(series: Sequence[Series], scale: Scale, unit: Unit) -> Iterable[Markup]:
    """Yield an invisible link over each interval, with the values of all lines as its title."""
    if not series or not series[0].links:
        return
    for index, link in enumerate(series[0].links):
        texts = [
            f"{line.name}: {unit.text(value)}" for line in series if (value := line.values[index]) is not None
        ]
        if texts:
            area = tag("rect", x=scale.x(index - 0.5), width=scale.column_width, height=scale.box.height)
            yield tag("a", tag("title", "\n".join(texts)), area, href=link, tabindex=-1, class_="column")


class _Plot:
    """The frame of a chart over time: its scale, its axes and its markers."""

    def __init__(self, values: Sequence[float], points: int, axes: Axes, box: Box) -> None:
        self._axes = axes
        low, high = min([0.0, *values]), max([0.0, *values]) or 1.0
        step = _round_step((high - low) / _TICKS_MAX, axes.unit.step_min)
        first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
        self._labelled = [number * step for number in range(first, last + 1)]
        self.scale = Scale(
            points, last * step, box, smallest=first * step, left=_LABELS_WIDTH, has_columns=True
        )

    def drawn(self, title: str, content: Sequence[Markup], markers: Sequence[Marker]) -> Markup:
        """Return the chart. Its `data` attributes are for the script that selects a time range."""
        scale, data = self.scale, {**self._axes.data}
        box = scale.box
        if data:
            data |= {"data_left": scale.left, "data_width": box.width, "data_height": box.height}
        above = _NAMES_HEIGHT if any(marker.name for marker in markers) else 4
        return tag(
            "svg",
            tag("title", title),
            *self._axis_labels(),
            *content,
            *_markers(markers, scale),
            class_="chart over-time",
            role="group",
            viewBox=f"0 {-above} {text_of(box.width)} {text_of(box.height + _LABELS_HEIGHT + above)}",
            aria_label=title,
            **data,
        )

    def _axis_labels(self) -> Iterable[Markup]:
        scale = self.scale
        for value in self._labelled:
            y = scale.y(value)
            yield tag("path", d=f"M{_LABELS_WIDTH} {text_of(y)}H{text_of(scale.box.width)}", class_="grid")
            text = self._axes.unit.text(value)
            yield tag("text", text, x=_LABELS_WIDTH - 6, y=y + 4, class_="axis end")
        yield from tick_labels(self._axes.ticks, lambda position: scale.x(position - 0.5), scale.box)


def tick_labels(ticks: Sequence[Tick], x_of: Callable[[float], float], box: Box) -> Iterable[Markup]:
    """Yield the labels below a plot area that do not overlap an earlier label."""
    free_from = 0.0
    for tick in ticks:
        width = len(tick.label) * _CHARACTER_WIDTH
        # A label at an end of the axis would leave the chart.
        begin = min(max(0.0, x_of(tick.position) - width / 2), box.width - width)
        if begin < free_from:
            continue
        free_from = begin + width + 2 * _CHARACTER_WIDTH
        time = {"data_time": tick.time} if tick.time else {}
        at_x = begin + width / 2
        yield tag("text", tick.label, x=at_x, y=box.height + 15, class_="axis middle", **time)


def _round_step(at_least: float, step_min: float) -> float:
    """Return the smallest of 1, 2 or 5 times a power of ten that is not smaller than both."""
    wanted = max(at_least, step_min)
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted * (1 - 1e-9))


def _markers(markers: Sequence[Marker], scale: Scale) -> Iterable[Markup]:
    """Yield the markers, with their names where these do not overlap."""
    named_to = 0.0
    for marker in sorted(markers, key=lambda marker: marker.position):
        x = scale.x(min(max(marker.position, 0), scale.points) - 0.5)
        line = tag("path", d=f"M{text_of(x)} 0V{text_of(scale.box.height)}")
        parts = [tag("title", marker.label), line]
        name_width = (len(marker.name) + 1) * _CHARACTER_WIDTH
        at_x = min(x, scale.box.width - name_width)
        if marker.name and at_x >= named_to:
            named_to = at_x + name_width
            parts.append(tag("text", marker.name, x=at_x, y=-3, class_="axis"))
        group = tag("g", *parts, class_="marker")
        yield tag("a", group, href=marker.link, tabindex=-1) if marker.link else group


def _whole_line(series: Series, scale: Scale) -> Iterable[Markup]:
    """Return the paths of a series: dashed from and to the values of incomplete intervals."""
    kind = f"line {series.kind}".strip()
    title = [tag("title", series.name)] if series.name else []
    for path in scale.paths(series.whole, series.positions):
        yield tag("path", *title, d=path, class_=kind)
    for index, value in enumerate(series.values):
        if index not in series.incomplete or value is None:
            continue
        note = tag("title", f"{series.name}, incomplete interval".lstrip(", "))
        others = [at for at in (index - 1, index + 1) if 0 <= at < len(series.values)]
        for other in [at for at in others if series.values[at] is not None] or [index]:
            first, last = sorted((index, other))
            points = [series.values[first], series.values[last]]
            positions = [series.positions[at] if series.positions else at for at in (first, last)]
            line = "incomplete" if first == last else "partial"
            yield tag("path", note, d=next(iter(scale.paths(points, positions))), class_=f"{kind} {line}")


def _line(series: Series, scale: Scale) -> Iterable[Markup]:
    """Return the paths of a sparkline. Values of incomplete intervals are too small, so they are dots."""
    for path in scale.paths(series.whole):
        yield tag("path", d=path, class_="line")
    for index, value in enumerate(series.values):
        if index in series.incomplete and value is not None:
            dot = next(iter(scale.paths([value], [index])))
            yield tag("path", tag("title", "incomplete interval"), d=dot, class_="line incomplete")


def text_of(value: str | float) -> str:
    """Return the text of an attribute of an element; numbers have at most two decimals."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
