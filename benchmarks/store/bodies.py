"""Request bodies whose identifiers (span ids, users, paths, statements) differ in every use.

A body is encoded once, with marks in place of the identifiers; the marks are overwritten for every use. If
identifiers repeated within a day, the sorted table would compress them far better than real traffic.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from random import Random

from trace_drain_testing.load.template import Template
from trace_drain_testing.load.traffic import TRACE_SPANS, Resource, Shape, Span, Value, delivery
from trace_drain_testing.load.wire import ENCODINGS, START_MARK

SHARED_SERVICE = "notification-worker"
"""Service that every project has; the other services belong to a single project."""
PROJECT_KEYS = ("platform.projectId", "platform.deploymentId")
TRACE_SERVICES = 3
"""Services that each trace crosses."""
CALLED_INDEXES = tuple(-(-number * TRACE_SPANS // TRACE_SERVICES) for number in range(1, TRACE_SERVICES))
"""Places in a trace of the first span of each called service."""
SERVER_KIND = 2
KNOWN_DIGITS = 5
"""Hex digits of recurring values: a million users, products, orders."""
_ZEROS = b"0" * 12
_ID_MARK = b"\xf5\xc1\xd3\xe7"
"""First half of a marked span id; the other half is its index among the ids of the body."""
_KNOWN, _ONCE = "\x02known\x1fvalue", "\x02once\x1f-value"
"""Marks of twelve characters: for a recurring value, and for a value that never repeats."""
_ARBITRARY_TIME_NS = 10**18
_NUMBER = re.compile(r"(?<=id = )[0-9]+|(?<=VALUES \()[0-9]+")
_MARKS = re.compile(rb"(?s)" + re.escape(_ID_MARK) + rb"....|\x02known\x1fvalue|\x02once\x1f-value")


class Body:
    """Template of a body that is filled in for every use."""

    def __init__(self, shape: Shape, ordinal: int) -> None:
        encoding = ENCODINGS["protobuf"]
        marked = encoding._replace(body=lambda resources: encoding.body(_marked(resources)))
        self._template = Template(delivery(shape, ordinal), marked)
        self._ids: dict[bytes, list[int]] = {}
        self._texts: list[tuple[int, int]] = []
        """Position of each text mark, and the index of its first digit that is not 0."""
        for mark in _MARKS.finditer(self._template.body(bytes(len(START_MARK)), _ARBITRARY_TIME_NS)):
            if mark[0].startswith(_ID_MARK):
                self._ids.setdefault(mark[0], []).append(mark.start())
            else:
                self._texts.append((mark.start(), 0 if mark[0] == _ONCE.encode() else 12 - KNOWN_DIGITS))

    def filled(self, dice: Random, at_ns: int) -> bytes:
        """Return the body with new identifiers and these times."""
        body = bytearray(self._template.body(dice.randbytes(len(START_MARK)), at_ns))
        fresh = dice.randbytes(8 * len(self._ids))
        for index, positions in enumerate(self._ids.values()):
            for position in positions:
                body[position : position + 8] = fresh[8 * index : 8 * index + 8]
        digits = dice.randbytes(6 * len(self._texts)).hex().encode()
        for index, (position, first) in enumerate(self._texts):
            body[position : position + 12] = _ZEROS[:first] + digits[12 * index + first : 12 * index + 12]
        return bytes(body)


def _marked(resources: Sequence[Resource]) -> list[Resource]:
    """Return one project's traces over several of its services, with marks in place of identifiers."""
    marks_by_id = _marks_by_id(span for resource in resources for span in resource.spans)
    project = {key: resources[0].attributes[key] for key in PROJECT_KEYS}
    owned = [resource._replace(attributes={**resource.attributes, **project}) for resource in resources]
    return [
        resource._replace(
            attributes={**resource.attributes, "service.name": _name(resource)},
            spans=tuple(_marked_span(span, marks_by_id) for span in spans),
        )
        for resource, spans in zip(owned, _spans_by_service(resources), strict=True)
    ]


def _spans_by_service(resources: Sequence[Resource]) -> list[list[Span]]:
    """Distribute the spans of each trace: the root's service, then the services that it calls."""
    spans_by_service: list[list[Span]] = [[] for _ in resources]
    for first, resource in enumerate(resources):
        for index, span in enumerate(resource.spans):
            further = index % TRACE_SPANS * TRACE_SERVICES // TRACE_SPANS
            is_called = index % TRACE_SPANS in CALLED_INDEXES
            kept = span._replace(kind=SERVER_KIND) if is_called else span
            spans_by_service[(first + further) % len(resources)].append(kept)
    return spans_by_service


def _marks_by_id(spans: Iterable[Span]) -> dict[bytes, bytes]:
    """Return the mark for each span id. A root has no parent, so an empty id stays empty."""
    marks = {span.span_id: _ID_MARK + struct.pack(">I", index) for index, span in enumerate(spans)}
    return {b"": b"", **marks}


def _name(resource: Resource) -> str:
    service, project = resource.service, str(resource.attributes["platform.projectId"])
    return service if service == SHARED_SERVICE else f"{service}-{int(project.removeprefix('prj_')):02}"


def _marked_span(span: Span, marks_by_id: dict[bytes, bytes]) -> Span:
    return span._replace(
        span_id=marks_by_id[span.span_id],
        parent_id=marks_by_id[span.parent_id],
        attributes={key: _marked_value(key, value, span) for key, value in span.attributes.items()},
    )


def _marked_value(key: str, value: Value, span: Span) -> Value:
    match key:
        case "app.user.id":
            return f"usr_{_KNOWN}"
        case "faas.invocation_id":
            return _ONCE
        case "url.path":
            return str(span.attributes["http.route"]).replace("[id]", _KNOWN)
        case "db.query.text":
            return _NUMBER.sub(_KNOWN, str(value))
        case _:
            return value
