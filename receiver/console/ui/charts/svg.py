"""Charts as SVG. Colours come from the style sheet, by class; every chart has a text alternative.

Never: a `style` attribute, which the Content-Security-Policy of the pages forbids.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
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

    def x(self, position: float) -> float:
        """Return the distance of a point from the left."""
        return _PADDING + (self.box.width - 2 * _PADDING) * position / max(1, self.points - 1)

    def y(self, value: float) -> float:
        """Return the distance of a value from the top."""
        return self.box.height - _PADDING - (self.box.height - 2 * _PADDING) * value / self.largest

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
    """Position along the axis: 0 is the first point, 1 the second."""
    label: str


CHART: Final = Box(720, 160)
"""Plot area of a chart as wide as a page."""


class Series(NamedTuple):
    """A line of a chart."""

    name: str
    values: Sequence[Number]
    kind: str = ""
    """Class of the line in the style sheet."""
    positions: Sequence[float] = ()
    """Positions of the values, from 0 to their number minus one; 1 apart by default."""
    incomplete: Container[int] = ()
    """Indices of the values of incomplete intervals."""


class Axes(NamedTuple):
    """Labels of the largest value, and of the first and the last point."""

    largest: str
    first: str
    last: str


def line_chart(
    title: str,
    series: Sequence[Series],
    axes: Axes,
    markers: Sequence[Marker] = (),
    *,
    box: Box = CHART,
) -> Markup:
    """Return a chart over time. Zero is the bottom; the largest value is labelled."""
    largest = max((value for line in series for value in line.values if value is not None), default=0) or 1
    scale = Scale(max((len(line.values) for line in series), default=0), largest, box)
    drawn = [path for line in series for path in _line(line, scale)]
    lines = [
        tag("g", tag("title", marker.label), _vertical(scale.x(marker.position), box), class_="marker")
        for marker in markers
    ]
    labels = [
        tag("text", axes.largest, x=4, y=12, class_="axis"),
        tag("text", axes.first, x=4, y=box.height + 14, class_="axis"),
        tag("text", axes.last, x=box.width - 4, y=box.height + 14, class_="axis end"),
    ]
    frame = tag("path", d=f"M0 {text_of(box.height)}H{text_of(box.width)}", class_="grid")
    top = tag("path", d=f"M0 {_PADDING}H{text_of(box.width)}", class_="grid")
    return tag(
        "svg",
        tag("title", title),
        frame,
        top,
        *lines,
        *drawn,
        *labels,
        class_="chart",
        role="img",
        viewBox=f"0 0 {text_of(box.width)} {text_of(box.height + 20)}",
        aria_label=title,
    )


def _line(series: Series, scale: Scale) -> Iterable[Markup]:
    """Return the paths of a series. Values of incomplete intervals are too small, so they are dots."""
    kind = f"line {series.kind}".strip()
    title = [tag("title", series.name)] if series.name else []
    whole = [None if index in series.incomplete else value for index, value in enumerate(series.values)]
    for path in scale.paths(whole, series.positions):
        yield tag("path", *title, d=path, class_=kind)
    for index, value in enumerate(series.values):
        if index in series.incomplete and value is not None:
            dot = next(iter(scale.paths([value], [series.positions[index] if series.positions else index])))
            note = tag("title", f"{series.name}, incomplete interval".lstrip(", "))
            yield tag("path", note, d=dot, class_=f"{kind} incomplete")


def _vertical(x: float, box: Box) -> Markup:
    return tag("path", d=f"M{text_of(x)} 0V{text_of(box.height)}")


def text_of(value: str | float) -> str:
    """Return the text of an attribute of an element; numbers have at most two decimals."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
