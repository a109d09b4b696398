"""Sums over the spans of a trace: by group, and by path from the root, as a flame graph shows them.

The self time of a span is its duration without the time in which children ran, however many ran then.
The total time of a group is the sum of durations: a span within another span of its group counts in full.
The total time of a frame is the self time of its spans and of all frames below it, so a frame is not narrower
than its children together, even if they ran at the same time or after their parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from receiver.console.queries.traces.trace_model import Span, Trace, TreeNode


@dataclass(slots=True)
class SpanSums:
    """Sums over spans."""

    spans: int = 0
    errors: int = 0
    duration_ns: int = 0
    self_ns: int = 0

    def add(self, span: Span) -> None:
        """Add a span."""
        self.spans += 1
        self.errors += span.is_error
        self.duration_ns += span.end_ns - span.start_ns
        self.self_ns += span.self_ns


def sums_by(spans: Iterable[Span], group_of: Callable[[Span], str | None]) -> dict[str | None, SpanSums]:
    """Return the sums of each group."""
    groups: dict[str | None, SpanSums] = {}
    for span in spans:
        groups.setdefault(group_of(span), SpanSums()).add(span)
    return groups


# Compared by identity, as spans are.
@dataclass(slots=True, eq=False)
class Frame(TreeNode):
    """Spans with the same services and operations on the path from the root to them."""

    service: str
    operation: str
    key: str
    """Digest of the path: the same for every request of the trace."""
    children: dict[tuple[str, str], Frame] = field(default_factory=dict)
    sums: SpanSums = field(default_factory=SpanSums)
    total_ns: int = 0
    frames: int = 1
    """Frames of its subtree, itself included."""


def frame_tree(trace: Trace) -> tuple[Frame, dict[Span, Frame]]:
    """Return a frame of the whole trace, with frames of its paths below it, and the frame of each span."""
    whole = Frame("", "", "")
    frame_of: dict[Span, Frame] = {}
    created = [whole]
    for span in trace.spans:
        above = frame_of[span.parent] if span.parent else whole
        kind = span.row["ServiceName"], span.row["SpanName"]
        if kind not in above.children:
            created.append(Frame(*kind, _key(above.key, *kind)))
            created[-1].parent = above
            above.children[kind] = created[-1]
        frame_of[span] = above.children[kind]
        frame_of[span].sums.add(span)
        whole.sums.add(span)
    # Frames were created after their parents. The self times of `whole` are those of all frames.
    whole.sums.self_ns = 0
    for frame in reversed(created):
        frame.total_ns += frame.sums.self_ns
        if frame.parent:
            frame.parent.total_ns += frame.total_ns
            frame.parent.frames += frame.frames
    return whole, frame_of


def frames_in(whole: Frame) -> Iterator[Frame]:
    """Yield every frame before its children, the largest child first."""
    waiting = [whole]
    while waiting:
        frame = waiting.pop()
        yield frame
        waiting.extend(sorted(frame.children.values(), key=lambda child: child.total_ns))


def _key(above: str, service: str, operation: str) -> str:
    # The length separates both texts, which may have any character.
    path = f"{above} {len(service)} {service}{operation}"
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
