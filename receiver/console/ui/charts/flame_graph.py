"""Flame graph of a trace: a rectangle for each path of services and operations, as wide as its time.

Only frames wide enough to be seen are drawn, so the size of the graph does not depend on the number of spans.
Positions are percentages: the graph is as wide as the page, and its texts keep their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from receiver.console.queries.traces.trace_statistics import Frame
from receiver.console.ui import numbers
from receiver.console.ui.charts.svg import tag
from receiver.console.ui.long_texts import cut
from receiver.sizes import counted

LEVEL_PX: Final = 22
LEVELS_MAX: Final = 100
FRAMES_MAX: Final = 2_000
WIDTH_MIN: Final = 0.0008
"""Fraction of the graph's width; a narrower frame is less than a pixel wide."""
ABOVE_MAX: Final = 5
"""Maximum number of frames above the chosen frame, which are drawn as wide as the graph."""
LABEL_CHARS_MAX: Final = 200
_HUES: Final = 12


class Drawn(NamedTuple):
    """A frame with its position: fractions of the width, and the level from the top."""

    frame: Frame
    left: float
    width: float
    level: int


def laid_out(chosen: Frame) -> list[Drawn]:
    """Return the frames to draw: some frames above the chosen frame, and the wide ones below it, by level."""
    above: list[Frame] = []
    parent = chosen.parent
    while parent is not None and len(above) < ABOVE_MAX:
        above.append(parent)
        parent = parent.parent
    drawn = [Drawn(frame, 0, 1, level) for level, frame in enumerate(reversed(above))]
    level = [Drawn(chosen, 0, 1, len(drawn))]
    while level and len(drawn) < FRAMES_MAX and level[0].level < LEVELS_MAX:
        drawn += level[: FRAMES_MAX - len(drawn)]
        level = [child for each in level for child in _children(each, chosen.total_ns)]
    return drawn


def _children(of: Drawn, total_ns: int) -> list[Drawn]:
    # The largest first, at the left.
    ordered = sorted(of.frame.children.values(), key=lambda child: -child.total_ns)
    left, below = of.left, []
    for child in ordered:
        width = child.total_ns / total_ns if total_ns else 0.0
        if width < WIDTH_MIN:
            break
        below.append(Drawn(child, left, width, of.level + 1))
        left += width
    return below


def flame_graph(
    drawn: Sequence[Drawn], chosen: Frame, whole: Frame, link_of: Callable[[Frame], str]
) -> Markup:
    """Return the graph. `link_of`: URL of the graph of a frame."""
    return tag(
        "svg",
        *(_rectangle(each, chosen, whole, link_of) for each in drawn),
        class_="flame",
        id="flame",
        width="100%",
        height=(drawn[-1].level + 1) * LEVEL_PX,
        role="group",
        aria_label="Flame graph: a link for each path from the root",
    )


def _rectangle(each: Drawn, chosen: Frame, whole: Frame, link_of: Callable[[Frame], str]) -> Markup:
    frame = each.frame
    text = label(frame)[:LABEL_CHARS_MAX]
    mark = "✕ " if frame.sums.errors else ""
    about = f"{text}: {summary(frame, whole)}"
    current = {"aria_current": "true"} if frame is chosen else {}
    # A nested `svg` cuts its text at its edges.
    inner = tag(
        "svg",
        tag("title", about),
        tag("rect", width="100%", height=LEVEL_PX - 1, class_=f"frame {hue_of(frame.service)}"),
        tag("text", mark + text, x=4, y=15),
        x=f"{each.left * 100:.4f}%",
        y=each.level * LEVEL_PX,
        width=f"{each.width * 100:.4f}%",
        height=LEVEL_PX - 1,
        class_="failed" if frame.sums.errors else "passed",
    )
    return tag("a", inner, href=link_of(frame), aria_label=about, data_level=each.level, **current)


def label(frame: Frame) -> str:
    """Return the service and the operation of a frame."""
    if not frame.parent:
        return "whole trace"
    return f"{cut(frame.service) or '(no service)'} {cut(frame.operation) or '(no name)'}"


def summary(frame: Frame, whole: Frame) -> str:
    """Return the numbers of a frame as a text."""
    share = frame.total_ns / whole.total_ns if whole.total_ns else 0.0
    failed = f", {numbers.count(frame.sums.errors)} failed" if frame.sums.errors else ""
    spans = f"{counted(frame.sums.spans, 'span')}{failed}"
    return f"total {numbers.duration(frame.total_ns / 1e6)} ({numbers.percent(share)} of the trace), {spans}"


def hue_of(service: str) -> str:
    """Return the class of a service's colour: the same as in `waterfall.js`."""
    digest = 0
    for character in service:
        digest = (digest * 31 + ord(character)) & 0xFFFFFFFF
    return f"hue{digest % _HUES}"
